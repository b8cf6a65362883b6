// What can be done with a task where it is listed, or with those that are selected: its menu, lists to choose from, the bar.
import { isEqual, serverTime } from "./api.js";
import { changeTasks, CHOICES, clearSelection, OPERATION, selection } from "./changes.js";
import { toggleSelected } from "./changes.js";
import { shownTask } from "./columns.js";
import { removeAll } from "./deletions.js";
import { choicesOf } from "./forms.js";
import { button, Menu, Popover } from "./parts.js";
import { labelOption, OptionList, Picker } from "./picker.js";
import { focusCard } from "./place.js";
import { html, useState } from "./preact.js";
import { go, useStore } from "./store.js";
import { count, dayAfter, dayInWeek, dayMeant, dayOf, labelOf } from "./words.js";
import { session, useMilestones, workspace } from "./workspace.js";

/** The fields of a task that a key on its card lets choose. */
export const CARD_KEYS = {
  s: "status",
  a: "assignee_id",
  p: "priority",
  d: "due_date",
  m: "milestone_id",
  l: "labels",
};
export const OWN_KEY = "i";
export const DELETE_KEY = "Delete";
const AT_HAND = [...Object.entries(CARD_KEYS), [null, "project_id"]];
const DAYS_AHEAD = 8; // which are listed, today among them

const hide = (event) => event.target.closest("[popover]").hidePopover(); // which gives the focus back

/** A day to choose from the next ones, or by typing it: `fri`, `12 dec`, `3 weeks`; or in the browser's calendar. */
function DayMenu({ label, anchor, value, onChoose, onClose }) {
  const [typed, setTyped] = useState("");
  const today = dayOf(serverTime());
  const optionOf = (day) => [day, dayInWeek(day, serverTime())];
  const ahead = Array.from({ length: DAYS_AHEAD }, (_, days) => optionOf(dayAfter(today, days)));
  const meant = dayMeant(typed, today);
  const found = meant && !ahead.some(([day]) => day === meant) ? [optionOf(meant)] : [];
  const leave = (list) => {
    list.closest("[popover]").hidePopover(); // which gives the focus back
    onClose();
  };
  const submit = (event) => {
    event.preventDefault();
    leave(event.target);
    onChoose(event.target.elements.day.value);
  };
  return html`<${Popover} role="dialog" ...${{ label, anchor, onClose }}>
    <${OptionList} label="Try “fri”, “12 dec”, “3 weeks”" options=${[...ahead, ["", "None"]]} onType=${setTyped} onDone=${leave}
      ...${{ value, found, onChoose }} />
    <form class="line" onSubmit=${submit}>
      <input type="date" name="day" class="grow" aria-label=${label} value=${value} />
      <button>Set</button>
    </form>
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

export function assignMe(tasks) {
  const assignee_id = session.value.member.id;
  changeTasks(
    tasks.filter((task) => task.assignee_id !== assignee_id).map((task) => [task, { assignee_id }]),
  );
}

/** Delete tasks, of which the server is told when that can no longer be undone. */
export function drop(tasks) {
  const words = tasks.length > 1 ? count(tasks.length, "task") : `“${tasks[0].title}”`;
  const after = document.activeElement.closest("[data-task]")?.nextElementSibling?.dataset.task;
  clearSelection();
  removeAll(
    tasks.map(({ id }) => [id, `/tasks/${id}`]),
    `Deleted ${words}.`,
  );
  setTimeout(focusCard, 0, after, tasks[0].status);
}

/** What a card's button opens; with the `name` of a field its choices. `find` knows the tasks that are listed. */
export function TaskMenu({ ids, name, anchor, open, onClose, find = shownTask, places }) {
  const tasks = ids.map(find).filter(Boolean);
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
    ${item(OWN_KEY, "Assign to me", () => assignMe(tasks))}
    ${!others.length && places?.(task).map(([words, run]) => item(null, words, run))}
    ${find === shownTask && item("x", isSelected ? "Clear the selection" : "Select", isSelected ? clearSelection : () => toggleSelected(task))}
    ${item(null, "Delete", () => drop(tasks))}
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
    ${button("Delete", () => drop(tasks), "chip danger")}
  </div>`;
}
