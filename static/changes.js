// Changes and deletes tasks, and shows the result before the server has answered; the selection; what you can do with
// listed or selected tasks by keys, a menu or a bar.
import { changeTask, isEqual, patch, remove, serverTime } from "./api.js";
import { ANSWER_MOST, columns, showAt, shownTask, shownTasks } from "./columns.js";
import { choicesOf, valueInWords } from "./forms.js";
import { notify, notifyFault } from "./notices.js";
import { button, Menu } from "./parts.js";
import { DayMenu, labelOption, Picker } from "./picker.js";
import { focusCard, letterOf } from "./place.js";
import { html, useRef, useState } from "./preact.js";
import { refresh } from "./refresh.js";
import { go, Store, useStore } from "./store.js";
import { count, dayOf, labelOf, later, STATUSES } from "./words.js";
import { isTeam, session, useMilestones, workspace } from "./workspace.js";

export const OPERATION = "update_task_details";

/** How the choices of fields differ from the schema. */
export const CHOICES = { assignee_id: { none: "Nobody" }, priority: { none: false } };

/** A message for screen readers about something that others see. */
export const announced = new Store("");

/** The ids of objects that were deleted here, whether the request was sent or not. */
export const deleted = new Store([]);
export const isKept = ({ id }) => !deleted.value.includes(id);
export const showAgain = (ids) =>
  deleted.replace(deleted.value.filter((one) => !ids.includes(one)));

export const selection = new Store([]); // ids, the latest last

export function selectedTasks() {
  const shown = new Map(shownTasks().map((task) => [task.id, task]));
  return selection.value.map((id) => shown.get(id)).filter((task) => task && isKept(task));
}

function select(ids) {
  selection.replace(ids);
  announced.replace(`${selectedTasks().length} selected`);
}

/** Select all loaded tasks of the column of this one. */
export function selectColumn({ status }) {
  const { tasks } = columns.find((column) => column.status === status).value;
  select(tasks.filter(isKept).map(({ id }) => id));
}

export const clearSelection = () => selection.value.length && select([]);

export function toggleSelected({ id }) {
  const others = selection.value.filter((one) => one !== id);
  select(others.length < selection.value.length ? others : [...others, id]);
}

/** Select all from the last selected task to this one. */
export function selectUpTo(id, all) {
  const [to, from] = [id, selection.value.at(-1) ?? id].map((one) => all.indexOf(one));
  const between = all.slice(Math.min(Math.max(from, 0), to), Math.max(from, to) + 1);
  const others = [...selection.value, ...between].filter((one) => one !== id);
  select([...new Set([...others, id])]);
}

/** The tasks that a change of this one concerns: all selected ones if it is selected. */
export const withSelected = (task) =>
  selection.value.includes(task.id) ? selectedTasks() : [task];

const tasksInWords = (tasks) =>
  tasks.length > 1 ? count(tasks.length, "task") : `“${tasks[0].title}”`;

function doneInWords(tasks, changes) {
  if (changes.status) return `Moved ${tasksInWords(tasks)} to ${STATUSES[changes.status]}.`;
  const [[name, value] = []] = Object.entries(changes);
  if (!name) return `Moved ${tasksInWords(tasks)}.`;
  return `Changed ${tasksInWords(tasks)}. ${labelOf(name)}: ${valueInWords(OPERATION, name, value)}.`;
}

/** A task as the server will return it; its rank is only a guess that sorts correctly. */
function expected(task, { after, before, ...fields }) {
  const rank = after ? `${shownTask(String(after))?.rank}!` : before ? "" : task.rank;
  const day = fields.due_date;
  const isToday = day === dayOf(serverTime()); // noon may be over
  const noon = isToday ? later(serverTime(), 60) : `${day}T12:00:00.000Z`;
  if (day?.length === 10) fields.due_date = noon;
  return { ...task, ...fields, rank, version: task.version + 1, updated_at: serverTime() };
}

/** The change that puts a task back to its place in its column, once the `moved` tasks above it are back. */
function placeAmong({ id, status }, moved) {
  const { tasks } = columns.find((column) => column.status === status).value;
  const at = tasks.findIndex((task) => task.id === id);
  if (at < 0) return {}; // it is not loaded
  if (at > 0) return { after: tasks[at - 1].number };
  const below = tasks.find((task) => !moved.some((one) => one.id === task.id));
  return below ? { before: below.number } : {};
}

let turn = Promise.resolve(); // changes are sent in their order

async function sendTogether(pairs) {
  const changed = [];
  const groupOf = ([, changes], at) => `${JSON.stringify(changes)} ${Math.floor(at / ANSWER_MOST)}`;
  for (const group of Map.groupBy(pairs, groupOf).values()) {
    const [[task, changes]] = group;
    const numbers = group.map(([{ number }]) => number);
    const versions = Object.fromEntries(group.map(([{ number, version }]) => [number, version]));
    const all = { tasks: numbers, changes, versions };
    if (numbers.length === 1) changed.push(await changeTask(task, changes));
    else changed.push(...(await patch("/tasks/batch", all)).tasks);
  }
  return new Map(changed.map((task) => [task.id, task]));
}

