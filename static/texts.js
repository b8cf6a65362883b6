// Texts in Markdown, shown and edited in place; names after an @ are completed while you type.
import { isSame } from "./forms.js";
import { button } from "./parts.js";
import { placeAfter } from "./place.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { hasWordWith } from "./words.js";
import { whoSee } from "./workspace.js";

const NAMES_MOST = 5;

/** The members who see the project and whose name contains a word that begins with the text between @ and the caret. */
function matching(project, { value, selectionStart }) {
  const [, typed] =
    /(?<![\p{L}\p{N}@.])@([\p{L}\p{M} .'-]{0,40})$/u.exec(value.slice(0, selectionStart)) ?? [];
  if (typed === undefined) return null;
  const isMeant = ({ full_name }) => hasWordWith(full_name, typed);
  const names = whoSee(project).filter(isMeant).slice(0, NAMES_MOST);
  return names.length ? { typed, names: names.map(({ full_name }) => full_name) } : null;
}

/** A text field with a list of names: arrows choose, Enter or Tab inserts a name, Escape closes the list. */
export function Mentions({ project, children }) {
  const place = useRef(null);
  const [found, setFound] = useState(null);
  const [at, setAt] = useState(0);
  const look = ({ target }) => {
    setFound(matching(project, target));
    setAt(0);
  };
  const take = (name) => {
    const area = place.current.querySelector("textarea");
    const end = area.selectionStart;
    area.setRangeText(`${name} `, end - found.typed.length, end, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
    area.focus();
    setFound(null);
  };
  const press = (event) => {
    const next = placeAfter(event, at, found?.names.length);
    const isTaken = ["Enter", "Tab"].includes(event.key) && !event.ctrlKey && !event.metaKey;
    if (!found || !(next >= 0 || isTaken || event.key === "Escape")) return;
    event.preventDefault();
    if (next >= 0) setAt(next);
    else if (isTaken) take(found.names[at]);
    else setFound(null);
  };
  const keepFocus = (event) => event.preventDefault(); // the field keeps the focus
  const option = (name, place) => html`<li role="option" aria-selected=${place === at}
    class=${place === at && "current"} onMouseDown=${keepFocus} onClick=${() => take(name)}>${name}</li>`;
  const said =
    found && `${found.names[at]}, ${at + 1} of ${found.names.length}. Press Enter to insert it.`;
  return html`<div class="mentions" ref=${place} onInput=${look} onKeyDown=${press} onFocusOut=${() => setFound(null)}>
    ${children}
    ${found && html`<ul class="menu panel" role="listbox" aria-label="Members">${found.names.map(option)}</ul>`}
    <span class="skip" role="status">${said}</span>
  </div>`;
}

/** A line with a checkbox, as the server counts them. */
export const BOX = /^(\s*(?:[-*+]|\d{1,9}[.)])\s+\[)[ xX](?=\]\s)/;

/** Set the checkbox of one line of a text. */
export const ticked = (text, line, isDone) =>
  text
    .split("\n")
    .map((words, at) => (at === line ? words.replace(BOX, `$1${isDone ? "x" : " "}`) : words))
    .join("\n");

/** Insert words at the caret of a field, on lines of their own. */
export function insert(area, words) {
  const { value, selectionStart: at, selectionEnd: end } = area;
  const before = at && value[at - 1] !== "\n" ? "\n" : "";
  area.setRangeText(`${before}${words}\n`, at, end, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

let markdown = null; // the module that reads Markdown; the first text loads it

/** A text as Markdown; as typed until the module is loaded. */
export function Text({ text, ...more }) {
  const [known, setKnown] = useState(markdown);
  useEffect(() => {
    const show = ([module]) => setKnown((markdown = module));
    const stay = () => setKnown(null); // offline, for example: the next text tries again
    if (!known) Promise.all([import("./markdown.js"), import("./marked.js")]).then(show, stay);
  }, []);
  return known
    ? html`<${known.Markdown} ...${{ text, ...more }} />`
    : html`<div class="text plain">${text}</div>`;
}

/**
 * A form's field with Markdown, shown until you edit it; `stored` is the saved value. Escape leaves the editor and keeps
 * what you typed. If you typed nothing, a button leaves it, too.
 */
export function Written({ field, name, text, stored, isFixed, tick, picture }) {
  const [isEdited, setEdited] = useState(false);
  const area = useRef(null);
  const isSaved = isSame(text, stored ?? "");
  // At once: an effect after the next frame would close an editor that you have just opened, and lose the first letters.
  useLayoutEffect(() => {
    if (isSaved) setEdited(false);
  }, [stored]);
  useLayoutEffect(() => {
    if (isEdited) area.current.querySelector("textarea").focus();
  }, [isEdited]);
  const leave = () => {
    setEdited(false);
    setTimeout(() => document.querySelector("dialog[open] .written > button")?.focus());
  };
  const press = (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return; // it closed a list of names
    event.preventDefault(); // the dialog stays
    leave();
  };
  if (isEdited)
    return html`<div ref=${area} onKeyDown=${press}>
      <${Mentions}>${field(name)}<//> ${isSaved && button("Cancel", leave)}</div>`;
  const words = `${text ? "Edit" : "Add a"} ${name}`;
  const edit = () => button(words, () => setEdited(true));
  return html`<div class="written">${text && html`<${Text} tick=${isSaved && tick} ...${{ text, picture }} />`}${!isFixed && edit()}</div>`;
}
