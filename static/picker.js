// A list to choose from that can be typed into, at the button that opens it: ARIA's combobox with a listbox.
import { Avatar, Dot, Label, Popover, Priority, ProjectDot } from "./parts.js";
import { html, useLayoutEffect, useRef, useState } from "./preact.js";
import { foldedText, hasWordWith, PRIORITIES, STATUSES } from "./words.js";
import { memberOf, projectOf } from "./workspace.js";

const FEW = 8; // options, for which a phone shows no keyboard

export function markOf(id) {
  const [person, project] = [memberOf(id), projectOf(id)];
  if (STATUSES[id]) return html`<${Dot} status=${id} />`;
  if (PRIORITIES[id]) return html`<${Priority} of=${id} />`;
  if (person) return html`<${Avatar} person=${person} />`;
  return project && html`<${ProjectDot} of=${project} />`;
}

const shownOption = ([id, text, about, mark = markOf(id)]) =>
  html`<span class="mark" aria-hidden="true">${mark}</span><span>${text}</span>
    ${about && html`<span class="dim end">${about}</span>`}`;

/** An option whose value is a label. */
export const labelOption = ([label, text]) =>
  html`<span>${label && label === text ? html`<${Label} text=${text} />` : text}</span>`;

/**
 * A field to type into, and the `options` that it leaves, as `[value, words, about, mark]`, of which `value` is chosen,
 * or each in `value` if there may be `multiple`; where something new `isNewAllowed`, what was typed is one of them.
 * Those in `found` stand behind, whatever was typed. `onChoose` gets what is chosen from now on; one is enough (`onDone`).
 * `draw` shows an option.
 */
export function OptionList({ label, start = "", options, found: others = [], ...rest }) {
  const { value, multiple, isNewAllowed, onType, onChoose, onDone, draw = shownOption } = rest;
  const [typed, setTyped] = useState(start);
  const [moved, setMoved] = useState(null);
  const list = useRef(null);
  const chosen = multiple ? value : [value];
  const isChosen = ([id]) => chosen.includes(id);
  const foundBy = (text) => {
    const isKnown = options.some(([, words]) => foldedText(words) === foldedText(text));
    const added = isNewAllowed && text && !isKnown ? [[text, `Add “${text}”`]] : [];
    return [...options.filter(([, words]) => hasWordWith(words, text)), ...others, ...added];
  };
  const text = typed.trim();
  const found = foundBy(text);
  const at = Math.min(moved ?? Math.max(0, text ? 0 : found.findIndex(isChosen)), found.length - 1);
  useLayoutEffect(() => list.current.children[at]?.scrollIntoView({ block: "nearest" }), [at]);
  const choose = ([id]) => {
    setTyped("");
    const others = chosen.filter((one) => one !== id);
    if (multiple) return onChoose(isChosen([id]) ? others : [...chosen, id]);
    onDone(list.current);
    onChoose(id);
  };
  const input = (event) => {
    setTyped(event.target.value);
    onType?.(event.target.value);
    setMoved(null);
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Tab") onDone(list.current);
    if (!step && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation(); // a form would be sent
    if (step) return setMoved((at + step + found.length) % (found.length || 1));
    const { value: now } = event.target; // which may be typed so fast that the list is not drawn yet
    const option = now === typed ? found[at] : foundBy(now.trim())[0];
    if (option) choose(option);
  };
  const optionOf = (option, place) => html`<li role="option" id="option-${place}" key=${option[0]}
    aria-selected=${isChosen(option)} class=${place === at ? "line current" : "line"}
    onMouseDown=${(event) => event.preventDefault()} onClick=${() => choose(option)}>
    ${draw(option)}</li>`;
  const stay = (event) => event.preventDefault(); // no press here is one on the field's label
  return html`<div class="options" onKeyDown=${press} onClick=${stay}>
    <input role="combobox" autofocus aria-label="Find" placeholder=${label} value=${typed} onInput=${input}
      aria-expanded="true" aria-controls="options" aria-autocomplete="list" autocomplete="off"
      aria-activedescendant=${found.length ? `option-${at}` : null}
      inputmode=${options.length > FEW || isNewAllowed ? "text" : "none"} />
    <ul ref=${list} id="options" role="listbox" aria-label=${label} aria-multiselectable=${Boolean(multiple)}>
      ${found.map(optionOf)}</ul>
    <p class="dim" role="status">${!found.length && "Nothing matches."}</p>
  </div>`;
}

/** Such a list at the button that opened it. */
export function Picker({ label, anchor, onClose, ...rest }) {
  const close = (list) => {
    list.closest("[popover]").hidePopover();
    anchor.focus(); // inside another popover the browser does not give it back
    onClose(); // the browser does not say so when it was opened just now
  };
  return html`<${Popover} role="dialog" ...${{ label, anchor, onClose }}>
    <${OptionList} ...${{ label, ...rest }} onDone=${close} />
  <//>`;
}

/** A button that shows what is chosen, and opens the picker; a letter typed on it begins to find. */
export function Choice({ label, look = "", name, disabled, ...rest }) {
  const { options, value, multiple, draw } = rest;
  const [opened, setOpened] = useState(null);
  const open = (event, start) => setOpened({ anchor: event.currentTarget, start });
  const press = (event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    const isLetter = key.length === 1 && key !== " " && !ctrlKey && !metaKey && !altKey;
    if (opened || !(isLetter || key === "ArrowDown")) return;
    event.preventDefault();
    open(event, isLetter ? key : "");
  };
  const shown = options.filter(([id]) => (multiple ? value.includes(id) : id === value));
  const isListed = shown.length > 1 && !draw;
  const words = isListed
    ? shown.map(([, text]) => text).join(", ")
    : shown.map(draw ?? shownOption);
  const said = { "aria-expanded": Boolean(opened), "aria-controls": opened && "options" };
  return html`<button type="button" role="combobox" aria-haspopup="dialog" aria-label=${label} ...${said}
    class="picked line ${look}" ...${{ name, disabled }} onClick=${open} onKeyDown=${press}>
    ${shown.length ? words : "None"}</button>
  ${opened && html`<${Picker} ...${rest} ...${opened} label=${label} onClose=${() => setOpened(null)} />`}`;
}
