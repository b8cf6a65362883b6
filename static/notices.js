// Messages at the edge of the page: what was done leaves by itself, what failed stays.
import { html, render } from "./preact.js";
import { Store, useStore } from "./store.js";

const SHOWN = 6;
const NOTICES_MOST = 3;
const shown = new Store({ notices: [] });
const place = document.createElement("div");
place.id = "notices";
let latest = 0;

/** Show these alone, and do what those that leave have put off. */
function keep(notices) {
  const gone = shown.value.notices.filter((one) => !notices.includes(one));
  shown.set({ notices });
  return Promise.all(gone.map(({ onLeave }) => onLeave?.()));
}

export const dismiss = (gone) => keep(shown.value.notices.filter(({ id }) => id !== gone));
export const dismissAll = () => keep([]);

function add(notice) {
  latest += 1;
  const others = shown.value.notices
    .filter(({ text, onLeave }) => onLeave || text !== notice.text)
    .slice(1 - NOTICES_MOST);
  keep([...others, { id: latest, ...notice }]);
  return latest;
}

/** Say what was done, with what can be done about it (`{words, run}`), and what is done when this leaves. */
export function notify(text, action, onLeave) {
  setTimeout(expire, SHOWN * 1000, add({ text, action, onLeave }));
}

/** Dismiss a notice, unless somebody is about to use it. */
function expire(id) {
  const isUsed = place.querySelector(`#notice-${id}:is(:hover, :focus-within)`);
  if (isUsed) setTimeout(expire, 1000, id);
  else dismiss(id);
}

/** What a form or a notice says of an error. */
export const faultText = ({ message, status }) =>
  `${message}.${status === 0 ? " What was not saved stays here." : ""}`;

/** Say why something failed, with a button to `retry` what may succeed later; returns the notice's id. */
export function notifyFault(error, retry, before = "") {
  if (error.status === undefined) reportError(error); // a bug
  const action = retry && error.isTemporary ? { words: "Try again", run: retry } : null;
  return add({ text: before + faultText(error), action, isFault: true });
}

function Notice({ id, text, action, isFault }) {
  const act = () => {
    action.run();
    dismiss(id);
  };
  return html`<div id="notice-${id}" class=${isFault ? "notice fault" : "notice"}>
    <p class="grow">${text}</p>
    ${action && html`<button type="button" class="quiet" onClick=${act}>${action.words}</button>`}
    <button type="button" class="quiet" aria-label="Dismiss" onClick=${() => dismiss(id)}>✕</button>
  </div>`;
}

function Notices() {
  const { notices } = useStore(shown);
  const all = (isWanted) =>
    notices.filter(isWanted).map((notice) => html`<${Notice} key=${notice.id} ...${notice} />`);
  return html`<div role="alert">${all(({ isFault }) => isFault)}</div>
    <div role="status">${all(({ isFault }) => !isFault)}</div>`;
}

/** Behind an open dialog the notices could not be used, so they are moved into it. */
export function placeNotices() {
  const target = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body;
  if (place.parentElement !== target) target.append(place);
}

render(html`<${Notices} />`, place);
placeNotices();
addEventListener("pagehide", dismissAll);
