// What you can do with listed or selected tasks: their menu, the lists to choose from, the bar of the selection.
import { isEqual } from "./api.js";
import { changeTasks, CHOICES, clearSelection, OPERATION, selection } from "./changes.js";
import { removeAll, selectColumn, toggleSelected } from "./changes.js";
import { shownTask } from "./columns.js";
import { choicesOf } from "./forms.js";
import { button, Menu } from "./parts.js";
import { DayMenu, labelOption, Picker } from "./picker.js";
import { focusCard, letterOf } from "./place.js";
import { html, useRef, useState } from "./preact.js";
import { go, useStore } from "./store.js";
import { count, dayOf, labelOf } from "./words.js";
import { isTeam, session, useMilestones, workspace } from "./workspace.js";

/** The field of a task that each key on its card changes. */
export const CARD_KEYS = {
  s: "status",
  a: "assignee_id",
  p: "priority",
  d: "due_date",
  m: "milestone_id",
  l: "labels",
};
export const OWN_KEY = "i";
const AT_HAND = [...Object.entries(CARD_KEYS), [null, "project_id"]];

const hide = (event) => event.target.closest("[popover]").hidePopover(); // the browser moves the focus back

/** Choose the value of a field for some tasks. Of their labels, each task keeps those that the others lack. */
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
  const others = tasks.filter((task) => task.assignee_id !== assignee_id);
  changeTasks(others.map((task) => [task, { assignee_id }]));
}

/** Delete tasks. The request is sent when you can no longer undo it. */
export function drop(tasks) {
  const words = tasks.length > 1 ? count(tasks.length, "task") : `“${tasks[0].title}”`;
  const after = document.activeElement.closest("[data-task]")?.nextElementSibling?.dataset.task;
  clearSelection();
  const pairs = tasks.map(({ id }) => [id, `/tasks/${id}`]);
  removeAll(pairs, ["Deleted", words]);
  setTimeout(focusCard, 0, after, tasks[0].status);
}

/**
 * Do what a key does with listed tasks. `open` shows the choices of a field; `more` are functions by the keys that
 * only this list has.
 */
export function pressKey(event, tasks, open, more) {
  const { target, ctrlKey, metaKey, altKey } = event;
  const key = letterOf(event);
  const choose = () => open(tasks, target.closest(".card") ?? target, CARD_KEYS[key]);
  const ofTeam = { Delete: () => drop(tasks), [OWN_KEY]: () => assignMe(tasks) };
  const run = more[key] ?? (open && isTeam() && (ofTeam[key] ?? (CARD_KEYS[key] && choose)));
  if (!run || ctrlKey || metaKey || altKey) return;
  event.preventDefault();
  run();
}

/** Return a function that opens the menu of tasks or the choices of a field, and what it has opened. */
export function useMenu(more) {
  const [menu, setMenu] = useState(null);
  const open = useRef((tasks, anchor, name) => {
    setMenu({ ids: tasks.map(({ id }) => id), anchor, name });
  }).current;
  const onClose = () => setMenu((now) => (now === menu ? null : now));
  const view = () =>
    html`<${TaskMenu} key=${menu.name} ...${{ ...menu, ...more, open, onClose }} />`;
  return [open, menu && view()];
}

/** The menu of a card, or with `name` the choices of that field. `find` returns a listed task by its id. */
function TaskMenu({ ids, name, anchor, open, onClose, find = shownTask, places }) {
  const tasks = ids.map(find).filter(Boolean);
  if (!tasks.length) return null;
  if (name) return html`<${Chooser} ...${{ name, tasks, anchor, onClose }} />`;
  const item = (key, words, run, kind = "") => {
    const press = (event) => (hide(event), run());
    const shortcut = key && html`<kbd class="end dim" aria-hidden="true">${key}</kbd>`;
    return button(html`${words}${shortcut}`, press, kind, { "aria-keyshortcuts": key });
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
    ${find === shownTask && item("Ctrl A", "Select the column", () => selectColumn(task))}
    ${item("Del", "Delete", () => drop(tasks), "danger")}
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
