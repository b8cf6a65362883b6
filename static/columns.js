// The four lists of tasks that the board shows, loaded page by page.
import { get, isEqual, serverTime } from "./api.js";
import { onRefresh } from "./refresh.js";
import { address, placeOf, Store } from "./store.js";
import { later, PRIORITIES, STATUSES } from "./words.js";
import { projectOf, session } from "./workspace.js";

const PAGE = 50;
export const ANSWER_MOST = 100; // tasks in one answer
const LIST_MOST = 1000;
const DONE_DAYS = 14;
const CHUNK = 50; // cards that are drawn together

/** Whether a task is overdue: the server counts by the same rule. */
export const isLate = ({ due_date, status }) =>
  status !== "done" && due_date !== null && due_date < serverTime();

const isDone = ({ status }) => status === "done";

/** What the filters ask of a task's fields; null means that there is no value. */
export function filteredFields() {
  const { project, person, milestone, priority, label } = address.value;
  const meant = { me: session.value.member?.id, none: null };
  return {
    project_id: project || undefined,
    assignee_id: Object.hasOwn(meant, person) ? meant[person] : person || undefined,
    milestone_id: milestone || undefined,
    priority: priority || undefined,
    labels: label ? [label] : undefined,
  };
}

/** Since when tasks are done that the board shows; where one looks for something, or wants older ones, all. */
export function doneSince() {
  const { q, milestone, older } = address.value;
  return q || milestone || older ? undefined : later(serverTime(), -DONE_DAYS * 86_400);
}

/** What the board is ordered by: that of a project by hand, if nothing else is chosen. */
export const orderOf = ({ project, sort }) => sort || (project ? "rank" : "-updated_at");

function queryOf(status) {
  const { project, person, label, q, due } = address.value;
  const due_before = { overdue: serverTime(), week: later(serverTime(), 7 * 86_400) }[due];
  return {
    ...filteredFields(),
    assignee_id: person || undefined,
    labels: undefined,
    label,
    q: q?.trim(),
    due_before,
    completed_since: status === "done" ? doneSince() : undefined,
    status,
    sort: orderOf(address.value),
    archived: project ? "" : "false", // of all projects only those that are not archived
    include: "comment_count",
  };
}

const EMPTY = { tasks: [], chunks: [], total: 0, isExact: true, hasMore: false, isBusy: true };

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

/** All tasks of a list, of which an answer has some; of a very long one the first `most`. */
export async function getTasks(query, most = LIST_MOST, offset = 0) {
  const page = await get("/tasks", { ...query, limit: ANSWER_MOST, offset });
  const isLast = !page.pagination.has_more || offset >= most - ANSWER_MOST;
  return isLast ? page.tasks : joined(page.tasks, await getTasks(query, most, page.pagination.next_offset));
}

/** Whether a task passes the filters; of a search only the server knows. */
function passes(task) {
  const { due_before, archived, label } = queryOf();
  const { labels, ...wanted } = filteredFields();
  const isLabelled = !label || task.labels.some((one) => one.toLowerCase() === label.toLowerCase());
  const isOfActive = !archived || projectOf(task.project_id)?.status !== "archived";
  const isDue = !due_before || (task.due_date !== null && task.due_date < due_before);
  const isOld = isDone(task) && task.completed_at < doneSince();
  const isWanted = ([name, value]) => value === undefined || task[name] === value;
  const isFound = isOfActive && isDue && !isOld && isLabelled;
  return isFound && Object.entries(wanted).every(isWanted);
}

// What the orders compare; tasks without a date are the last, and ties are ordered by id.
const KEYS = {
  updated_at: (task) => task.updated_at,
  due_date: (task) => task.due_date ?? "9999",
  priority: (task) => Object.keys(PRIORITIES).indexOf(task.priority),
  created_at: (task) => task.id,
  rank: (task) => task.rank,
};

/** Whether the server lists a task before another one. */
function isBefore(one, other) {
  const { sort } = queryOf();
  const key = KEYS[sort.replace("-", "")];
  const [first, second] = sort.startsWith("-") ? [other, one] : [one, other];
  return key(first) === key(second) ? first.id < second.id : key(first) < key(second);
}

class Column extends Store {
  requests = 0;
  loads = 0; // of the beginning, under way

  constructor(status, title) {
    super(EMPTY);
    this.status = status;
    this.title = title;
  }

