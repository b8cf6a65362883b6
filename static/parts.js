// Small parts of several views: dialogs, menus, people, times, empty states.
import { serverTime } from "./api.js";
import { placeNotices } from "./notices.js";
import { stepAmong } from "./place.js";
import { html, useLayoutEffect, useRef, useState } from "./preact.js";
import { link } from "./store.js";
import { dateInWords, initials, momentInWords, inWords } from "./words.js";

/** A button; `more` are further attributes. */
export const button = (words, run, kind = "quiet", more = {}) =>
  html`<button type="button" class=${kind} onClick=${run} ...${more}>${words}</button>`;

/** A day in words, such as a due date. */
export const DateOf = ({ at }) =>
  html`<time dateTime=${at} title=${at}>${dateInWords(at, serverTime())}</time>`;

export const Moment = ({ at }) =>
  html`<time dateTime=${at} title=${at}>${momentInWords(at)}</time>`;

// An angle on the colour wheel that stays the same for a person.
const hue = ({ id }) => ({ "--hue": parseInt(id.slice(-4), 16) % 360 });

export const Avatar = ({ person }) =>
  html`<span class="avatar" role="img" aria-label=${person.full_name} title=${person.full_name}
    style=${hue(person)}>${initials(person.full_name)}</span>`;

const SHARES = { todo: 0, in_progress: 50, review: 75, done: 100 }; // of a ring

export const Dot = ({ status }) => html`<span class="dot status"
  style=${{ "--mark": `var(--of-${status})`, "--share": `${SHARES[status]}%` }}></span>`;

// Drawn on 16 by 16, by the name of a view or of a thing.
const ICONS = {
  "": "M2 3h3v10H2zM6.5 3h3v7h-3zM11 3h3v5h-3z",
  today:
    "M8 4.500a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7zM7.250 0h1.500v3h-1.500zM7.250 13h1.500v3h-1.500zM0 7.250h3v1.500H0zM13 7.250h3v1.500h-3z",
  mine: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zm0 1.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 0 0 0-11zM7 10 4.500 7.500l1-1L7 8l3.500-3.500 1 1z",
  month:
    "M1 2h14v12.500H1zm1.500 4v7h11V6zM4 7.250h2v2H4zM7 7.250h2v2H7zM10 7.250h2v2h-2zM4 10.250h2v2H4zM7 10.250h2v2H7z",
  more: "M2 3.500h12V5H2zM2 7.250h12v1.500H2zM2 11h12v1.500H2z",
  week: "M2 14V8h2.500v6zM6.750 14V2h2.500v12zM11.500 14V5H14v9z",
  find: "M6.500 1a5.500 5.500 0 0 1 4.400 8.800l3.600 3.600-1.100 1.100-3.600-3.600A5.500 5.500 0 1 1 6.500 1zm0 1.500a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  activity: "M1 7h3l2-5 3 11 2-6h4v1.500h-3L9 16 6 5 5 8.500H1z",
  meetings: "M2 3h2V1h2v2h4V1h2v2h2v11H2zm1.500 4v5.500h9V7z",
  inbox: "M2 2h12l1 7v5H1V9zm1.300 1.500L2.500 9H5l1 2h4l1-2h2.500l-.8-5.500z",
  whiteboards: "M1 2h14v9H9l2 4H9.500L8 12l-1.500 3H5l2-4H1zm1.500 1.500v6h11v-6z",
  people: "M8 1a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM2 15c0-4 2-6 6-6s6 2 6 6z",
  clock: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zm-.750 3v4.500l3 2 .800-1.200-2.300-1.500V4z",
  bubble:
    "M3 2h10a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H6l-4 3.500L1 14V4a2 2 0 0 1 2-2zm0 1.500a.5.5 0 0 0-.5.5v8.500L5.500 10.500H13a.5.5 0 0 0 .5-.5V4a.5.5 0 0 0-.5-.5z",
  chevron: "M10.500 2.500 5 8l5.500 5.500 1-1L7 8l4.500-4.500z",
};

export const Icon = ({ of }) =>
  html`<svg viewBox="0 0 16 16" fill="currentColor" aria-hidden="true"><path d=${ICONS[of]} /></svg>`;

const RANKS = { low: 1, medium: 2, high: 3 };
const bar = (at, rank) =>
  html`<rect x=${4.5 * at - 3.5} y=${11 - 3 * at} width="3" height=${3 * at + 1} rx="1" opacity=${at <= rank ? 1 : 0.3} />`;

