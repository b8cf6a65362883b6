// Lists to choose from by typing (ARIA's combobox with a listbox), at a button or in the dialog that finds everything.
import { get, serverTime } from "./api.js";
import { notifyFault } from "./notices.js";
import { Avatar, Dialog, Dot, Icon, Label, Popover, Priority, ProjectDot } from "./parts.js";
import { focusOn, openedTitles, placeAfter } from "./place.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { link } from "./store.js";
import { dayAfter, dayInWeek, dayMeant, dayOf, foldedText, hasWordWith } from "./words.js";
import { PRIORITIES, STATUSES } from "./words.js";
import { activeMembers, memberOf, projectOf, projectsThatAre } from "./workspace.js";

const FEW = 8; // options; for so few a phone shows no keyboard
const DAYS_AHEAD = 8; // listed, from today on
const PAUSE_MS = 200; // after the last letter, before the server is asked
const [OPENED_MOST, FOUND_MOST] = [5, 10];
const AROUND = 24; // characters
const LABEL = "Tasks, projects, people, views, commands";

function markOf(id) {
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
 * A field to type into, with the `options` that match, as `[value, words, about, mark]`. `value` is the chosen one, or
 * with `multiple` the list of them. With `isNewAllowed` you can choose what you typed. The options in `found` follow,
 * whatever you type. `onChoose` gets the new value, `onDone` closes the list, and `draw` draws an option.
 */
function OptionList({ label, start = "", options, found: others = [], ...rest }) {
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
    const next = placeAfter(event, at, found.length);
    if (event.key === "Tab") onDone(list.current);
    if (next === undefined && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation(); // a form would be sent
    if (next !== undefined) return setMoved(next);
    const { value: now } = event.target; // you may have typed faster than the list is drawn
    const option = now === typed ? found[at] : foundBy(now.trim())[0];
    if (option) choose(option);
  };
  const optionOf = (option, place) => html`<li role="option" id="option-${place}" key=${option[0]}
    aria-selected=${isChosen(option)} class=${place === at ? "line current" : "line"}
    onMouseDown=${(event) => event.preventDefault()} onClick=${() => choose(option)}>
    ${draw(option)}</li>`;
  const stay = (event) => event.preventDefault(); // a press here is not a press on the label around it
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

/** Such a list at the button that opened it; `children` is drawn below. */
export function Picker({ label, hint = label, anchor, onClose, children, ...rest }) {
  const close = (list) => {
    list.closest("[popover]").hidePopover();
    // Inside another popover, the browser does not move the focus back.
    if (document.activeElement.closest("[popover]:not(:popover-open)")) anchor.focus();
    onClose(); // the browser sends no event if it was opened just now
  };
  return html`<${Popover} role="dialog" ...${{ label, anchor, onClose }}>
    <${OptionList} label=${hint} ...${rest} onDone=${close} />
    ${children?.(close)}
  <//>`;
}

/** Choose a day from the next ones, by typing (`fri`, `12 dec`, `3 weeks`), or in the browser's calendar. */
export function DayMenu({ label, value, onChoose, start = "", ...rest }) {
  const [typed, setTyped] = useState(start);
  const today = dayOf(serverTime());
  const optionOf = (day) => [day, dayInWeek(day, serverTime())];
  const next = Array.from({ length: DAYS_AHEAD }, (_, days) => dayAfter(today, days));
  const ahead = [...new Set([...(value ? [value] : []), ...next])].sort().map(optionOf);
  const meant = dayMeant(typed, today);
  const isListed = !meant || ahead.some(([day]) => day === meant);
  const calendar = (close) => {
    const submit = (event) => {
      event.preventDefault();
      event.stopPropagation(); // a form around it would be sent, too
      close(event.target);
      onChoose(event.target.elements.day.value);
    };
    return html`<form class="line" onSubmit=${submit}>
      <input type="date" name="day" class="grow" aria-label=${label} value=${value} /> <button>Set</button>
    </form>`;
  };
  return html`<${Picker} hint="Try “fri”, “12 dec”, “3 weeks”" ...${{ label, value, onChoose, start, ...rest }}
    options=${[...ahead, ["", "None"]]} found=${isListed ? [] : [optionOf(meant)]} onType=${setTyped}>${calendar}<//>`;
}

/** A button that shows what is chosen and opens a list (`as`). Typing a letter opens it, too. */
export function Choice({ label, look = "", name, disabled, as: List = Picker, ...rest }) {
  const { options, value, multiple, draw } = rest;
  const [opened, setOpened] = useState(null);
  const open = ({ currentTarget: anchor }, start = "") =>
    setOpened((now) => ({ anchor, start: (now?.start ?? "") + start })); // you may type before it is drawn
  const press = (event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    const isLetter = key.length === 1 && key !== " " && !ctrlKey && !metaKey && !altKey;
    if (!isLetter && key !== "ArrowDown") return;
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
  ${opened && html`<${List} ...${rest} ...${opened} label=${label} onClose=${() => setOpened(null)} />`}`;
}

/** The part of a text around the first of these words; empty if it contains none of them. */
function excerptOf(text, words) {
  const at = Math.max(...words.map((word) => foldedText(text).indexOf(word)));
  const around = text.slice(Math.max(0, at - AROUND), at + AROUND).replace(/\s+/g, " ");
  return at < 0 ? "" : `…${around}…`;
}

/** A task with its project, or with the part of its description that contains words that the title lacks. */
const taskOption =
  (typed) =>
  ({ number, title, description, status, project_id }) => {
    const isElsewhere = (word) => !foldedText(`#${number} ${title}`).includes(word);
    const others = foldedText(typed).split(" ").filter(isElsewhere);
    const found = others.length > 0 && (excerptOf(description ?? "", others) || "in a comment");
    const about = found || projectOf(project_id)?.name;
    return [link({ task: number }), `#${number} ${title}`, about, markOf(status)];
  };
const openedOption = (title) => [link({ task: /\d+/.exec(title)[0] }), title];
const optionTo = (names, ...about) => [`#${new URLSearchParams(names)}`, ...about];
const viewOption = ([view, { title }]) =>
  optionTo({ view }, title, "View", html`<${Icon} of=${view} />`);
const projectOption = ({ id, name }) => optionTo({ project: id }, name, "Project", markOf(id));
const personOption = ({ id, full_name }) =>
  optionTo({ person: id }, full_name, "Person", markOf(id));

/** Finds by words; `views` are entries of their names, `commands` are functions by their words. */
export function Find({ views, commands, onClose }) {
  const [typed, setTyped] = useState("");
  const [tasks, setTasks] = useState([]);
  const text = typed.trim();
  useEffect(() => {
    let isOver = !text;
    const show = (lists) => isOver || setTasks(lists.flatMap((list) => list.tasks));
    const query = { q: text, limit: FOUND_MOST, sort: "-updated_at" };
    const ofStatus = (status) => get("/tasks", { ...query, status });
    const ask = () => Promise.all(["open", "done"].map(ofStatus)); // completed tasks come last
    const look = () => isOver || ask().then(show, (error) => notifyFault(error));
    const timer = setTimeout(look, PAUSE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text]);
  const [, number] = /^#?(\d{1,9})$/.exec(text) ?? [];
  const isMeant = (task) => String(task.number) === number;
  const sorted = tasks.toSorted((one, other) => isMeant(other) - isMeant(one));
  const found = sorted.slice(0, FOUND_MOST).map(taskOption(text));
  if (number && !tasks.some(isMeant)) found.unshift(openedOption(`#${number}`)); // not answered yet
  const options = [
    ...(text ? [] : [...new Set(openedTitles)].slice(0, OPENED_MOST).map(openedOption)),
    ...views.map(viewOption),
    ...(text ? projectsThatAre("active").map(projectOption) : []),
    ...(text ? activeMembers().map(personOption) : []),
    ...Object.keys(commands).map((words) => [words, words, "Command"]),
  ];
  const choose = (value) => {
    if (commands[value]) return commands[value]();
    location.hash = value;
    setTimeout(focusOn, 0, "title"); // after the dialog is closed; what had the focus may disappear
  };
  return html`<${Dialog} title="Find" className="find" onClose=${onClose}>
    <${OptionList} label=${LABEL} value="" onType=${setTyped} onDone=${onClose} onChoose=${choose}
      ...${{ options }} found=${text ? found : []} />
  <//>`;
}
