// The four lists of tasks that the board shows, loaded page by page.
import { get, isEqual, serverTime } from "./api.js";
import { onRefresh } from "./refresh.js";
import { address, placeOf, Store } from "./store.js";
import { later, PRIORITIES, STATUSES } from "./words.js";
import { countOf, loadProjects, loadStats, projectOf, session } from "./workspace.js";

export const PAGE = 20; // tasks of a list that are loaded at first
export const ANSWER_MOST = 100; // tasks in one answer
const MORE = 50; // tasks that scrolling loads: more at once would hold up the browser
const LIST_MOST = 1000;
const DONE_DAYS = 14;
const CHUNK = 10; // cards that are drawn together

/** Whether a task is overdue: the server counts by the same rule. */
export const isLate = ({ due_date, status }) =>
  status !== "done" && due_date !== null && due_date < serverTime();

export const isDone = ({ status }) => status === "done";

export const FILTERS = ["q", "person", "priority", "due", "milestone", "label"];
export const isFiltered = () => FILTERS.some((name) => address.value[name]);

/** The values of fields that the filters require; null stands for no value. */
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

/** The time after which tasks must be completed to be shown; undefined for all, as when you search. */
export function doneSince() {
  const { q, milestone, older } = address.value;
  return q || milestone || older ? undefined : later(serverTime(), -DONE_DAYS * 86_400);
}

/** The order of the board; the default for a project is manual order. */
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
    archived: project ? "" : "false", // of all projects, without archived ones
    include: "comment_count",
  };
}

const EMPTY = { tasks: [], chunks: [], total: 0, isExact: true, hasMore: false, isBusy: true };

/** The tasks in chunks, which begin where they began before. A chunk without changes stays the same object. */
function chunksOf(tasks, before) {
  const known = new Map(before.map((chunk) => [chunk[0].id, chunk]));
  const chunks = [];
  for (const task of tasks) {
    const isFull = !chunks.length || chunks.at(-1).length >= CHUNK;
    if (isFull || known.has(task.id)) chunks.push([task]);
    else chunks.at(-1).push(task);
  }
  const isSame = (chunk, old) =>
    old?.length === chunk.length && chunk.every((task, place) => task === old[place]);
  const kept = (chunk) => (isSame(chunk, known.get(chunk[0].id)) ? known.get(chunk[0].id) : chunk);
  return chunks.map(kept);
}

/** Tasks, followed by the `others` that are not among them. */
function joined(tasks, others) {
  const known = new Set(tasks.map((task) => task.id));
  return [...tasks, ...others.filter((task) => !known.has(task.id))];
}

/** The first `most` tasks of a list, page by page. */
export async function getTasks(query, most = LIST_MOST, offset = 0) {
  const limit = Math.min(most - offset, ANSWER_MOST);
  const page = await get("/tasks", { ...query, limit, offset });
  const isLast = !page.pagination.has_more || offset + limit >= most;
  return isLast
    ? page.tasks
    : joined(page.tasks, await getTasks(query, most, page.pagination.next_offset));
}

/** Whether a task passes the filters. Only the server can search. */
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

// The keys of the orders. Tasks without a date come last, and ties are ordered by id.
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
  scrolled = {}; // pixels; kept while another view is shown

  constructor(status, title) {
    super(EMPTY);
    this.status = status;
    this.title = title;
  }

  clear() {
    this.requests += 1;
    this.scrolled = {};
    this.replace(EMPTY);
  }

  /** Load a page after `offset` tasks. Return null if a later request has overtaken this one. */
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
      return old === task || isEqual(old, task) ? old : task;
    };
    const kept = tasks.map(keep); // unchanged tasks are not drawn again
    const hasMore = !total_exact || kept.length < total;
    const chunks = chunksOf(kept, this.value.chunks);
    this.replace({ tasks: kept, chunks, total, isExact: total_exact, hasMore, isBusy: false });
  }

  /** Load the shown tasks again. Return a function that shows them, unless a later request has overtaken this one. */
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

  /** Show changed tasks, and hide `gone` ones. The `lost` ones were not shown; they may have been further down. */
  take(changed, gone = [], lost = []) {
    const { tasks, total, isExact, hasMore } = this.value;
    const moved = new Set([...gone, ...changed.map(({ id }) => id)]);
    const shown = tasks.filter(({ id }) => !moved.has(id));
    const here = changed.filter((task) => task.status === this.status && passes(task));
    for (const task of here) {
      const at = shown.findIndex((other) => isBefore(task, other));
      if (at >= 0 || !hasMore) shown.splice(at < 0 ? shown.length : at, 0, task);
    }
    const known = tasks.filter(({ id }) => moved.has(id)).length;
    const come = here.filter(({ id }) => !hasMore || !lost.includes(id)).length;
    this.show(shown, { total: total + come - known, total_exact: isExact });
  }

  /** Correct the total after changes of tasks that are not shown. Before them, `done` tasks were done. */
  async recount(done) {
    const [place, total] = [loaded, countOf(this.status)];
    const isCut = isDone(this) && doneSince();
    if (!isFiltered() && !isCut) return this.set({ total, isExact: true });
    if (!isFiltered() && total === done) return;
    const { pagination } = await get("/tasks", { ...queryOf(this.status), limit: 1 });
    if (place === loaded) this.set({ total: pagination.total, isExact: pagination.total_exact });
  }

  async loadMore() {
    const { tasks, isBusy } = this.value;
    if (isBusy || this.loads) return;
    this.set({ isBusy: true });
    try {
      const found = await this.page(tasks.length, MORE);
      if (!found || this.value.tasks !== tasks) return;
      this.show(joined(tasks, found.tasks), found.pagination);
      if (!found.tasks.length) this.set({ hasMore: false });
    } finally {
      if (this.value.tasks === tasks) this.set({ isBusy: false });
    }
  }
}

