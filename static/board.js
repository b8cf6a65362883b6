// The board: a column of cards for each status. It fetches a page of each, and more on demand.
import { get, patch, serverTime } from "./api.js";
import { address, button, day, find, later, link, make, notify, time } from "./elements.js";
import { onRefresh, refresh } from "./refresh.js";
import { memberName, PRIORITIES, projectName, STATUSES, workspace } from "./workspace.js";
const PAGE = 20;
const board = find("board");
let dragged = null; // the task whose card is being dragged
/** The query of GET /tasks for what the address names. */
function queryOf(status) {
  const { project, mine, q, priority, due, sort = "-updated_at" } = address();
  const due_before = { overdue: serverTime(), week: later(serverTime(), 7 * 86_400) }[due];
  const filters = { project_id: project, assignee_id: mine && "me", q: q?.trim(), priority, due_before };
  const archived = project ? "" : "false"; // of all projects only those that are not archived
  return { ...filters, status, sort, archived, include: "comment_count" };
}

class Column {
  tasks = [];
  cards = new Map(); // by the task as JSON: what has not changed is not made again
  requests = 0;

  constructor(status, title) {
    this.status = status;
    this.count = make("span", { className: "count" });
    this.list = make("ul");
    const heading = make("h2", { id: `column-${status}`, tabIndex: -1 }, title, " ", this.count);
    const more = () => this.load(this.tasks.length + PAGE, this.tasks).catch((error) => notify(error, more));
    this.more = button(`Show ${PAGE} more`, more, { ariaLabel: `Show ${PAGE} more: ${title}` });
    this.element = make("section", { className: "column", data: { status } }, heading, this.list, this.more);
    this.element.setAttribute("aria-labelledby", heading.id);
  }
  /** Show nothing, and be busy, until the tasks that the address asks for are here. */
  clear() {
    this.show([], { total: "", total_exact: true, has_more: false });
    this.element.ariaBusy = "true";
  }
  /** Load the first `count` tasks, of which `known` are here. An answer that a later request overtook is dropped. */
  async load(count = Math.max(PAGE, this.tasks.length), known = []) {
    const request = ++this.requests;
    const found = new Map(known.map((task) => [task.id, task]));
    let page = { pagination: { next_offset: known.length } };
    do {
      const offset = page.pagination.next_offset;
      page = await get("/tasks", { ...queryOf(this.status), offset, limit: Math.min(count - offset, 100) });
      if (request !== this.requests) return;
      for (const task of page.tasks) found.set(task.id, task);
    } while (page.pagination.has_more && page.pagination.next_offset < count);
    this.show([...found.values()], page.pagination);
  }

  show(tasks, { total, total_exact, has_more }) {
    this.tasks = tasks;
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    const cardOf = (task, key = JSON.stringify([task, isLate(task)])) => [key, this.cards.get(key) ?? makeCard(task)];
    this.cards = new Map(tasks.map((task) => cardOf(task)));
    const [cards, shown] = [[...this.cards.values()], this.list.children];
    // A card that is put into its place again while the button of the mouse is down takes no click.
    if (shown[cards.length] || cards.some((card, place) => card !== shown[place])) this.list.replaceChildren(...cards);
    const all = String(total).replace(/\B(?=(\d{3})+$)/g, "\u202f") + (total_exact ? "" : "+");
    this.count.textContent = has_more ? `${tasks.length} of ${all}` : all;
    this.more.hidden = !has_more;
    this.element.ariaBusy = "false";
    if (focused?.isConnected) focused.focus();
    else if (focused) focusCard(focused.closest(".card").dataset.task, this.status);
  }
}

