// Completes names after an @ while you type.
import { placeAfter } from "./place.js";
import { html, useRef, useState } from "./preact.js";
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
