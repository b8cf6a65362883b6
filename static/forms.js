// Forms, made from the schemas of the API's requests, which the page holds as JSON.
import { CallError, isEqual, serverTime } from "./api.js";
import { faultText } from "./notices.js";
import { button } from "./parts.js";
import { Choice, DayMenu, labelOption } from "./picker.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { ruleInWords } from "./repeat.js";
import { Store } from "./store.js";
import { dayInWeek, dayOf, inWords, labelOf, localTimeOf } from "./words.js";
import { activeMembers, labelPairs, memberOf, milestoneOf, projectOf } from "./workspace.js";
import { projectPairs, projectsThatAre, readersOf, teamPairs } from "./workspace.js";

const SCHEMAS = JSON.parse(document.getElementById("schemas").textContent);
const LONG = 1000; // characters, above which a text has lines
export const EVERY_PROJECT = "all"; // excludes other choices, and is sent as null

function numbersOf(typed) {
  if (/^[#,\s\d]*$/.test(typed)) return (typed.match(/\d+/g) ?? []).map(Number);
  throw new CallError(422, "Blocked by takes the numbers of tasks, separated by spaces");
}

const instantOf = (typed) => (typed ? new Date(typed).toISOString() : null);

// How each kind of field shows a stored value, and sends what you typed.
const TEXT = { shown: (value) => value ?? "", sent: (typed) => typed.trim() || null };
const SEVERAL = { shown: (value) => value ?? [], sent: (chosen) => chosen };
const PROJECTS = {
  shown: (value) => value ?? [EVERY_PROJECT],
  sent: (chosen) => (chosen.includes(EVERY_PROJECT) ? null : chosen),
  tidied: (chosen) =>
    chosen.at(-1) === EVERY_PROJECT ? [EVERY_PROJECT] : chosen.filter((id) => id !== EVERY_PROJECT),
};
const FIELD_KINDS = {
  text: TEXT,
  lines: TEXT,
  email: TEXT,
  choice: TEXT,
  number: {
    shown: (value) => String(value ?? ""),
    sent: (typed) => (typed === "" ? null : Number(typed)),
  },
  checkbox: { shown: Boolean, sent: Boolean },
  date: { ...TEXT, shown: dayOf },
  "datetime-local": { shown: localTimeOf, sent: instantOf },
  people: SEVERAL,
  projects: PROJECTS,
  labels: SEVERAL,
  tasks: {
    shown: (value) => (value ?? []).map((one) => `#${one.number ?? one}`).join(" "),
    sent: numbersOf,
  },
  json: { shown: (value) => JSON.stringify(value ?? {}) }, // no form changes it
};

function fieldKind(name, { type, format, enum: values, maxLength }) {
  if (name === "labels") return name;
  if (name === "project_ids") return "projects";
  if (type.includes("array")) return name.endsWith("_ids") ? "people" : "tasks";
  if (type.includes("object")) return "json";
  if (type.includes("integer")) return "number";
  if (type.includes("boolean")) return "checkbox";
  if (values || format === "uuid") return "choice";
  if (/_date$|^expires_at$/.test(name)) return "date";
  if (name.endsWith("_at")) return "datetime-local";
  if (format === "idn-email") return "email";
  return maxLength > LONG ? "lines" : "text";
}

function fieldOf(operation, name) {
  const { properties, required } = SCHEMAS[operation];
  const { enum: values, type } = properties[name];
  const kind = fieldKind(name, properties[name]);
  const isRequired = required.includes(name);
  const none = isRequired ? "Choose…" : "None";
  return { name, kind, values, isRequired, none: type.includes("null") && none };
}

const missingOf = ({ name, label = labelOf(name), missing }) => missing ?? `${label} is required`;

export const hasField = (operation, name) => Object.hasOwn(SCHEMAS[operation].properties, name);

/** The `[value, words]` pairs of a choice; `none` is the word for no value, if that is allowed. */
function pairsOf({ name, values, none, pairs }, chosen) {
  if (name === "labels") return labelPairs(chosen);
  if (name === "project_ids") return [[EVERY_PROJECT, "All projects"], ...projectPairs()];
  if (name.endsWith("_ids")) return activeMembers().map(({ id, full_name }) => [id, full_name]);
  const known = {
    project_id: () => projectsThatAre("active").map(({ id, name }) => [id, name + readersOf(id)]),
  };
  const all = values?.filter(Boolean).map((value) => [value, inWords(value)]);
  const listed = pairs ?? all ?? known[name]?.() ?? teamPairs();
  const named = projectOf(chosen) ?? memberOf(chosen) ?? milestoneOf(chosen);
  const unknown = pairs ? "…" : "Unknown"; // pairs may still be loaded
  const other = named?.name ?? named?.full_name ?? named?.title ?? unknown;
  const isListed = !chosen || listed.some(([value]) => value === chosen);
  return [...(none ? [["", none]] : []), ...listed, ...(isListed ? [] : [[chosen, other]])];
}

/** The pairs of an operation's field; `settings` replace members of the field. */
export const choicesOf = (operation, name, settings, chosen) =>
  pairsOf({ ...fieldOf(operation, name), ...settings }, chosen);

/** A field's value in words, as the form of the operation shows it. */
export function valueInWords(operation, name, value) {
  if (value?.omitted_bytes) return "a long text";
  if (name === "repeat" && value) return ruleInWords(value);
  const field = fieldOf(operation, name);
  const shown = FIELD_KINDS[field.kind].shown(value);
  if (field.kind === "date" && shown) return dayInWeek(shown, serverTime());
  if (field.kind !== "choice") return [].concat(shown).join(", ") || "none";
  return pairsOf(field, shown).find(([id]) => id === shown && id)?.[1] ?? "none";
}

const sendOnEnter = (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  event.target.form.requestSubmit();
};

/** A field: a label, and the control for its kind. Only screen readers get the label of a heading. */
function Field({ field, value, change, save, disabled }) {
  const { name, kind, isRequired: required, label = labelOf(name), placeholder } = field;
  const look = value?.length === 0 ? "unset" : "";
  const onInput = ({ target }) => change(kind === "checkbox" ? target.checked : target.value);
  const common = { name, disabled, required, placeholder, onInput };
  Object.assign(common, { class: look, value, onBlur: save });
  const choose = (chosen) => {
    change(FIELD_KINDS[kind].tidied?.(chosen) ?? chosen);
    save?.();
  };
  const choice =
    () => html`<${Choice} ...${{ name, label, look, disabled, value }} onChoose=${choose}
    options=${pairsOf(field, value)} multiple=${Array.isArray(value)}
    ...${kind === "labels" && { isNewAllowed: true, draw: labelOption }} />`;
  const lines = (more) => html`<textarea ...${common} ...${more} />`;
  if (field.isHeading)
    return lines({ class: "heading", "aria-label": label, rows: 1, onKeyDown: sendOnEnter });
  if (field.isBare) return lines({ class: "bare", "aria-label": label, rows: 1 });
  const controls = {
    choice,
    people: choice,
    projects: choice,
    labels: choice,
    lines: () => lines({ rows: 4 }),
    tasks: () => html`<input ...${common} placeholder="None" />`,
    checkbox: () => html`<input ...${common} type="checkbox" required=${false} checked=${value} />`,
    date: () => html`<${Choice} as=${DayMenu} ...${{ name, label, look, disabled, value }} onChoose=${choose}
      options=${[[value, value ? dayInWeek(value, serverTime()) : "None"]]} />`,
  };
  const input = () => html`<input ...${common} type=${kind} />`;
  return html`<label class="field ${kind}">${label} ${(controls[kind] ?? input)()}</label>`;
}

export const drafts = () => Object.keys(sessionStorage);

/** A counter that rises when a draft is made or dropped, so that cards are drawn again. */
export const draftChanges = new Store(0);

/** Keep a draft under this name, or drop it. */
function storeDraft(name, typed) {
  const isKnown = drafts().includes(name);
  if (typed) sessionStorage.setItem(name, JSON.stringify(typed));
  else sessionStorage.removeItem(name);
  if (isKnown !== Boolean(typed)) draftChanges.replace(draftChanges.value + 1);
}

export const dropDraft = (name) => storeDraft(name, null);

const tidy = (text) => (typeof text === "string" ? text.replace(/\r\n?/g, "\n") : text);
export const isSame = (one, other) => isEqual(tidy(one), tidy(other));

/**
 * Unsent input, kept as a `draft`: `typed()`, and `origin()`, the base when typing began. Both are functions, since you
 * may have typed more since the form was drawn.
 */
function useTyped(draft, base, stored) {
  const kept = draft ? sessionStorage.getItem(draft) : null;
  const [state, redraw] = useState(() => JSON.parse(kept) ?? { typed: {} });
  const latest = useRef(state);
  const typed = () => latest.current.typed;
  const origin = () => latest.current.origin ?? base;
  const isTyped = (name) => Object.hasOwn(typed(), name);
  const keep = (next) => {
    latest.current = next;
    if (draft) storeDraft(draft, Object.keys(next.typed).length > 0 && next);
    redraw(next);
  };
  const edit = (name, text) => {
    const { [name]: before, ...others } = typed();
    const next = isSame(text, stored(name)) ? others : { ...others, [name]: text };
    keep({ typed: next, origin: Object.keys(typed()).length ? origin() : base });
  };
  const rebase = (newer) => keep({ typed: typed(), origin: newer });
  /** Drop what was sent, and keep later input. */
  const drop = (sent = typed()) => {
    const since = Object.entries(typed()).filter(([name, text]) => text !== sent[name]);
    keep({ typed: Object.fromEntries(since) });
  };
  return { typed, origin, isTyped, edit, rebase, drop };
}

/** Submit by `send`, which returns a message. A submission during another one follows it, if `isLeft()`. */
function useSubmit(form, send, isLeft) {
  const [said, say] = useState({ text: "" });
  const [isBusy, setBusy] = useState(false);
  const isWaiting = useRef(false);
  const submit = () => form.current?.requestSubmit();
  useEffect(() => {
    if (isBusy || !isWaiting.current) return;
    isWaiting.current = false;
    if (isLeft()) submit();
  }, [isBusy]);
  const onSubmit = async (event) => {
    event.preventDefault();
    isWaiting.current = isBusy;
    if (isBusy) return;
    setBusy(true);
    try {
      say({ text: await send() });
    } catch (error) {
      isWaiting.current = false;
      const retry = error.isTemporary && submit;
      say({ text: error.explained ?? faultText(error), isFault: true, retry });
      if (error.status === undefined) reportError(error); // a bug
    }
    setBusy(false);
  };
  return { said, say, isBusy, submit, onSubmit };
}

/**
 * A form for the request of an operation, with the fields `names` (all by default).
 *
 * It shows the values of `base`, and keeps typed values as a `draft`. `onSave` gets the fields to send (with
 * `isChange` only the changed ones), the base on which typing began, and a function that sets another base;
 * the form shows the text that it returns. `settings` replace properties of a field. `children` may place the
 * fields, and get the number of times that typed values were discarded. Fields in `saves` are saved when they
 * lose the focus. `note` is shown beside values that are not saved yet. `isFixed` allows no typing.
 */
export function Form({ operation, base = {}, draft, label, onSave, onCancel, ...rest }) {
  const { names = Object.keys(SCHEMAS[operation].properties), settings = {}, note } = rest;
  const { children, isChange, isFixed, autofocus, saves = [] } = rest;
  const form = useRef(null);
  const [discards, setDiscards] = useState(0);
  const about = (name) => ({ ...fieldOf(operation, name), ...settings[name] });
  const kind = (name) => FIELD_KINDS[about(name).kind];
  const stored = (name) => kind(name).shown(base[name]);
  const { typed, origin, isTyped, edit, rebase, drop } = useTyped(draft, base, stored);
  const value = (name) => typed()[name] ?? stored(name);
  const changed = () => names.filter(isTyped);
  const send = async () => {
    const some = isChange ? changed() : names;
    if (!some.length) return "";
    const before = typed();
    const sent = some.map((name) => [name, kind(name).sent(value(name))]);
    const blank = sent.find(([name, content]) => content === null && about(name).isRequired);
    if (blank) throw new CallError(422, missingOf(about(blank[0])));
    const given = isChange ? sent : sent.filter(([, content]) => content !== null);
    const text = await onSave(Object.fromEntries(given), origin(), rebase);
    drop(before);
    return text;
  };
  const isAny = () => changed().length > 0;
  const { said, say, isBusy, submit, onSubmit } = useSubmit(form, send, isAny);
  // At once, since a later focus would take the letters of a reader who is already typing elsewhere.
  useLayoutEffect(() => {
    const first = form.current.elements[autofocus];
    if (!first) return;
    first.autofocus = true; // for the dialog around it, which is shown after this
    first.focus();
  }, []);
  const change = (name) => (text) => {
    edit(name, text);
    for (const other of about(name).clears ?? []) edit(other, "");
    if (said.text && !said.isFault) say({ text: "" });
  };
  const discard = () => {
    drop();
    setDiscards(discards + 1);
    say({ text: "" });
    onCancel?.();
  };
  const field = (name, more) =>
    html`<${Field} key=${name} field=${{ ...about(name), ...more }} value=${value(name)} change=${change(name)}
      save=${saves.includes(name) ? () => isTyped(name) && submit() : undefined} disabled=${isFixed} />`;
  const isOpen = !isFixed && (!isChange || isAny());
  const text = said.text || (isAny() && note?.(origin(), changed()));
  const retry = () => button("Try again", said.retry, "");
  const buttons = html`<button class="primary">${isBusy ? "Saving…" : label}</button>
    ${(onCancel || isChange) && button(isChange ? "Discard" : "Cancel", discard, "")}`;
  const actions = html`<div class="actions line">
    <div role="alert" class="message">
      ${text && html`<div class=${said.isFault ? "fault" : "dim"}>${text} ${said.retry && retry()}</div>`}
    </div>
    ${isOpen && buttons}
  </div>`;
  const hurry = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit();
  return html`<form ref=${form} class="stack" aria-busy=${isBusy} ...${{ onSubmit }} onKeyDown=${hurry}>
    ${children ? children(field, value, discards) : names.map((name) => field(name))}
    ${(isOpen || text) && actions}
  </form>`;
}
