// Elements, messages and forms. What people have written is set as text, never as HTML.

export const find = (id) => document.getElementById(id);

/** An element with these properties and children; empty children are left out. */
export function make(tag, { data = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...children.flat().filter(Boolean));
  return element;
}

export const button = (text, onclick, more) => make("button", { type: "button", onclick, ...more }, text);
export const dim = (...children) => make("p", { className: "dim" }, ...children);
export const day = (instant) => instant.slice(0, 10);
export const moment = (instant) => `${day(instant)} ${instant.slice(11, 16)} UTC`;
export const time = (instant, text = moment(instant)) => make("time", { dateTime: instant }, text);
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Give a select these `[value, text]` pairs, and one for the chosen value if it is not among them. */
export function fillSelect(select, pairs, chosen) {
  const all = pairs.some(([value]) => value === chosen) ? pairs : [...pairs, [chosen, "Unknown"]];
  select.replaceChildren(...all.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}

function explain({ status, message, seconds }) {
  if (status === 0) return `${message} Nothing was saved; what you typed stays here.`;
  return `${message[0].toUpperCase()}${message.slice(1)}${seconds ? ` Wait ${seconds} s.` : ""}`;
}

/** Say something in an element, or why something failed, with a button to `retry` what may succeed later. */
export function say(element, what, retry, before = "") {
  const isFault = what instanceof Error;
  const text = isFault ? `${before}${explain(what)} ` : what;
  element.classList.toggle("fault", isFault);
  element.replaceChildren(text, ...(isFault && what.isTemporary && retry ? [button("Try again", retry)] : []));
  if (isFault && what.status === undefined) reportError(what); // a bug
}

/** Say it at the edge of the page. */
export const notify = (what, retry, before) => say(find("notice"), what, retry, before);
/** Say it beside a form. */
export const tell = (form, what, retry) => say(form.querySelector(".message"), what, retry);

/** Run `action` when the form is sent, and say what it returns or why it failed. The fields stay as they are. */
export function onSubmit(form, action) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.ariaBusy === "true") return;
    form.ariaBusy = "true";
    tell(form, (await action().catch((error) => error)) ?? "", () => form.requestSubmit());
    form.ariaBusy = "false";
  });
}

/** Keep in this tab what is typed into a form, whose draft has the name `nameOf()`, and on what it is based. */
export function keepDrafts(form, nameOf, baseOf = () => null) {
  form.addEventListener("input", () => {
    const draft = { base: baseOf(), fields: Object.fromEntries(new FormData(form)) };
    sessionStorage.setItem(nameOf(), JSON.stringify(draft));
  });
}

export const dropDraft = (name) => sessionStorage.removeItem(name);
export const findDraft = (name) => JSON.parse(sessionStorage.getItem(name));

export function fillForm(form, fields = {}) {
  for (const [name, text] of Object.entries(fields)) form.elements[name].value = text;
}