/** Make changes, given as `[task, changes]` pairs, unless somebody else has changed the same. A focused card keeps the focus. */
export async function changeTasks(pairs, isUndo = false) {
  if (!pairs.length) return;
  const tasks = pairs.map(([task]) => task);
  const [[first, changes]] = pairs;
  const shown = pairs.map((pair) => expected(...pair));
  const isPlaced = pairs.some(([, one]) => "after" in one || "before" in one);
  const places = new Map(tasks.map((task) => [task.id, isPlaced ? placeAmong(task, tasks) : {}]));
  const focused = document.activeElement.closest("[data-task]")?.dataset.task;
  showAt(...shown);
  const moved = shown.find(({ id }) => id === focused);
  if (moved) queueMicrotask(() => focusCard(moved.id, moved.status)); // after it is drawn
  try {
    const run = () => sendTogether(pairs);
    turn = turn.then(run, run);
    const answers = await turn;
    const isLatest = ({ id, version }) => shownTask(id)?.version === version;
    showAt(...shown.filter(isLatest).map((task) => ({ ...task, ...answers.get(task.id) })));
    const { after, before, ...fields } = changes;
    const names = Object.keys(fields);
    const valuesOf = (task) => Object.fromEntries(names.map((name) => [name, task[name]]));
    /** The task as it is shown, unless somebody has changed the same fields since. */
    const since = (task) => {
      const now = shownTask(task.id);
      return now && isEqual(valuesOf(now), valuesOf(task)) ? now : task;
    };
    const earlier = (task) => ({ ...valuesOf(task), ...places.get(task.id) });
    const undone = (task) => [since(answers.get(task.id)), earlier(task)];
    const undo = { words: "Undo", task: "", run: () => changeTasks(tasks.map(undone), true) };
    if (isUndo)
      notify(`Undone: ${tasksInWords(tasks)}.`); // tasks may have had different values
    else notify(doneInWords(tasks, fields), undo);
  } catch (error) {
    showAt(...tasks);
    const isMove = ["status", "after", "before"].some((name) => name in changes);
    const [verb, how] = isMove ? ["moved", "where"] : ["changed", "how"];
    const refused = `${tasksInWords(tasks)} ${tasks.length > 1 ? "were" : "was"} not ${verb}. `;
    const which = tasks.length > 1 ? /#\d+/.exec(error.message)?.[0] : "it";
    const why = `Someone has ${verb} ${which} meanwhile; you now see ${how} it is.`;
    if (error.status === 412) notify(refused + why);
    else notifyFault(error, () => changeTasks(pairs, isUndo), refused);
    if (error.isTemporary) return;
  }
  await refresh();
  if (tasks.length === 1 && document.activeElement === document.body) focusCard(first.id);
}

/** Put a task at this place among `others`, the shown tasks of a column. */
export function put(task, status, others, at) {
  announced.replace(`“${task.title}” is number ${at + 1} of ${others.length + 1}`);
  return putAll([task], status, others, at);
}

/** Put tasks there one below the other. */
export function putAll(tasks, status, others, at) {
  const [above, top] = [others[at - 1], others[0]];
  const place = above ? { after: above.number } : top && { before: top.number };
  const moved = tasks.some((task) => task.status !== status) && { status };
  const placeAt = (number) => (number ? { after: tasks[number - 1].number } : place);
  return changeTasks(tasks.map((task, number) => [task, { ...moved, ...placeAt(number) }]));
}

/**
 * Delete objects, given as `[id, path]` pairs, unless you undo it. Call `done` after each. `words` say it: a verb, such as
 * "Deleted", what, and a further sentence.
 */
function removeAll(pairs, words, done) {
  const [verb, what, more = ""] = words;
  const ids = pairs.map(([id]) => id);
  const send = async () => {
    const left = pairs.filter(([id]) => !isKept({ id }));
    for (const [at, [, path]] of left.entries()) {
      try {
        await remove(path);
        done?.();
      } catch (error) {
        if (error.status === 404) continue; // somebody else was faster
        const others = left.slice(at);
        showAgain(others.map(([id]) => id));
        const rest = pairs.length > 1 ? count(others.length, "task") : what;
        const again = () => removeAll(others, [verb, rest, more], done);
        notifyFault(error, again, `Not ${verb.toLowerCase()}: ${rest}. `);
        break;
      }
    }
    if (left.length) await refresh();
  };
  deleted.replace([...deleted.value, ...ids]);
  const undo = { words: "Undo", run: () => showAgain(ids), link: verb === "Deleted" && isTeam() };
  notify(`${verb} ${what}. ${more}`.trim(), undo, send);
}

export const removeLater = (id, path, words, done) => removeAll([[id, path]], words, done);

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

function assignMe(tasks) {
  const assignee_id = session.value.member.id;
  const others = tasks.filter((task) => task.assignee_id !== assignee_id);
  changeTasks(others.map((task) => [task, { assignee_id }]));
}

/** Delete tasks. The request is sent when you can no longer undo it. */
function drop(tasks) {
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
