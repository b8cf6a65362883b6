// The board: a column of cards for each status. It fetches a page of each, and more on demand.

import { address, link } from "./address.js";
import { get, serverTime } from "./api.js";
import { button, day, dim, find, make, notify, plural, time } from "./elements.js";
import { onRefresh } from "./refresh.js";
import { memberName, PRIORITIES, projectName, STATUSES, workspace } from "./workspace.js";

const PAGE = 20;
const DAY = 86_400_000; // ms
const board = find("board");

/** The query of GET /tasks for what the address names. */
function queryOf(status) {
  const { project, mine, q, priority, due, sort = "-updated_at" } = address();
  const query = { status, sort, project_id: project, assignee_id: mine && "me", q: q?.trim(), priority };
  const days = { overdue: 0, week: 7 }[due];
  if (days !== undefined) query.due_before = new Date(Date.parse(serverTime()) + days * DAY).toISOString();
  return { ...query, include: "comment_count" };
}

class Column {
  tasks = [];
  requests = 0;

  constructor(status, title) {
    this.status = status;
    this.count = make("span", { className: "count" });
    this.heading = make("h2", { id: `column-${status}`, tabIndex: -1 }, title, " ", this.count);
    this.list = make("ul");
    this.more = button(`Show ${PAGE} more`, () => this.showMore(), { hidden: true, ariaLabel: `Show ${PAGE} more: ${title}` });
    this.element = make("section", { className: "column", data: { status } }, this.heading, this.list, this.more);
    this.element.setAttribute("aria-labelledby", this.heading.id);
  }

  /** Load the first `count` tasks, of which `known` are here; an answer that a later request overtook is dropped. */
  async load(count = Math.max(PAGE, this.tasks.length), known = []) {
    const request = ++this.requests;
    const found = new Map(known.map((task) => [task.id, task]));
    let pagination = { next_offset: known.length };
    do {
      const offset = pagination.next_offset;
      const page = await get("/tasks", { ...queryOf(this.status), offset, limit: Math.min(count - offset, 100) });
      if (request !== this.requests) return;
      for (const task of page.tasks) found.set(task.id, task);
      pagination = page.pagination;
    } while (pagination.has_more && pagination.next_offset < count);
    this.tasks = [...found.values()];
    this.show(pagination);
  }

  showMore() {
    this.load(this.tasks.length + PAGE, this.tasks).catch((error) => notify(error, () => this.showMore()));
  }

  show({ total, total_exact, has_more }) {
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    this.list.replaceChildren(...this.tasks.map(makeCard));
    const all = String(total).replace(/\B(?=(\d{3})+$)/g, "\u202f") + (total_exact ? "" : "+");
    this.count.textContent = has_more ? `${this.tasks.length} of ${all}` : all;
    this.more.hidden = !has_more;
    if (focused) focusCard(focused.closest(".card").dataset.task, focused.dataset.action, this.status);
  }
}

const columns = new Map(Object.entries(STATUSES).map(([status, title]) => [status, new Column(status, title)]));
board.append(...Array.from(columns.values(), (column) => column.element));

/** Show the board of what the address names, from its beginning. */
export async function showBoard() {
  board.ariaBusy = "true";
  await Promise.all(Array.from(columns.values(), (column) => column.load(PAGE))).catch((error) => notify(error, showBoard));
  board.ariaBusy = "false";
}

export const findTask = (id) => [...columns.values()].flatMap((column) => column.tasks).find((task) => task.id === id);

/** Move the focus to a card, or to the heading of its column where it is not among those that are shown. */
export function focusCard(id, action, status) {
  const card = board.querySelector(`[data-task="${id}"] [data-action="${action}"]`);
  (card ?? columns.get(status).heading).focus();
}

function makeCard(task) {
  const open = { className: "title", href: link({ task: task.id }), draggable: false, data: { action: "open" } };
  const move = { className: "quiet", ariaLabel: `Move “${task.title}”`, data: { action: "move" } };
  const facts = make(
    "p",
    { className: "facts" },
    make("span", { className: `priority ${task.priority}` }, PRIORITIES[task.priority]),
    makeDue(task),
    task.comment_count && make("span", {}, plural(task.comment_count, "comment")),
  );
  const assignee = make("span", {}, task.assignee_id ? memberName(task.assignee_id) : "Nobody");
  const foot = make("p", { className: "foot" }, assignee, workspace.isTeam && button("Move", null, move));
  const project = !address().project && dim(projectName(task.project_id));
  const properties = { className: "card", draggable: workspace.isTeam, data: { task: task.id } };
  return make("li", properties, make("a", open, task.title), project, facts, foot);
}

/** When it is due, and in words if that is over; the server counts overdue tasks by the same rule. */
function makeDue({ due_date, status }) {
  if (due_date === null) return null;
  const isLate = status !== "done" && due_date < serverTime();
  return make("span", { className: isLate ? "late" : "" }, isLate ? "Overdue: " : "Due ", time(due_date, day(due_date)));
}

onRefresh(({ tasks, activity, isPartial, concerns }) => {
  const isAnyGone = activity.some((entry) => entry.action === "deleted" && entry.entity !== "comment");
  const changed = new Set(tasks.map((task) => task.status));
  const isStale = (column) => changed.has(column.status) || column.tasks.some((task) => concerns(task.id));
  const stale = [...columns.values()].filter((column) => isPartial || isAnyGone || isStale(column));
  return Promise.all(stale.map((column) => column.load()));
});
