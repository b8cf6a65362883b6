// Elements, messages, forms, and the address. What people have written is set as text, never as HTML.
export const find = (id) => document.getElementById(id);
/** An element with these properties and children; empty children are left out. */
export function make(tag, { data = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...children.flat(2).filter(Boolean));
  return element;
}

export const button = (text, onclick, more) => make("button", { type: "button", onclick, ...more }, text);
const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" };
const { timezone: timeZone } = document.documentElement.dataset;
const format = new Intl.DateTimeFormat("sv", { ...parts, timeZone, timeZoneName: "short" }); // in the order of ISO 8601
/** The date and time in the workspace's time zone, as 2026-11-20 23:05 UTC. */
export const moment = (instant) => format.format(new Date(instant));
/** The day that it is then in that time zone; nothing if there is no instant. */
export const day = (instant) => instant && moment(instant).slice(0, 10);
export const later = (instant, seconds) => new Date(Date.parse(instant) + seconds * 1000).toISOString();
export const time = (instant, text = moment(instant)) => make("time", { dateTime: instant }, text);
/** What is shown stands in the address, after its #, which browsers send to no server. */
export const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
/** The address with these changes; an empty value leaves a name out. */
export const link = (changes) =>
  `#${new URLSearchParams(Object.entries({ ...address(), ...changes }).filter(([, value]) => value))}`;
/** Go there; `replace` leaves no step for the back button, as for each letter of a search. */
export function go(changes, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", link(changes));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
/** Give a select these `[value, text]` pairs, and one for the chosen value if it is not among them. */
export function fillSelect(select, pairs, chosen) {
  const all = pairs.some(([value]) => value === chosen) ? pairs : [...pairs, [chosen, "Unknown"]];
  select.replaceChildren(...all.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}
/** Say something in an element, or why something failed, with a button to `retry` what may succeed later. */
export function say(element, what, retry, before = "") {
  const isFault = what instanceof Error;
  const advice = what.status === 0 ? " What was not saved stays here." : "";
  const text = isFault ? `${before}${what.message[0].toUpperCase()}${what.message.slice(1)}.${advice}` : what;
  element.classList.toggle("fault", isFault);
  element.replaceChildren(text);
  if (what.isTemporary && retry) element.append(button("Try again", retry));
  if (isFault && what.status === undefined) reportError(what); // a bug
}
/** Say it beside a form. */
export const tell = (form, what, retry) => say(form.querySelector(".message"), what, retry);
/** Say it at the edge of the page. */
export function notify(what, retry, before) {
  const clear = () => find("notice").replaceChildren();
  const again = () => {
    clear();
    retry();
  };
  say(find("notice"), what, retry && again, before);
  find("notice").append(button("Dismiss", clear));
}
/** Behind an open dialog the notices could not be used, so they are in it. */
function placeNotices() {
  const place = document.querySelector("dialog[open]") ?? document.body;
  if (find("notices").parentElement !== place) place.append(find("notices"));
}
const openings = new MutationObserver(placeNotices);
for (const dialog of document.querySelectorAll("dialog")) openings.observe(dialog, { attributeFilter: ["open"] });
/** Run `action` when the form is sent, and say what it returns or why it failed. The fields stay as they are. */
export function onSubmit(form, action) {
  const send = form.querySelector("button:not([type])");
  (send.closest(".actions") ?? send).before(make("div", { className: "message", role: "alert" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.ariaBusy === "true") return;
    form.ariaBusy = "true";
    tell(form, (await action().catch((error) => error)) ?? "", () => form.requestSubmit());
    form.ariaBusy = "false";
  });
}
/** Keep in this tab what is typed into a form, and on what it is based, under the name `nameOf()`. */
export function keepDrafts(form, nameOf, baseOf = () => null) {
  const draft = () => JSON.stringify({ base: baseOf(), fields: Object.fromEntries(new FormData(form)) });
  form.addEventListener("input", () => sessionStorage.setItem(nameOf(), draft()));
}
export const dropDraft = (name) => sessionStorage.removeItem(name);
/** Put a draft back into its form. Returns it, or null if there is none. */
export function restoreDraft(form, name) {
  const draft = JSON.parse(sessionStorage.getItem(name));
  for (const [field, text] of Object.entries(draft?.fields ?? {})) form.elements[field].value = text;
  return draft;
}
