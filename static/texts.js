// Texts in Markdown, shown and edited in place.
import { isSame } from "./forms.js";
import { Mentions } from "./mentions.js";
import { button } from "./parts.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";

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