export const columns = Object.entries(STATUSES).map(([status, title]) => new Column(status, title));

let loaded = ""; // the place that the columns show; empty until the board is shown

export const isBoardOf = (place) => place === loaded;

export function forgetBoard() {
  loaded = "";
  for (const column of columns) column.clear();
}

/** Show changed tasks at the places that they will have once the server has answered. */
export function showAt(...tasks) {
  if (!loaded) return;
  for (const column of columns) {
    const isShown = (task) => column.value.tasks.some(({ id }) => id === task.id);
    const some = tasks.filter((task) => task.status === column.status || isShown(task));
    if (some.length) column.take(some);
  }
}

/** Load columns again and show them together, so that no card is ever in two of them. */
async function loadTogether(some) {
  const [place, loads] = [loaded, []];
  for (const column of some) column.loads += 1;
  for (const column of some) {
    loads.push(place === loaded ? column.load() : null);
    if (address.value.q) await Promise.allSettled(loads); // a member may run two at a time
  }
  const results = await Promise.allSettled(loads);
  for (const column of some) column.loads -= 1;
  const before = shownTasks();
  for (const { value: show } of results) show?.();
  showAt(...before.filter(({ id, version }) => version > shownTask(id)?.version)); // changed meanwhile
  const failed = results.find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
}

/** Load the board that the address names, from its beginning. */
export async function loadBoard() {
  const place = placeOf(address.value);
  if (!isBoardOf(place)) for (const column of columns) column.clear();
  loaded = place;
  await loadTogether(columns);
}

export const shownTasks = () => columns.flatMap((column) => column.value.tasks);
export const shownTask = (name) =>
  shownTasks().find(({ id, number }) => id === name || String(number) === name);

/** Add the number of comments, which /changes does not return, to changed tasks and to those with a new comment. */
async function counted(tasks, changes) {
  const isNew = (kind) => (change) => change.kind === kind && change.action === "created";
  const made = changes.filter(isNew("task")).map(({ id }) => id);
  const comments = changes.filter(({ kind }) => kind === "comment");
  const commented = comments.map(({ object }) => object.task_id);
  const isOther = (one) => one && !tasks.some(({ id }) => id === one.id);
  const others = commented.map(shownTask).filter(isOther);
  const withCount = async (task) => {
    const known = shownTask(task.id) ?? (made.includes(task.id) ? { comment_count: 0 } : null);
    const { tasks: shown, hasMore } = columns.find(({ status }) => status === task.status).value;
    const isBelow = hasMore && !shown.some((other) => isBefore(task, other)); // it gets no card
    const isKnown = known ? !commented.includes(task.id) : isBelow || !passes(task);
    const { comment_count } = isKnown ? (known ?? {}) : await get(`/tasks/${task.id}`);
    return { ...task, comment_count };
  };
  return Promise.all([...tasks, ...new Set(others)].map(withCount));
}

/** Load the figures of the only project that has changed, or of all if tasks may have come from another one. */
function loadFigures(tasks, isAny) {
  const [id, other] = new Set(tasks.map(({ project_id }) => project_id));
  const isOne = id && !other && (!loaded || id === address.value.project);
  return isOne && !isAny ? projectOf(id) && loadStats(id) : (id || isAny) && loadProjects();
}

onRefresh(async ({ changes, tasks, has }) => {
  const done = countOf("done");
  const gone = changes.filter(({ kind, object }) => kind === "task" && !object).map(({ id }) => id);
  const figures = loadFigures(tasks, has("project") || gone.length > 0);
  if (!loaded) return figures;
  const isUnloaded = ({ value }) => value.isBusy && !value.tasks.length; // an earlier load failed
  const isSearched = Boolean(address.value.q) && changes.length > 0;
  if (has("project") || isSearched || columns.some(isUnloaded))
    return Promise.all([figures, loadTogether(columns)]);
  const newer = tasks.filter(({ id, version }) => !(shownTask(id)?.version > version));
  const [all] = await Promise.all([counted(newer, changes), figures]);
  if (!all.length && !gone.length) return;
  const lost = [...gone, ...all.map(({ id }) => id)].filter((id) => !shownTask(id));
  for (const column of columns) column.take(all, gone, lost);
  const unsure = columns.filter(({ value }) => lost.length && value.hasMore);
  await Promise.all(unsure.map((column) => column.recount(done)));
});
