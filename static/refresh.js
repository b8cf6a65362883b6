// Asks every few seconds what has changed, while the page is seen: two small requests if nothing has.
import { get, serverTime } from "./api.js";
import { dismiss, notifyFault } from "./notices.js";
import { useLayoutEffect, useRef } from "./preact.js";
import { later, momentInWords } from "./words.js";

const EVERY = 5;
const WAIT = 25; // that the server may keep an answer back until something changes
const PAUSE = 30; // after it had no place to wait
const OVERLAP = 10; // seconds; a change that was not committed yet is found by the next call
const takers = new Set();
let since = ""; // the server's time from which on changes are asked for; empty while nobody is signed in
let seen = new Set(); // what an earlier answer had already
let timer = 0;
let last = Promise.resolve();
let waiting = null; // the request that waits for a change, or the pause after it was refused
let isPaused = false;
let notice = null; // that what is shown is not up to date

/**
 * Let a component take what has changed: `{tasks, activity, isPartial, concerns(id)}`, where `isPartial`
 * says that there was more than one answer holds.
 */
export function useRefresh(take) {
  const current = useRef(take);
  current.current = take;
  useLayoutEffect(() => onRefresh((changes) => current.current(changes)), []);
}

/** Call `take` with what has changed; returns a function that ends this. */
export function onRefresh(take) {
  takers.add(take);
  return () => takers.delete(take);
}

/** Take over what has changed, never two times at once. */
export function refresh() {
  last = last.then(look, look);
  return last;
}

/** Refresh from now on what was loaded after this time of the server. */
export function startRefresh(time) {
  since = later(time, -OVERLAP);
  return refresh();
}

export function stopRefresh() {
  since = "";
  clearTimeout(timer);
}

/** While a card is dragged nothing is drawn again, which would end that. */
export function pauseRefresh(value) {
  isPaused = value;
}

async function look() {
  clearTimeout(timer);
  if (!since || document.visibilityState === "hidden") return;
  const error = isPaused ? null : await takeChanges().catch((failure) => failure);
  if (!since) return; // signed out meanwhile
  if (notice && !error) dismiss(notice);
  const from = `What you see is from ${momentInWords(serverTime())}. `;
  notice = error ? (notice ?? notifyFault(error, refresh, from)) : null;
  if (!error) waiting ??= awaitChange().finally(() => (waiting = null));
  timer = setTimeout(refresh, Math.max(EVERY, error?.seconds ?? 0) * 1000);
}

/** Refresh at once when a task changes, if this page has the focus and the server a place to wait. */
async function awaitChange() {
  if (!document.hasFocus()) return;
  const after = `${serverTime()}_${"0".repeat(8)}-0000-0000-0000-${"0".repeat(12)}`;
  const query = { sort: "updated_at", after, limit: 1, wait: WAIT };
  const refused = ({ status }) => (status === 410 ? location.reload() : null); // other projects are seen now
  const found = await get("/tasks", query).catch(refused); // or cut off: the timer goes on
  if (found?.tasks.length) refresh();
  if (!found) await new Promise((resume) => setTimeout(resume, PAUSE * 1000));
}

async function takeChanges() {
  const asked = serverTime();
  const order = { sort: "-updated_at", include: "comment_count" };
  const recent = { updated_since: since, limit: 100, ...order };
  const questions = [get("/activity", { since, limit: 100 }), get("/tasks", recent)];
  const [done, listed] = await Promise.all(questions);
  const versionOf = (task) => `${task.id} ${task.version}`;
  const tasks = listed.tasks.filter((task) => !seen.has(versionOf(task)));
  const activity = done.activity.filter((entry) => !seen.has(entry.id));
  const isPartial = listed.pagination.has_more || done.pagination.has_more;
  const ids = [...tasks.map((task) => task.id), ...activity.map((entry) => entry.task_id)];
  const changes = { tasks, activity, isPartial, concerns: (id) => isPartial || ids.includes(id) };
  await Promise.all([...takers].map((take) => take(changes)));
  seen = new Set([...listed.tasks.map(versionOf), ...done.activity.map((entry) => entry.id)]);
  since = since && later(asked, -OVERLAP);
}

for (const event of ["online", "offline", "visibilitychange"]) addEventListener(event, refresh);
