// Asks every few seconds what has changed, while the page is seen: two small requests as long as nothing has.
import { get, hasKey, serverTime } from "./api.js";
import { find, later, moment, say } from "./elements.js";
const SECONDS = 5;
const OVERLAP = 10; // seconds; a change that was being written when it was asked for is found the next time
const takers = [];
let since = ""; // the server's time from which on changes are asked for
let seen = new Set(); // what an earlier answer had already
let timer = 0;
let last = Promise.resolve();
let said = ""; // the fault that is shown, which is not announced again
/** After each look call `take` with what has changed, if anything: `{tasks, activity, isPartial, concerns(id)}`. */
export const onRefresh = (take) => takers.push(take);
/** Take over what has changed, never two times at once. */
export const refresh = () => (last = last.then(look, look));
/** Refresh from now on what was loaded after this time of the server. */
export const refreshFrom = (time) => refresh((since = later(time, -OVERLAP)));

async function look() {
  clearTimeout(timer);
  if (!hasKey() || !since || document.visibilityState === "hidden") return;
  const isDragging = find("board").classList.contains("dragging"); // which a new card would end
  const error = isDragging ? null : await takeChanges().catch((error) => error);
  const fault = hasKey() && error ? error.message : "";
  const before = `What you see is from ${moment(serverTime())}. `;
  if (fault !== said) say(find("connection"), fault && error, refresh, before);
  said = fault;
  timer = setTimeout(refresh, Math.max(SECONDS, error?.seconds ?? 0) * 1000);
}

async function takeChanges() {
  const asked = serverTime();
  const query = { updated_since: since, sort: "-updated_at", limit: 100 };
  const done = await get("/activity", { since, limit: 100 });
  const listed = await get("/tasks", query); // last, so that it has every task that the activity names as changed
  const versionOf = (task) => `${task.id} ${task.version}`;
  const tasks = listed.tasks.filter((task) => !seen.has(versionOf(task)));
  const activity = done.activity.filter((entry) => !seen.has(entry.id));
  const isPartial = listed.pagination.has_more || done.pagination.has_more;
  const ids = new Set([...tasks.map((task) => task.id), ...activity.map((entry) => entry.task_id)]);
  const changes = { tasks, activity, isPartial, concerns: (id) => isPartial || ids.has(id) };
  for (const take of takers) await take(changes); // first who takes the names
  seen = new Set([...listed.tasks.map(versionOf), ...done.activity.map((entry) => entry.id)]);
  since = later(asked, -OVERLAP);
}

for (const event of ["online", "offline", "visibilitychange"]) addEventListener(event, refresh);
