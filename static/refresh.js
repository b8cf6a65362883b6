// Follows changes while the page is visible: one request waits for them, or asks every few seconds.
import { get, serverTime } from "./api.js";
import { dismiss, notifyFault } from "./notices.js";
import { useLayoutEffect, useRef } from "./preact.js";
import { later, momentInWords } from "./words.js";

const EVERY = 5;
const WAIT = 25; // seconds for which the server may hold back its answer
const PAUSE = 30; // seconds without waiting after the server had no slot
const HIDDEN = 30; // seconds while only notifications can be seen
const MARGIN = 10; // seconds; a change may have begun earlier and be committed later
const include = "inbox"; // its beginning, so that it needs no request of its own
const takers = new Set();
let reached = null; // `since` a time, or `after` a cursor; null while nobody is signed in
let timer = 0;
let last = Promise.resolve();
let isWaiting = false;
let pausedUntil = 0;
let isPaused = false;
let notice = null; // says that the page is out of date

/**
 * Call `take` with `{changes, tasks, isPartial, concerns(id), has(kind), inbox}`: the changes as the server lists them,
 * the tasks among them, and the beginning of the inbox. `isPartial` means that more has changed than they tell.
 */
export function useRefresh(take) {
  const current = useRef(take);
  current.current = take;
  useLayoutEffect(() => onRefresh((all) => all.changes.length && current.current(all)), []);
}

/** Call `take` after each look, even if nothing has changed. Return a function that ends this. */
export function onRefresh(take) {
  takers.add(take);
  return () => takers.delete(take);
}

/** Look for changes, one look after another. */
export const refresh = () => lookNext();

function lookNext(found) {
  const run = () => look(found);
  last = last.then(run, run);
  return last;
}

/** Follow the changes since this time of the server. */
export function startRefresh(time) {
  reached = { since: later(time, -MARGIN) };
  return refresh();
}

export const isFollowing = () => reached !== null; // the page has loaded what it begins with

export function stopRefresh() {
  reached = null;
  clearTimeout(timer);
}

/** Draw nothing while a card is dragged: that would end the drag. */
export function pauseRefresh(value) {
  isPaused = value;
}

async function look(found) {
  clearTimeout(timer);
  const isHidden = document.visibilityState === "hidden";
  if (!reached || (isHidden && globalThis.Notification?.permission !== "granted")) return;
  const error = isPaused ? null : await takeChanges(found).catch((failure) => failure);
  if (!reached) return; // signed out meanwhile
  if (error?.status === 410) return location.reload(); // the reader sees other projects, or a backup was restored
  if (notice && !error) dismiss(notice);
  const from = `What you see is from ${momentInWords(serverTime())}. `;
  notice = error ? (notice ?? notifyFault(error, refresh, from)) : null;
  const mayWait = reached.after && document.hasFocus() && Date.now() > pausedUntil;
  if (!error && !isPaused && !isWaiting && mayWait) void awaitChange();
  const seconds = isHidden ? HIDDEN : isWaiting ? WAIT + EVERY : EVERY;
  timer = setTimeout(refresh, Math.max(seconds, error?.seconds ?? 0) * 1000);
}

/** Ask what has changed since `reached`, which the answer keeps. */
const ask = async (wait) => ({
  reached,
  ...(await get("/changes", { ...reached, wait, include })),
});

async function awaitChange() {
  isWaiting = true;
  const found = await ask(WAIT).catch(() => void (pausedUntil = Date.now() + PAUSE * 1000));
  isWaiting = false;
  void lookNext(found);
}

async function takeChanges(found) {
  const asked = serverTime();
  const answer = found ?? (await ask());
  if (answer.reached !== reached) return; // another look has taken it
  const { changes, pagination } = answer;
  const isComment = ({ kind }) => kind === "comment";
  const tasks = changes.filter(({ kind, object }) => kind === "task" && object);
  const isLost = (change) => isComment(change) && !change.object; // the change does not name its task
  const isPartial = pagination.has_more || changes.some(isLost);
  const ids = changes.map((change) => (isComment(change) ? change.object?.task_id : change.id));
  const concerns = (id) => isPartial || ids.includes(id);
  const has = (name) => isPartial || changes.some(({ kind }) => kind === name);
  const all = { ...answer, tasks: tasks.map(({ object }) => object), isPartial, concerns, has };
  await Promise.all([...takers].map((take) => take(all)));
  const next = pagination.has_more
    ? { since: later(asked, -MARGIN) }
    : { after: pagination.next_after };
  reached &&= next;
}

for (const event of ["online", "offline", "visibilitychange"]) addEventListener(event, refresh);
