// The four lists of tasks that the board shows, loaded page by page.
import { get, isEqual, serverTime } from "./api.js";
import { onRefresh } from "./refresh.js";
import { address, placeOf, Store } from "./store.js";
import { later, STATUSES } from "./words.js";

const PAGE = 50;
const MOST = 100; // tasks in one answer
const CHUNK = 50; // cards that are drawn together

/** Whether a task is overdue: the server counts by the same rule. */
export const isLate = ({ due_date, status }) =>
  status !== "done" && due_date !== null && due_date < serverTime();

function queryOf(status) {
  const { project, person, milestone, q, priority, due, sort = "-updated_at" } = address.value;
  const due_before = { overdue: serverTime(), week: later(serverTime(), 7 * 86_400) }[due];
  return {
    project_id: project,
    assignee_id: person,
    milestone_id: milestone,
    q: q?.trim(),
    priority,
    due_before,
    status,
    sort,
    archived: project ? "" : "false", // of all projects only those that are not archived
    include: "comment_count",
  };
}

const NOTHING = { tasks: [], chunks: [], total: 0, isExact: true, hasMore: false, isBusy: true };

/** The tasks in chunks; a chunk in which nothing has changed is the one of before. */
function chunksOf(tasks, before) {
  const count = Math.ceil(tasks.length / CHUNK);
  const chunkAt = (at) => tasks.slice(at * CHUNK, (at + 1) * CHUNK);
  const isSame = (chunk, old) =>
    old?.length === chunk.length && chunk.every((task, place) => task === old[place]);
  const kept = (chunk, at) => (isSame(chunk, before[at]) ? before[at] : chunk);
  return Array.from({ length: count }, (_, at) => kept(chunkAt(at), at));
}

/** Tasks, and those of `others` that are not among them. */
function joined(tasks, others) {
  const known = new Set(tasks.map((task) => task.id));
  return [...tasks, ...others.filter((task) => !known.has(task.id))];
}

class Column extends Store {
  requests = 0;
  loads = 0; // of the beginning, under way

  constructor(status, title) {
    super(NOTHING);
    this.status = status;
    this.title = title;
  }

  clear() {
    this.requests += 1;
    this.replace(NOTHING);
  }

  /** Load a page, after `offset` tasks; null where a later request has overtaken this one. */
  async page(offset, limit) {
    this.requests += 1;
    const request = this.requests;
    const found = await get("/tasks", { ...queryOf(this.status), offset, limit });
    return request === this.requests ? found : null;
  }

  show(tasks, { total, total_exact }) {
    const known = new Map(this.value.tasks.map((task) => [task.id, task]));
    const keep = (task) => {
      const old = known.get(task.id);
      return isEqual(old, task) ? old : task;
    };
    const kept = tasks.map(keep); // what has not changed is not drawn again
    const hasMore = !total_exact || kept.length < total;
    const chunks = chunksOf(kept, this.value.chunks);
    this.replace({ tasks: kept, chunks, total, isExact: total_exact, hasMore, isBusy: false });
  }

  /**
   * Load the beginning again; returns what shows it, unless a later request has overtaken this one.
   * What was shown below stays, without what `isGone`, or is loaded too, if `isAll`.
   */
  async load(isGone = () => false, isAll = false) {
    const shown = this.value.tasks;
    const limit = Math.min(Math.max(PAGE, shown.length), MOST);
    let found = await this.page(0, limit);
    let tasks = found?.tasks;
    for (let at = limit; isAll && found?.pagination.has_more && at < shown.length; at += MOST) {
      found = await this.page(at, MOST);
      tasks = joined(tasks, found?.tasks ?? []);
    }
    if (!found) return null;
    const before = new Set(shown.slice(0, limit).map((task) => task.id));
    const added = tasks.filter((task) => !before.has(task.id)).length; // which push as many down
    const below = found.pagination.has_more && !isAll ? shown.slice(limit - added) : [];
    const others = below.filter((task) => !isGone(task));
    const request = this.requests;
    return () => request === this.requests && this.show(joined(tasks, others), found.pagination);
  }

  async loadMore() {
    const { tasks, isBusy } = this.value;
    if (isBusy || this.loads) return;
    this.set({ isBusy: true });
    try {
      const found = await this.page(tasks.length, MOST);
      if (!found) return;
      this.show(joined(tasks, found.tasks), found.pagination);
      if (!found.tasks.length) this.set({ hasMore: false });
    } finally {
      if (this.value.tasks === tasks) this.set({ isBusy: false });
    }
  }
}

export const columns = Object.entries(STATUSES).map(([status, title]) => new Column(status, title));

let loaded = ""; // the place of which the columns are

export const isBoardOf = (place) => place === loaded;

/** Show a task where it will be when the server has answered. */
export function showAt(task) {
  for (const column of columns) {
    const { tasks, total, isExact } = column.value;
    const others = tasks.filter(({ id }) => id !== task.id);
    const isHere = column.status === task.status;
    const shown = isHere ? [task, ...others] : others;
    const change = Number(isHere) - Number(others.length < tasks.length);
    if (isHere || change) column.show(shown, { total: total + change, total_exact: isExact });
  }
}

/** Load columns again, and show them at once, so that a card that moves is never in two of them. */
async function loadTogether(some, ...how) {
  for (const column of some) column.loads += 1;
  const results = await Promise.allSettled(some.map((column) => column.load(...how)));
  for (const column of some) column.loads -= 1;
  for (const { value: show } of results) show?.();
  const failed = results.find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
}

/** Load the board of what the address names, from its beginning. */
export async function loadBoard() {
  loaded = placeOf(address.value);
  for (const column of columns) column.clear();
  await loadTogether(columns);
}

export const shownTask = (name) =>
  columns
    .flatMap((column) => column.value.tasks)
    .find(({ id, number }) => id === name || String(number) === name);

onRefresh(({ tasks, activity, isPartial, concerns }) => {
  const takesAway = ({ action, entity }) =>
    entity === "project" || (action === "deleted" && entity !== "comment");
  const isAnyGone = activity.some(takesAway);
  const isStale = ({ status, value }) =>
    isPartial ||
    isAnyGone ||
    (value.isBusy && !value.tasks.length) || // it could not be loaded before
    tasks.some((task) => task.status === status) ||
    value.tasks.some((task) => concerns(task.id));
  const isProjectChanged = activity.some(({ entity }) => entity === "project");
  const isGone = (task) => isProjectChanged || concerns(task.id);
  return loadTogether(columns.filter(isStale), isGone, isPartial);
});
