// Forms, made from the schemas of the API's requests, which the page holds as JSON.
import { CallError, isEqual } from "./api.js";
import { faultText } from "./notices.js";
import { button, Options } from "./parts.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { dayOf, labelOf, localTimeOf, words } from "./words.js";
import { activeMembers, memberOf, milestonePairs, projectOf } from "./workspace.js";
import { projectsThatAre, teamPairs } from "./workspace.js";

const SCHEMAS = JSON.parse(document.getElementById("schemas").textContent);
const LONG = 1000; // characters, above which a text has lines

function parse(typed) {
  try {
    return JSON.parse(typed);
  } catch (error) {
    throw new CallError(422, `Content is not JSON: ${error.message}`);
  }
}

function numbersOf(typed) {
  if (/^[#,\s\d]*$/.test(typed)) return (typed.match(/\d+/g) ?? []).map(Number);
  throw new CallError(422, "Blocked by takes the numbers of tasks, as #12 #15");
}

const instantOf = (typed) => (typed ? new Date(typed).toISOString() : null);

// How a kind of field shows a stored value, and sends what was typed.
const TEXT = { shown: (value) => value ?? "", sent: (typed) => typed.trim() || null };
const KINDS = {
  text: TEXT,
  lines: TEXT,
  email: TEXT,
  choice: TEXT,
  date: { ...TEXT, shown: dayOf },
  "datetime-local": { shown: localTimeOf, sent: instantOf },
  people: { shown: (value) => value ?? [], sent: (typed) => typed },
  tasks: {
    shown: (value) => (value ?? []).map((one) => `#${one.number ?? one}`).join(" "),
    sent: numbersOf,
  },
  json: { shown: (value) => JSON.stringify(value ?? {}, null, 2), sent: parse },
};

function kindOf(name, { type, format, enum: values, maxLength }) {
  if (type.includes("array")) return name.endsWith("_ids") ? "people" : "tasks";
  if (type.includes("object")) return "json";
  if (values || format === "uuid") return "choice";
  if (/_date$|^expires_at$/.test(name)) return "date";
  if (name.endsWith("_at")) return "datetime-local";
  if (format === "email") return "email";
  return maxLength > LONG ? "lines" : "text";
}

function fieldOf(operation, name) {
  const { properties, required } = SCHEMAS[operation];
  const { maxLength, enum: values, type } = properties[name];
  const kind = kindOf(name, properties[name]);
  const isRequired = required.includes(name);
  const none = isRequired ? "Choose…" : "None";
  return { name, kind, maxLength, values, isRequired, none: type.includes("null") && none };
}

const missingOf = ({ name, label = labelOf(name), missing }) => missing ?? `${label} is required`;

export const hasField = (operation, name) => Object.hasOwn(SCHEMAS[operation].properties, name);

/** The `[value, words]` pairs of a choice; `none` stands for no value where there may be none. */
function pairsOf({ name, values, none, pairs }, chosen) {
  const known = {
    project_id: () => projectsThatAre("active").map((project) => [project.id, project.name]),
    milestone_id: milestonePairs,
  };
  const all = values?.filter(Boolean).map((value) => [value, words(value)]);
  const listed = pairs ?? all ?? known[name]?.() ?? teamPairs();
  const other = projectOf(chosen)?.name ?? memberOf(chosen)?.full_name ?? "Unknown";
  const isListed = !chosen || listed.some(([value]) => value === chosen);
  return [...(none ? [["", none]] : []), ...listed, ...(isListed ? [] : [[chosen, other]])];
}

/** A field's value in words, as the form of the operation shows it. */
export function valueInWords(operation, name, value) {
  if (value?.omitted_bytes) return "a long text";
  const field = fieldOf(operation, name);
  const shown = KINDS[field.kind].shown(value);
  if (field.kind !== "choice") return String(shown) || "none";
  return pairsOf(field, shown).find(([id]) => id === shown && id)?.[1] ?? "none";
}

function People({ label, value, change, disabled }) {
  const toggle = (id) =>
    change(value.includes(id) ? value.filter((other) => other !== id) : [...value, id]);
  const boxOf = ({ id, full_name }) => html`<label>
    <input type="checkbox" disabled=${disabled} checked=${value.includes(id)}
      onChange=${() => toggle(id)} /> ${full_name}
  </label>`;
  return html`<fieldset class="people panel"><legend>${label}</legend>
    ${activeMembers().map(boxOf)}</fieldset>`;
}

/** A field: its label, and the control for its kind; a heading has its label for screen readers alone. */
function Field({ field, value, change, isHeading, isBare, save, disabled }) {
  const { name, kind, maxLength, isRequired: required, label = labelOf(name), placeholder } = field;
  if (kind === "people") return html`<${People} ...${{ label, value, change, disabled }} />`;
  const onInput = (event) => change(event.target.value);
  const saving = save && { [kind === "choice" ? "onChange" : "onBlur"]: save };
  const look = value ? "" : "unset";
  const common = {
    name,
    disabled,
    required,
    maxLength,
    placeholder,
    onInput,
    class: look,
    ...saving,
  };
  const named = { ...common, value, class: "heading", "aria-label": label };
  const oneLine = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    event.target.form.requestSubmit();
  };
  if (isHeading) return html`<textarea ...${named} rows="1" onKeyDown=${oneLine} />`;
  if (isBare) return html`<textarea ...${named} class="bare" rows="1" />`;
  const options = () => html`<${Options} pairs=${pairsOf(field, value)} chosen=${value} />`;
  const controls = {
    choice: () => html`<select ...${common}>${options()}</select>`,
    lines: () => html`<textarea ...${common} rows="4" value=${value} />`,
    tasks: () => html`<input ...${common} placeholder="#12 #15" value=${value} />`,
    json: () => html`<textarea ...${common} rows="12" spellcheck=${false} value=${value} />`,
  };
  const input = () => html`<input ...${common} type=${kind} value=${value} />`;
  return html`<label class="field ${kind}">${label} ${(controls[kind] ?? input)()}</label>`;
}

export const drafts = () => Object.keys(sessionStorage);
export const dropDraft = (name) => sessionStorage.removeItem(name);

const tidy = (text) => (typeof text === "string" ? text.replace(/\r\n?/g, "\n") : text);
export const isSame = (one, other) => isEqual(tidy(one), tidy(other));

/** What was typed and not sent, `{typed, origin}`, where `origin` is the base on which typing began. */
function useTyped(draft) {
  const stored = draft ? sessionStorage.getItem(draft) : null;
  const [state, redraw] = useState(() => JSON.parse(stored) ?? { typed: {} });
  const latest = useRef(state); // also for an answer that comes after more was typed
  const keep = (next) => {
    latest.current = next;
    const isAny = Object.keys(next.typed).length > 0;
    if (draft && isAny) sessionStorage.setItem(draft, JSON.stringify(next));
    else if (draft) dropDraft(draft);
    redraw(next);
  };
  return [latest, keep];
}

/**
 * A form for the request of an operation, with the fields `names` (all by default).
 *
 * It shows the values of `base`; what is typed over them is kept as a `draft`. `onSave` gets what is to be
 * sent, which is of an `isChange` only what differs, the base on which typing began, and a function that
 * sets another one. What it returns is said. `settings` replace a field's members, `children` may place the
 * fields, `note` says something about what is not saved yet, and a form that `isFixed` only shows.
 */
export function Form({ operation, base = {}, draft, label, onSave, onCancel, ...rest }) {
  const { names = Object.keys(SCHEMAS[operation].properties), settings = {}, note } = rest;
  const { children, isChange, isFixed, autofocus, saves } = rest;
  const form = useRef(null);
  const [latest, keep] = useTyped(draft);
  const [said, say] = useState({ text: "" });
  const [isBusy, setBusy] = useState(false);
  const isWaiting = useRef(false); // to be sent as soon as what is being sent was answered
  const { typed, origin = base } = latest.current;
  const changed = names.filter((name) => Object.hasOwn(typed, name));
  const about = (name) => ({ ...fieldOf(operation, name), ...settings[name] });
  const kind = (name) => KINDS[about(name).kind];
  const stored = (name) => kind(name).shown(base[name]);
  const value = (name) => typed[name] ?? stored(name);
  useEffect(() => {
    if (autofocus) form.current.elements[autofocus].focus();
  }, []);
  useEffect(() => {
    if (isBusy || !isWaiting.current) return;
    isWaiting.current = false;
    if (changed.length) form.current.requestSubmit();
  }, [isBusy]);

  const edit = (name, text) => {
    const { [name]: before, ...others } = latest.current.typed;
    const next = isSame(text, stored(name)) ? others : { ...others, [name]: text };
    const isFirst = !Object.keys(latest.current.typed).length;
    keep({ typed: next, origin: isFirst ? base : latest.current.origin });
    if (said.text && !said.isFault) say({ text: "" });
  };
  const rebase = (newer) => keep({ ...latest.current, origin: newer });
  const save = async (event) => {
    event.preventDefault();
    isWaiting.current = isBusy;
    const before = latest.current.typed; // of which the last drawing may not know yet
    const some = isChange ? names.filter((name) => Object.hasOwn(before, name)) : names;
    if (isBusy || !some.length) return;
    setBusy(true);
    try {
      const sent = some.map((name) => [name, kind(name).sent(before[name] ?? stored(name))]);
      const blank = sent.find(([name, content]) => content === null && about(name).isRequired);
      if (blank) throw new CallError(422, missingOf(about(blank[0])));
      const given = isChange ? sent : sent.filter(([, content]) => content !== null);
      const text = await onSave(Object.fromEntries(given), latest.current.origin ?? base, rebase);
      const all = Object.entries(latest.current.typed);
      const since = all.filter(([name, it]) => it !== before[name]);
      keep({ typed: Object.fromEntries(since) }); // typed while it was being saved
      say({ text });
    } catch (error) {
      isWaiting.current = false;
      const retry = error.isTemporary && (() => form.current?.requestSubmit());
      say({ text: error.explained ?? faultText(error), isFault: true, retry });
      if (error.status === undefined) reportError(error); // a bug
    }
    setBusy(false);
  };
  const discard = () => {
    keep({ typed: {} });
    say({ text: "" });
    onCancel?.();
  };
  const field = (name, more) =>
    html`<${Field} key=${name} field=${about(name)} value=${value(name)}
      save=${isChange && saves?.includes(name) && (() => form.current.requestSubmit())}
      change=${(text) => edit(name, text)} disabled=${isFixed} ...${more} />`;
  const isOpen = !isFixed && (!isChange || changed.length > 0);
  const text = said.text || (changed.length > 0 && note?.(origin, changed));
  const retry = () => button("Try again", said.retry, "");
  const buttons = html`<button class="primary">${isBusy ? "Saving…" : label}</button>
    ${(onCancel || isChange) && button(isChange ? "Discard" : "Cancel", discard, "")}`;
  const actions = html`<div class="actions line">
    <div role="alert" class="message">
      ${text && html`<div class=${said.isFault ? "fault" : "dim"}>${text} ${said.retry && retry()}</div>`}
    </div>
    ${isOpen && buttons}
  </div>`;
  const hurry = (event) =>
    event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.current.requestSubmit();
  return html`<form ref=${form} class="stack" aria-busy=${isBusy} onSubmit=${save} onKeyDown=${hurry}>
    ${children ? children(field, value) : names.map((name) => field(name))}
    ${(isOpen || text) && actions}
  </form>`;
}
