// Changes and deletes tasks, and shows the result before the server has answered; keeps the selection.
import { changeTask, isEqual, patch, remove, serverTime } from "./api.js";
import { ANSWER_MOST, columns, showAt, shownTask, shownTasks } from "./columns.js";
import { valueInWords } from "./forms.js";
import { notify, notifyFault } from "./notices.js";
import { focusCard } from "./place.js";
import { refresh } from "./refresh.js";
import { Store } from "./store.js";
import { count, dayOf, labelOf, later, STATUSES } from "./words.js";
import { isTeam } from "./workspace.js";

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
export function removeAll(pairs, words, done) {
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
