// Texts in Markdown: shown, and edited where they stand.
import { isSame } from "./forms.js";
import { button } from "./parts.js";
import { html, useEffect, useRef, useState } from "./preact.js";

let markdown = null; // the module that reads Markdown, which is loaded with the first text

/** A text as Markdown, and as it was typed until the module is loaded. */
export function Text({ text }) {
  const [known, setKnown] = useState(markdown);
  useEffect(() => {
    const show = ([module]) => setKnown((markdown = module));
    const stay = () => setKnown(null); // not loaded, as without a network: the next text tries again
    if (!known) Promise.all([import("./markdown.js"), import("./marked.js")]).then(show, stay);
  }, []);
  return known
    ? html`<${known.Markdown} text=${text} />`
    : html`<div class="text plain">${text}</div>`;
}

/** A form's field with Markdown, which is shown until it is to be edited; `stored` is its value as it was saved. */
export function Written({ field, name, text, stored, isFixed, noun = name }) {
  const [isEdited, setEdited] = useState(false);
  const area = useRef(null);
  useEffect(() => {
    if (isSame(text, stored ?? "")) setEdited(false); // it was saved
  }, [stored]);
  useEffect(() => {
    if (isEdited) area.current.querySelector("textarea").focus();
  }, [isEdited]);
  if (isEdited) return html`<div ref=${area}>${field(name)}</div>`;
  const words = `${text ? "Edit" : "Add a"} ${noun}`;
  const edit = () => button(words, () => setEdited(true));
  return html`<div class="written">${text && html`<${Text} text=${text} />`}${!isFixed && edit()}</div>`;
}