const columns = Object.entries(STATUSES).map(([status, title]) => new Column(status, title));
board.append(...columns.map((column) => column.element));
let hasFailed = false; // whether columns are still busy because they could not be loaded
/** Show the board of what the address names, from its beginning. */
export async function showBoard() {
  hasFailed = false;
  for (const column of columns) column.clear();
  await Promise.all(columns.map((column) => column.load())).catch((error) => {
    hasFailed = error.isTemporary;
    notify(error, showBoard);
  });
}
/** Move the focus to a card, or to the heading of its column where it is not among those that are shown. */
export function focusCard(id, status) {
  const card = board.querySelector(`[data-task="${id}"] .title`);
  (card ?? find(`column-${status}`)).focus();
}
/** Whether a task is overdue: the server counts by the same rule. */
const isLate = ({ due_date, status }) => status !== "done" && due_date !== null && due_date < serverTime();

function makeCard(task) {
  const { id, title, status, priority, due_date, comment_count } = task;
  const due = due_date && [isLate(task) ? "Overdue: " : "Due ", time(due_date, day(due_date))];
  const comments = comment_count && `${comment_count} ${comment_count === 1 ? "comment" : "comments"}`;
  const choices = Object.entries(STATUSES).map(([to, text]) => to !== status && button(text, () => move(task, to)));
  const assignee = task.assignee_id ? memberName(task.assignee_id) : "Nobody";
  const summary = make("summary", { ariaLabel: `Move “${title}”` }, "Move");
  const fact = (text, className = "") => text && make("span", { className }, text);
  return make(
    "li",
    { className: "card", draggable: workspace.isTeam, data: { task: id } },
    !address().project && make("p", { className: "dim" }, projectName(task.project_id)),
    make("a", { className: "title", href: link({ task: id }), draggable: false }, title),
    make("p", { className: "facts" }, fact(PRIORITIES[priority], priority), fact(due, isLate(task) ? "late" : "")),
    make("p", { className: "facts" }, fact(assignee), fact(comments)),
    workspace.isTeam && make("details", { name: "move" }, summary, choices),
  );
}
/** Move a task, unless somebody else has changed it. The focus goes with it, unless the user has gone on meanwhile. */
async function move(task, status) {
  const error = await patch(`/tasks/${task.id}`, { status }, task.version).then(() => null, (error) => error);
  const failed = `“${task.title}” was not moved. `;
  if (error?.status === 412) notify(`${failed}Someone has changed it meanwhile; you see now how it is.`);
  else if (error) notify(error, () => move(task, status), failed);
  else notify(`Moved “${task.title}” to ${STATUSES[status]}.`);
  if (error?.isTemporary) return;
  await refresh();
  if (document.activeElement.matches(`body, h2, [data-task="${task.id}"] *`)) focusCard(task.id, status);
}
board.ondragstart = (event) => {
  dragged = columns.flatMap((column) => column.tasks).find((task) => task.id === event.target.dataset?.task);
  if (!dragged) return;
  event.dataTransfer.setData("text/plain", dragged.title); // Firefox drags nothing without data
  board.classList.add("dragging");
};
board.ondragover = (event) => {
  const over = dragged && event.target.closest(".column");
  if (over) event.preventDefault();
  for (const { element } of columns) element.classList.toggle("over", element === over);
};
board.ondrop = (event) => {
  event.preventDefault();
  const { status } = event.target.closest(".column").dataset;
  if (status !== dragged.status) move(dragged, status);
};
board.ondragend = (event) => {
  dragged = null;
  board.ondragover(event); // no column is marked any longer
  board.classList.remove("dragging");
};

onRefresh(({ tasks, activity, isPartial, concerns }) => {
  const takesAway = ({ action, entity }) => entity === "project" || (action === "deleted" && entity !== "comment");
  const isAnyGone = activity.some(takesAway);
  const isChanged = ({ status, tasks: shown }) =>
    isPartial || isAnyGone || tasks.some((task) => task.status === status) || shown.some((task) => concerns(task.id));
  const isStale = (column) => (hasFailed && column.element.ariaBusy === "true") || isChanged(column);
  return Promise.all(columns.filter(isStale).map((column) => column.load()));
});