/** One to three bars, or an exclamation mark for urgent tasks. */
export const Priority = ({ of }) => html`<svg class="priority ${of}" viewBox="0 0 14 14"
  fill="currentColor" role="img" aria-label="${inWords(of)} priority"><title>${inWords(of)} priority</title>
  ${of === "urgent" ? html`<path d="M3 0h8a3 3 0 0 1 3 3v8a3 3 0 0 1-3 3H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3zm3 3v5h2V3zm0 6v2h2V9z" />` : [1, 2, 3].map((at) => bar(at, RANKS[of]))}
</svg>`;

const hueOf = (text) =>
  Array.from(text).reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) % 360, 0);

export const Label = ({ text }) =>
  html`<span class="label" style=${{ "--hue": hueOf(text) }}>${text}</span>`;

export const ProjectDot = ({ of }) => html`<span class="dot" style=${{ "--hue": of.hue }}></span>`;
export const ProjectName = ({ project }) =>
  html`<span><${ProjectDot} of=${project} />${project.name}</span>`;

export const Progress = ({ of: name, stats: { done, total } }) =>
  html`<span class="progress" role="progressbar" aria-label="Progress of ${name}" aria-valuemax=${total}
    aria-valuenow=${done} style=${{ "--done": `${(100 * done) / (total || 1)}%` }}></span>`;

/** A link to a task, by its number and title; `more` are further attributes. */
export const TaskLink = ({ task: { number, title }, ...more }) =>
  html`<a href=${link({ task: number })} ...${more}>#${number} ${title}</a>`;

/** A list below its heading with the number of its rows, if it has any. */
export const section = (title, rows) =>
  rows.length > 0 &&
  html`<section class="stack" key=${title}>
    <h2>${title} <span class="dim">${rows.length}</span></h2>
    <ul class="rows" aria-label=${title}>${rows}</ul>
  </section>`;

/** The content of an empty view. */
export const Empty = ({ text, hint, children }) => html`<div class="empty stack">
  <svg viewBox="0 0 48 48" width="56" fill="currentColor" opacity="0.3" aria-hidden="true">
    <path d="M6 8h36v8H6zM6 20h24v8H6zM6 32h30v8H6z" />
  </svg><b>${text}</b>${hint && html`<p class="dim">${hint}</p>`}${children}
</div>`;

/** A modal dialog. Its button, Escape, and a press beside it close it. */
export function Dialog({ title, head, className = "", onClose, children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    const { current } = dialog;
    current.showModal();
    if (head) current.focus(); // not on a button: the keys act on the opened task
    placeNotices();
    return () => {
      current.close();
      placeNotices();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const press = ({ target, clientX: x, clientY: y }) => {
    const { left, right, top, bottom } = dialog.current.getBoundingClientRect();
    const isBeside = x < left || x > right || y < top || y > bottom;
    if (target === dialog.current && isBeside) onClose();
  };
  return html`<dialog ref=${dialog} tabindex="-1" class="panel ${className}" aria-label=${title} onCancel=${cancel}
    onMouseDown=${press}>
    <div class="stack">
      <div class="head line">
        <div class="grow">${head ?? html`<h2>${title}</h2>`}</div>
        ${button("✕", onClose, "icon", { "aria-label": "Close" })}
      </div>
      ${children}
    </div>
  </dialog>`;
}

/** Place a popover below its anchor, or above it if there is more room. */
export function placeAt({ style, offsetWidth: width, offsetHeight: height }, anchor) {
  const { left, top, bottom } = anchor.getBoundingClientRect();
  style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  if (bottom + height < innerHeight) style.top = `${bottom + 4}px`;
  else style.bottom = `${Math.max(8, Math.min(innerHeight - top + 4, innerHeight - height - 8))}px`;
}

/** A popover at the button that opened it. The browser closes it on Escape and on a press elsewhere. */
export function Popover({ label, anchor, role = "group", onClose, children, ...more }) {
  const place = useRef(null);
  useLayoutEffect(() => {
    place.current.showPopover();
    placeAt(place.current, anchor);
    place.current.querySelector("input, button, a").focus();
  }, [anchor]);
  const close = ({ newState }) => {
    if (newState !== "closed") return;
    if (document.activeElement === document.body) anchor.focus();
    onClose();
  };
  return html`<div ref=${place} popover="auto" class="menu panel" role=${role} aria-label=${label}
    onToggle=${close} ...${more}>${children}</div>`;
}

/** A menu of links and buttons, which arrows move through. */
export function Menu(props) {
  const step = (event) =>
    stepAmong(event, [...event.currentTarget.querySelectorAll("button, a")], true);
  return html`<${Popover} ...${props} onKeyDown=${step} />`;
}

export function Copyable({ label, text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<div class="line">
    <input class="grow" readonly aria-label=${label} value=${text}
      onFocus=${(event) => event.target.select()} />
    ${navigator.clipboard && button("Copy", copy, "")}
    <span role="status">${isCopied && "Copied."}</span>
  </div>`;
}
