// What can be done with a task where it is listed, or with those that are selected: its menu, lists to choose from, the bar.
import { isEqual, serverTime } from "./api.js";
import { changeTasks, CHOICES, clearSelection, OPERATION, selection } from "./changes.js";
import { toggleSelected } from "./changes.js";
import { shownTask } from "./columns.js";
import { choicesOf } from "./forms.js";
import { button, Menu, Popover } from "./parts.js";
import { labelOption, Picker } from "./picker.js";
import { focusCard } from "./place.js";
import { html } from "./preact.js";
import { go, useStore } from "./store.js";
import { dayInWeek, dayOf, labelOf, later } from "./words.js";
import { useMilestones, workspace } from "./workspace.js";

/** The fields of a task that a key on its card lets choose. */
export const CARD_KEYS = {
  s: "status",
  a: "assignee_id",
  p: "priority",
  d: "due_date",
  m: "milestone_id",
  l: "labels",
};
const AT_HAND = [...Object.entries(CARD_KEYS), [null, "project_id"]];
const DAYS_AHEAD = [0, 1, 7];

const hide = (event) => event.target.closest("[popover]").hidePopover(); // which gives the focus back

function DayMenu({ label, anchor, value, onChoose, onClose }) {
  const choose = (chosen) => (event) => {
    event.preventDefault();
    hide(event);
    onClose();
    onChoose(chosen);
  };
  const ahead = DAYS_AHEAD.map((days) => dayOf(later(serverTime(), days * 86_400)));
  return html`<${Popover} role="dialog" ...${{ label, anchor, onClose }}>
    <form class="line" onSubmit=${(event) => choose(event.target.elements.day.value)(event)}>
      <input type="date" name="day" class="grow" aria-label=${label} value=${value} />
      <button class="primary">Set</button>
    </form>
    ${ahead.map((one) => button(dayInWeek(one, serverTime()), choose(one), ""))}
    ${button("None", choose(""), "")}
  <//>`;
}

/** A list to choose a field's value from for some tasks; of labels the tasks keep what they do not share. */
function Chooser({ name, tasks, anchor, onClose }) {
  useStore(workspace);
  const isShared = (field) => tasks.every((task) => task[field] === tasks[0][field]);
  const isOfMilestone = name === "milestone_id";
  const project = isOfMilestone && isShared("project_id") && tasks[0].project_id;
  const milestones = useMilestones(project);
  const isLabels = name === "labels";
  const labels = tasks[0].labels.filter((one) => tasks.every((task) => task.labels.includes(one)));
  const value = isLabels ? labels : isShared(name) ? (tasks[0][name] ?? "") : undefined;
  const valueFor = (task, chosen) => {
    const own = isLabels && task.labels.filter((one) => !labels.includes(one));
    if (isLabels) return [...new Set([...chosen, ...own])];
    return name === "due_date" && dayOf(task[name]) === chosen ? task[name] : chosen || null;
  };
  const choose = (chosen) => {
    const more = name === "project_id" && { milestone_id: null };
    const pairs = tasks.map((task) => [task, { [name]: valueFor(task, chosen), ...more }]);
    changeTasks(pairs.filter(([task, changes]) => !isEqual(task[name], changes[name])));
  };
  const about = { label: labelOf(name), anchor, onClose, onChoose: choose };
  if (name === "due_date") return html`<${DayMenu} ...${about} value=${dayOf(value)} />`;
  const settings = { ...CHOICES[name], ...(isOfMilestone && { pairs: milestones }) };
  const options = choicesOf(OPERATION, name, settings, value);
  const several = isLabels && { multiple: true, isNewAllowed: true, draw: labelOption };
  return html`<${Picker} ...${{ ...about, options, value, ...several }} />`;
}

/** What a card's button opens; with the `name` of a field its choices. */
export function TaskMenu({ ids, name, anchor, open, onClose }) {
  const tasks = ids.map(shownTask).filter(Boolean);
  if (!tasks.length) return null;
  if (name) return html`<${Chooser} ...${{ name, tasks, anchor, onClose }} />`;
  const item = (key, words, run) => {
    const press = (event) => (hide(event), run());
    const shortcut = key && html`<kbd class="end dim" aria-hidden="true">${key}</kbd>`;
    return button(html`${words}${shortcut}`, press, "", { "aria-keyshortcuts": key });
  };
  const [task, ...others] = tasks;
  const isSelected = selection.value.includes(task.id);
  const label = others.length ? `${tasks.length} selected` : task.title;
  return html`<${Menu} ...${{ label, anchor, onClose }}>
    ${others.length > 0 && html`<p class="dim">${label}</p>`}
    ${!others.length && item("e", "Open", () => go({ task: task.number }))}
    ${AT_HAND.map(([key, field]) => item(key, labelOf(field), () => open(tasks, anchor, field)))}
    ${item("x", isSelected ? "Clear the selection" : "Select", isSelected ? clearSelection : () => toggleSelected(task))}
  <//>`;
}

/** The bar for the tasks that are selected. */
export function SelectionBar({ tasks, open, onKeyDown }) {
  const clear = () => {
    clearSelection();
    focusCard(tasks.at(-1).id);
  };
  const choiceOf = ([, name]) => {
    const press = (event) => open(tasks, event.currentTarget, name);
    return button(labelOf(name), press, "chip", { "aria-haspopup": "dialog" });
  };
  return html`<div id="filters" class="line" role="toolbar" aria-label="Selected tasks" onKeyDown=${onKeyDown}>
    <b>${tasks.length} selected</b> ${button("Clear", clear)} ${AT_HAND.map(choiceOf)}
  </div>`;
}
