// Messages at the edge of the page. Messages of success disappear after some seconds, errors stay.
import { CallError } from "./api.js";
import { html, render, useEffect, useRef, useState } from "./preact.js";
import { address, Store, useStore } from "./store.js";

const SHOWN = 6;
export const AGAIN = 5; // seconds
const UNDO = "Undo";
const NOTICES_MOST = 3;
const shown = new Store({ notices: [] });
const place = document.createElement("div");
place.id = "notices";
let latest = 0;
let undos = []; // notices whose change can still be undone, shown or not

/** Show only these notices, and do what the others have put off. */
function keep(notices) {
  const gone = shown.value.notices.filter((one) => !notices.includes(one));
  shown.set({ notices });
  undos = undos.filter((one) => !one.onLeave || notices.includes(one)); // too late to undo
  return Promise.all(gone.map(({ onLeave }) => onLeave?.()));
}

export const dismiss = (...gone) =>
  keep(shown.value.notices.filter(({ id }) => !gone.includes(id)));

export function dismissAll() {
  undos = [];
  return keep([]);
}

function add(notice) {
  latest += 1;
  const isOther = ({ text, onLeave, isAway }) => onLeave || isAway || text !== notice.text;
  const others = shown.value.notices.filter(isOther);
  const isLeft = ({ isAway }, at) => isAway || at > others.length - NOTICES_MOST;
  const added = { id: latest, task: address.value.task, ...notice.action, ...notice };
  if (notice.action?.words === UNDO) undos.push(added);
  keep([...others.filter(isLeft), added]);
  return latest;
}

/** Undo the latest change; while a task is open, the latest that was made in it. */
export function undoLatest() {
  const { task } = address.value;
  const notice = undos.findLast((one) => !task || one.task === task);
  if (notice) runAction(notice.action, [notice.id]);
}

function runAction(action, ids) {
  undos = undos.filter(({ id }) => !ids.includes(id));
  action.run();
  dismiss(...ids);
}

/** Say what was done. `action` is a button (`{words, run}`, and the `task` if not the opened one); `onLeave` is called when the notice disappears. */
export function notify(text, action, onLeave) {
  setTimeout(expire, SHOWN * 1000, add({ text, action, onLeave }));
}

/** Dismiss a notice, unless somebody is about to use it. */
function expire(id) {
  const isUsed = place.querySelector(`#notice-${id}:is(:hover, :focus-within)`);
  if (isUsed) setTimeout(expire, 1000, id);
  else dismiss(id);
}

/** An error as a sentence, for a form or a notice. */
export const faultText = ({ message, status }) =>
  `${message}.${status === 0 ? " Your changes are kept here." : ""}`;

/** Say why something failed, with a button to `retry` if that may succeed later, or a `link` to deleted objects. Return the notice's id. */
export function notifyFault(error, retry, before = "", link = false) {
  if (error.status === undefined) reportError(error); // a bug
  const action = retry && error.isTemporary ? { words: "Try again", run: retry } : { link };
  return add({ text: faultText(error), action, isFault: true, isAway: error.status === 0, before });
}

/** Load something. If that fails for now, say so, and try again after some seconds or on request, while it `isWanted`. */
export async function loadUntil(load, isWanted = () => true) {
  let [notice, again] = [0, null];
  for (;;) {
    let failed = null;
    await load().catch((error) => (failed = error));
    const error = isWanted() && failed;
    if (!error?.isTemporary) {
      dismiss(notice);
      return error && error.status !== 401 && notifyFault(error);
    }
    await new Promise((resolve) => {
      again = resolve;
      setTimeout(again, Math.max(AGAIN, error.seconds) * 1000);
      notice ||= notifyFault(error, () => again((notice = 0)));
    });
  }
}

/** Load when a view is shown, and again if one of the values has changed. */
export function useLoad(load, values) {
  useEffect(() => {
    let isShown = true;
    loadUntil(load, () => isShown);
    return () => void (isShown = false);
  }, values);
}

/** Return a function that says whether the view still shows what it showed when it was drawn. */
export function useCurrent(place) {
  const latest = useRef(place);
  latest.current = place;
  return () => latest.current === place;
}

/** A component whose module is loaded when it is shown for the first time. */
export function lazy(name, load) {
  let View = null;
  return function Lazy(props) {
    const [, setLoaded] = useState(View !== null);
    const away = () => Promise.reject(new CallError(0, "The server cannot be reached"));
    useLoad(async () => setLoaded((View ??= (await load().catch(away))[name]) !== null), []);
    return View && html`<${View} ...${props} />`;
  };
}

/** Join what failed because the server is unreachable into one notice, whose button tries all of it again. */
function together(notices) {
  const away = notices.filter(({ isAway }) => isAway);
  const runs = away.flatMap(({ action }) => action?.run ?? []);
  const run = () => runs.forEach((retry) => retry());
  const before = [...new Set(away.map((one) => one.before))].join("");
  const action = runs.length > 0 && { words: "Try again", run };
  const all = { ...away[0], ids: away.map(({ id }) => id), before, action };
  return [...notices.filter(({ isAway }) => !isAway), ...(away.length ? [all] : [])];
}

function Notice({ id, ids = [id], before = "", text, action, isFault }) {
  return html`<div id="notice-${id}" class=${isFault ? "notice fault" : "notice"}>
    <p class="grow">${before}${text}${action?.link && html`${" "}<a href="#view=deleted" onClick=${() => dismiss(...ids)}>Recently deleted</a>`}</p>
    ${action?.run && html`<button type="button" class="quiet" onClick=${() => runAction(action, ids)}>${action.words}</button>`}
    <button type="button" class="quiet" aria-label="Dismiss" onClick=${() => dismiss(...ids)}>✕</button>
  </div>`;
}

function Notices() {
  const { notices } = useStore(shown);
  const viewOf = (notice) => html`<${Notice} key=${notice.id} ...${notice} />`;
  const all = (isWanted) => together(notices.filter(isWanted)).map(viewOf);
  return html`<div role="alert">${all(({ isFault }) => isFault)}</div>
    <div role="status">${all(({ isFault }) => !isFault)}</div>`;
}

/** Move the notices into an open dialog: behind it you could not use them. */
export function placeNotices() {
  const target = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body;
  if (place.parentElement !== target) target.append(place);
}

const showFailed = () => (document.getElementById("failed").hidden = false); // above an empty page
addEventListener("error", showFailed, true);

render(html`<${Notices} />`, place);
placeNotices();
addEventListener("pagehide", dismissAll);