  clear() {
    this.requests += 1;
    this.replace(EMPTY);
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

  /** Load again what is shown; returns what shows it, unless a later request has overtaken this one. */
  async load() {
    const most = Math.max(PAGE, this.value.tasks.length);
    let [tasks, found] = [[], null];
    for (let at = 0; at !== null && at < most; at = found.pagination.next_offset) {
      found = await this.page(at, Math.min(most - at, ANSWER_MOST));
      if (!found) return null;
      tasks = joined(tasks, found.tasks);
    }
    const request = this.requests;
    return () => request === this.requests && this.show(tasks, found.pagination);
  }

  /** Show changed tasks, of a `gone` one nothing; returns whether only the server knows the total then. */
  take(changed, gone = []) {
    const { tasks, total, isExact, hasMore } = this.value;
    const unblocking = new Set([...gone, ...changed.filter(isDone).map(({ id }) => id)]);
    const isFree = ({ blocked_by }) => !blocked_by.some(({ id }) => unblocking.has(id));
    const blocked = ({ blocked_by }) => blocked_by.filter(({ id }) => !unblocking.has(id));
    const moved = new Set([...gone, ...changed.map(({ id }) => id)]);
    const shown = tasks
      .filter(({ id }) => !moved.has(id))
      .map((task) => (isFree(task) ? task : { ...task, blocked_by: blocked(task) }));
    const here = changed.filter((task) => task.status === this.status && passes(task));
    for (const task of here) {
      const at = shown.findIndex((other) => isBefore(task, other));
      if (at >= 0 || !hasMore) shown.splice(at < 0 ? shown.length : at, 0, task);
    }
    const known = tasks.filter(({ id }) => moved.has(id)).length;
    this.show(shown, { total: total + here.length - known, total_exact: isExact });
    return hasMore && known < moved.size;
  }

  async recount() {
    const place = loaded;
    const { pagination } = await get("/tasks", { ...queryOf(this.status), limit: 1 });
    if (place === loaded) this.set({ total: pagination.total, isExact: pagination.total_exact });
  }

  async loadMore() {
    const { tasks, isBusy } = this.value;
    if (isBusy || this.loads) return;
    this.set({ isBusy: true });
    try {
      const found = await this.page(tasks.length, ANSWER_MOST);
      if (!found || this.value.tasks !== tasks) return;
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

/** Show tasks where they will be when the server has answered. */
export function showAt(...tasks) {
  for (const column of columns) {
    const isShown = (task) => column.value.tasks.some(({ id }) => id === task.id);
    const some = tasks.filter((task) => task.status === column.status || isShown(task));
    if (some.length) column.take(some);
  }
}

/** Load columns again, and show them at once, so that a card that moves is never in two of them. */
async function loadTogether(some) {
  for (const column of some) column.loads += 1;
  const results = await Promise.allSettled(some.map((column) => column.load()));
  for (const column of some) column.loads -= 1;
  const before = columns.flatMap((column) => column.value.tasks);
  for (const { value: show } of results) show?.();
  showAt(...before.filter(({ id, version }) => version > shownTask(id)?.version)); // changed meanwhile
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

/** The number of comments of shown tasks on which somebody commented, or took a comment back. */
async function recounted(activity, changed) {
  const ids = activity.filter(({ entity }) => entity === "comment").map(({ task_id }) => task_id);
  const others = [...new Set(ids)].filter((id) => !changed.some((task) => task.id === id));
  const shown = others.map(shownTask).filter(Boolean);
  const found = await Promise.all(shown.map(({ id }) => get(`/tasks/${id}`)));
  return shown.map((task, at) => ({ ...task, comment_count: found[at].comment_count }));
}

onRefresh(async ({ tasks, activity, isPartial }) => {
  const isReopened = ({ entity, changes }) => entity === "task" && changes?.status?.[0] === "done";
  const isWide = (entry) => entry.entity === "project" || isReopened(entry); // it may block others again
  const isUnloaded = ({ value }) => value.isBusy && !value.tasks.length; // it could not be loaded before
  const isSearched = Boolean(address.value.q) && (tasks.length > 0 || activity.length > 0);
  const isAll = isPartial || isSearched || activity.some(isWide) || columns.some(isUnloaded);
  if (isAll) return loadTogether(columns);
  const isGone = ({ entity, action }) => entity === "task" && action === "deleted";
  const gone = activity.filter(isGone).map(({ entity_id }) => entity_id);
  const isOlder = ({ id, version }) => shownTask(id)?.version > version;
  const changed = tasks.filter((task) => !isOlder(task) && !gone.includes(task.id));
  const all = [
    ...changed,
    ...(await recounted(activity, [...changed, ...gone.map((id) => ({ id }))])),
  ];
  if (!all.length && !gone.length) return;
  const unsure = columns.filter((column) => column.take(all, gone));
  await Promise.all(unsure.map((column) => column.recount()));
});
