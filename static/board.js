// The board: a column of cards for each status, its filters, and moving cards.
import { create, patch, serverTime } from "./api.js";
import { announced, changeTasks, clearSelection, deleted, isKept, pressKey } from "./changes.js";
import { put, putAll, selectColumn, selectedTasks, selection, SelectionBar } from "./changes.js";
import { selectUpTo, toggleSelected, useMenu, withSelected } from "./changes.js";
import { columns, doneSince, filteredFields, FILTERS, isBoardOf, isFiltered } from "./columns.js";
import { isLate, loadBoard, orderOf, shownTask } from "./columns.js";
import { draftChanges, drafts } from "./forms.js";
import { inbox, unreadTasks } from "./inbox.js";
import { dismiss, loadUntil, notify, notifyFault } from "./notices.js";
import { Avatar, button, DateOf, Dot, Empty, Icon, Label } from "./parts.js";
import { placeAt, Priority, ProjectName } from "./parts.js";
import { Choice, labelOption } from "./picker.js";
import { letterOf, stepAmong, useScroll } from "./place.js";
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { pauseRefresh, refresh } from "./refresh.js";
import { ruleInWords } from "./repeat.js";
import { address, go, link, placeOf, Store, useStore, viewLink } from "./store.js";
import { count, dayOf, isStuck, number, PRIORITIES } from "./words.js";
import { chosenProject, countOf, draftOf, isTeam, labelPairs, memberOf } from "./workspace.js";
import { milestoneOf, projectOf, rights, teamPairs } from "./workspace.js";
import { useMilestones, workspace } from "./workspace.js";

const DUES = { "": "Any due date", overdue: "Overdue", week: "Within 7 days" };
const ORDERS = {
  rank: "Manual order",
  "-updated_at": "Last changed",
  due_date: "Due date",
  "-priority": "Priority",
  "-created_at": "Newest",
};
const clearFilters = () => go(Object.fromEntries([...FILTERS, "sort"].map((name) => [name, ""])));

/** The ids of tasks with unsent drafts, as one text. */
function unsentTasks() {
  const names = drafts().filter((name) => name.startsWith("draft of "));
  return names.map((name) => /(?:task|comment on) (\S+) by/.exec(name)?.[1] ?? "").join(" ");
}

export function Due({ task }) {
  const late = isLate(task);
  const isToday = dayOf(task.due_date) === dayOf(serverTime());
  return html`<span class=${late ? "late" : isToday ? "today" : ""}>
    ${late && html`<${Icon} of="clock" />`}<${DateOf} at=${task.due_date} />${late && html`<span class="skip"> overdue</span>`}
  </span>`;
}

export function Facts({ task, isUnsent }) {
  const { priority, due_date, comment_count, checks, milestone_id } = task;
  const milestone = address.value.milestone !== milestone_id && milestoneOf(milestone_id);
  const said = count(comment_count, "comment");
  return html`<div class="facts line">
    ${priority !== "medium" && html`<${Priority} of=${priority} />`}
    ${task.blocked_by.length > 0 && html`<span class="pill">Blocked</span>`}
    ${due_date && task.status !== "done" && html`<${Due} ...${{ task }} />`}
    ${task.repeat && html`<span role="img" aria-label="Repeats" title=${ruleInWords(task.repeat, dayOf(due_date))}>↻</span>`}
    ${checks && html`<span role="img" aria-label="${checks.done} of ${checks.total} ticked">☑ ${checks.done}/${checks.total}</span>`}
    ${comment_count > 0 && html`<span class="said" role="img" aria-label=${said}><${Icon} of="bubble" />${comment_count}</span>`}
    ${task.question_id && html`<span class="pill">Question</span>`}
    ${isStuck(task) && html`<span class="pill">Stuck</span>`}
    ${milestone && html`<span title="Milestone">◇ ${milestone.title}</span>`}
    ${task.labels.map((text) => html`<${Label} text=${text} />`)}
    ${isUnsent && html`<span class="pill draft">Not saved</span>`}
  </div>`;
}

function Card({ task, unsent, unread, selected, open }) {
  const project = !address.value.project && projectOf(task.project_id);
  const assignee = memberOf(task.assignee_id);
  const openMenu = (event) => open(withSelected(task), event.currentTarget);
  const more = { "aria-label": `More for “${task.title}”`, title: "More", "aria-haspopup": "true" };
  const isSelected = selected.includes(task.id);
  const mark = html`<b role="img" aria-label="Selected">✓ </b>`;
  return html`<li class="card panel stack ${isSelected ? "selected" : ""}" data-task=${task.id} draggable=${isTeam()}>
    <p class="dim line"><span>${isSelected && mark}#${task.number}</span>${unread.includes(task.id) && html`<span class="dot news" role="img" aria-label="New for you" title="New for you"></span>`}
      ${project && html`<${ProjectName} project=${project} />`}
      ${assignee && html`<span class="end"><${Avatar} person=${assignee} /></span>`}</p>
    <a class="title" href=${link({ task: task.number })} draggable=${false}>${task.title}</a>
    ${isTeam() && button("⋯", openMenu, "move icon", more)}
    <${Facts} task=${task} isUnsent=${unsent.includes(task.id)} />
  </li>`;
}

/**
 * Some cards of a column. They are drawn again only when something that they show has changed; while the browser skips
 * them, as they are out of sight, only when the tasks have.
 */
function Chunk({ tasks, gone, ...context }) {
  const [isSkipped, setSkipped] = useState(false);
  const shown = useRef(context);
  if (!isSkipped) shown.current = context;
  const cardOf = (task) => html`<${Card} key=${task.id} task=${task} ...${shown.current} />`;
  const look = ({ skipped }) => setSkipped(skipped);
  const list = () =>
    html`<ul onContentVisibilityAutoStateChange=${look}>${tasks.filter(isKept).map(cardOf)}</ul>`;
  return useMemo(list, [tasks, gone, ...Object.values(shown.current)]);
}

/** The end of a column. Scrolling there loads more tasks. */
function More({ column, tasks }) {
  const end = useRef(null);
  const load = () => column.loadMore().catch((error) => notifyFault(error, load));
  useEffect(() => {
    const watch = ([entry]) => entry.isIntersecting && load();
    const root = end.current.closest(".column");
    const observer = new IntersectionObserver(watch, { root, rootMargin: "400px" });
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [tasks]);
  return html`<div ref=${end}>${button("Show more", load, "quiet more")}</div>`;
}

function QuickAdd({ status, title }) {
  const draft = draftOf(`a new one in ${status} of ${address.value.project}`);
  const [text, show] = useState(sessionStorage.getItem(draft) ?? "");
  const setText = (typed) => [show(typed), sessionStorage.setItem(draft, typed)];
  const failed = useRef({ titles: [], notice: 0 }); // titles that were typed offline
  const add = async (name, fields) => {
    const task = await create("/tasks", { ...fields, title: name });
    if (status !== "todo") await patch(`/tasks/${task.id}`, { status });
    await refresh();
    const open = { words: "Open", run: () => go({ task: task.number }) };
    const where = isFiltered() ? "which the filters hide" : "the last of its column";
    if (!shownTask(task.id)) notify(`Created “${name}”, ${where}.`, open);
  };
  const keep = (error, pair) => {
    if (!error.isTemporary) {
      setText(sessionStorage.getItem(draft) || pair[0]);
      return notifyFault(error, null, `Not created: “${pair[0]}”. `);
    }
    failed.current.titles.push(pair);
    dismiss(failed.current.notice);
    const names = failed.current.titles.map(([name]) => `“${name}”`).join(", ");
    failed.current.notice = notifyFault(error, again, `Not created: ${names}. `);
  };
  const send = (...pair) => add(...pair).catch((error) => keep(error, pair));
  const again = async () => {
    for (const pair of failed.current.titles.splice(0)) await send(...pair);
  };
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) send(text, filteredFields());
    setText("");
  };
  return html`<form class="add field" onSubmit=${submit}>
    <input value=${text} placeholder="+ Add a task" aria-label="New task in ${title}"
      onInput=${(event) => setText(event.target.value)} />
  </form>`;
}

/** Whether tasks were completed earlier than those that are shown, which are `total`. */
const hasOlder = (total) => doneSince() && countOf("done") > total;

const Skeleton = () =>
  html`<ul>${[1, 2, 3].map(() => html`<li class="card panel"><br /><br /></li>`)}</ul>`;

const folded = new Store((localStorage.getItem("folded") ?? "").split(" ")); // statuses, in this browser

function foldColumn(status) {
  const others = folded.value.filter((one) => one !== status);
  folded.replace(others.length < folded.value.length ? others : [...others, status]);
  localStorage.setItem("folded", folded.value.join(" "));
}

function ColumnView({ column, isOver, ...context }) {
  const { chunks, total, isExact, hasMore, isBusy, tasks } = useStore(column);
  const canAdd = isTeam() && chosenProject()?.status === "active";
  const id = `column-${column.status}`;
  const isLoading = isBusy && !tasks.length;
  const left = total - tasks.length + tasks.filter(isKept).length;
  const isFolded = useStore(folded).includes(column.status);
  const about = `${isFolded ? "Unfold" : "Fold"} ${column.title}`;
  const more = { "aria-label": about, title: about, "aria-expanded": String(!isFolded) };
  const marked = new Set(context.selected);
  const cardsOf = (tasks) => {
    const selected = tasks.flatMap(({ id }) => (marked.has(id) ? id : [])).join(" ");
    return html`<${Chunk} key=${tasks[0].id} ...${{ ...context, tasks, selected }} />`;
  };
  return html`<section ref=${useScroll(column.scrolled)} class="column ${isOver ? "over" : ""} ${isFolded ? "folded" : ""}" data-status=${column.status}
    aria-labelledby=${id} aria-busy=${isLoading}>
    <div class="top line">
      <h2 id=${id} class="line grow" tabindex="-1">
        <span><${Dot} status=${column.status} />${column.title}</span>
        ${!isLoading && html`<span class="dim">${number(left)}${!isExact && "+"}</span>`}
      </h2>
      ${button(html`<${Icon} of="chevron" />`, () => foldColumn(column.status), "icon", more)}
    </div>
    <div class="grow" hidden=${isFolded}>
      ${isLoading ? html`<${Skeleton} />` : chunks.map(cardsOf)}
      ${hasMore && html`<${More} column=${column} tasks=${tasks} />`}
      ${column.status === "done" && hasOlder(total) && button("Show earlier", () => go({ older: "1" }), "quiet more")}
    </div>
    ${canAdd && !isFolded && html`<${QuickAdd} status=${column.status} title=${column.title} />`}
  </section>`;
}

const taskOn = (element) => shownTask(element.closest("[data-task]")?.dataset.task);
const isByHand = () => orderOf(address.value) === "rank";
const BY_HAND = "To move cards up and down, choose “Manual order”.";

function stepCards(event) {
  const { key, target, altKey } = event;
  if (!target.matches(".card .title")) return;
  const cardsOf = (column) => [...column.querySelectorAll(".card .title")];
  const board = [...document.querySelectorAll(".column")].map(cardsOf);
  const from = board.findIndex((column) => column.includes(target));
  const place = board[from].indexOf(target);
  const down = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (altKey && board[from][place + down]) putBy(taskOn(target), board[from], place + down);
  if (altKey || stepAmong(event, board[from])) return; // Alt with ← or → belongs to the browser
  const columns = { ArrowRight: board.slice(from + 1), ArrowLeft: board.slice(0, from).reverse() };
  const next = columns[key]?.find(({ length }) => length);
  next?.[Math.min(place, next.length - 1)].focus();
}

/** The places in its column to which a menu can move a card, as `[words, function]` pairs. */
function placesOf(task) {
  const titles = [...document.querySelectorAll(`[data-status="${task.status}"] .card .title`)];
  const at = titles.findIndex((title) => taskOn(title)?.id === task.id);
  const all = { "Move to the top": 0, "Move up": at - 1, "Move down": at + 1 };
  if (!isByHand()) return [];
  return Object.entries(all)
    .filter(([words, to]) => to !== at && titles[to] && !(at === 1 && words === "Move up"))
    .map(([words, to]) => [words, () => putBy(task, titles, to)]);
}

function putBy(task, titles, at) {
  const others = titles.map(taskOn).filter(({ id }) => id !== task.id);
  if (!isByHand()) notify(BY_HAND);
  else if (isTeam()) put(task, task.status, others, at);
}

/** The keys of a card, and of the bar. They act on all selected tasks if the card is one of them. */
function pressOn(event, open) {
  if (!event.target.matches(".card .title, #filters button")) return;
  const task = taskOn(event.target);
  const acts = { Escape: clearSelection };
  if (task) acts.e = () => go({ task: task.number });
  if (task && isTeam()) acts.x = () => toggleSelected(task);
  if (acts.x && letterOf(event) === "a" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    return selectColumn(task);
  }
  pressKey(event, task ? withSelected(task) : selectedTasks(), open, acts);
}

function selectByClick(event) {
  const task = event.target.matches(".title") && taskOn(event.target);
  if (!task || !isTeam() || !(event.shiftKey || event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  const cards = [...document.querySelectorAll("#board :not([hidden]) > ul > [data-task]")];
  if (!event.shiftKey) return toggleSelected(task);
  const ids = cards.map(({ dataset }) => dataset.task);
  selectUpTo(task.id, ids);
}

/** Where a dragged card is: the `status` of the column, and in manual order the `others`, its place `at`, and a line. */
function placeUnder(event, task) {
  const column = event.target.closest(".column");
  const status = column?.dataset.status;
  if (!column || !isByHand()) return { status };
  const cards = [...column.querySelectorAll(`[data-task]:not([data-task="${task.id}"])`)];
  const boxes = cards.map((one) => one.getBoundingClientRect());
  const below = boxes.findIndex(({ top, height }) => event.clientY < top + height / 2);
  const at = below < 0 ? boxes.length : below;
  const { left, width } = column.getBoundingClientRect();
  const top = boxes[at]?.top ?? boxes.at(-1)?.bottom;
  const line = top && { left: `${left + 6}px`, width: `${width - 12}px`, top: `${top - 4}px` };
  return { status, others: cards.map(taskOn), at, line };
}

function useDragging() {
  const [over, setOver] = useState({});
  const dragged = useRef(null);
  const start = (event) => {
    dragged.current = shownTask(event.target.dataset?.task);
    if (!dragged.current) return;
    event.dataTransfer.setData("text/plain", dragged.current.title); // Firefox needs data
    pauseRefresh(true);
  };
  const pass = (event) => {
    if (!dragged.current) return;
    event.preventDefault();
    setOver(placeUnder(event, dragged.current));
  };
  const end = () => {
    dragged.current = null;
    pauseRefresh(false);
    setOver({});
  };
  const drop = (event) => {
    event.preventDefault();
    const task = shownTask(dragged.current?.id); // as it is now: an answer may have come meanwhile
    if (!task) return;
    const { status, others, at } = placeUnder(event, task);
    end();
    const all = withSelected(task).toSorted((one, other) => (one.rank < other.rank ? -1 : 1));
    const left = (list) => list.filter((one) => !all.includes(one));
    if (others && all.length === 1) put(task, status, others, at);
    else if (others) putAll(all, status, left(others), left(others.slice(0, at)).length);
    else if (status && status !== task.status) {
      const some = all.filter((one) => one.status !== status);
      changeTasks(some.map((one) => [one, { status }]));
    }
  };
  return { over, handlers: { onDragStart: start, onDragOver: pass, onDragEnd: end, onDrop: drop } };
}

/** A choice of a name in the address. */
export function Filter({ name, label, pairs, draw }) {
  const value = name === "sort" ? orderOf(address.value) : (address.value[name] ?? "");
  const look = value && FILTERS.includes(name) ? "chip set" : "chip";
  return html`<${Choice} ...${{ label, look, value, draw }} options=${pairs}
    onChoose=${(chosen) => go({ [name]: chosen })} />`;
}

function Search() {
  const { q = "" } = address.value;
  const [typed, setTyped] = useState(null); // and is not in the address yet
  const timer = useRef(0);
  const input = (event) => {
    clearTimeout(timer.current);
    const text = event.target.value;
    setTyped(text);
    timer.current = setTimeout(() => {
      go({ q: text }, { replace: true });
      setTyped(null);
    }, 250);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<input type="search" id="search" class="chip" value=${typed ?? q}
    aria-label="Search" placeholder="Search tasks" onInput=${input} />`;
}

const clearButton = () => button("Clear filters", clearFilters);

/** The filters. On narrow screens a button opens all but the search (page.css). */
function Filters({ isEmpty }) {
  const opener = useRef(null);
  const set = FILTERS.filter((name) => address.value[name] && name !== "q").length;
  const place = ({ target, newState }) => {
    if (target.id === "choices" && newState === "open") placeAt(target, opener.current);
  };
  const me = isTeam() ? [["me", "Me"]] : [];
  const people = [["", "Anyone"], ...me, ["none", "Nobody"], ...teamPairs()];
  const priorities = [["", "Any priority"], ...Object.entries(PRIORITIES).reverse()];
  const { project, milestone, label } = address.value;
  const milestones = [["", "Any milestone"], ...useMilestones(project, milestone)];
  const labels = [["", "Any label"], ...labelPairs(label ? [label] : [])];
  const ofLabel = html`<${Filter} name="label" label="Label" pairs=${labels} draw=${labelOption} />`;
  const ofMilestone = html`<${Filter} name="milestone" label="Milestone" pairs=${milestones} />`;
  return html`<div id="filters" class="line" role="search" aria-label="Tasks">
    <${Search} />
    <button type="button" id="opener" class="chip ${set && "set"}" popovertarget="choices" ref=${opener}>
      Filter${set > 0 && ` (${set})`}</button>
    <div id="choices" class="menu panel" popover="auto" onToggle=${place}>
    <${Filter} name="person" label="Assignee" pairs=${people} />
    <${Filter} name="priority" label="Priority" pairs=${priorities} />
    <${Filter} name="due" label="Due" pairs=${Object.entries(DUES)} />
    ${milestones.length > 1 && ofMilestone}
    ${labels.length > 1 && ofLabel}
    <${Filter} name="sort" label="Order" pairs=${Object.entries(ORDERS)} />
    ${isFiltered() && !isEmpty && clearButton()}
    </div>
  </div>`;
}

const FIRST = "A project groups the tasks of one goal. Create the first one, and add its tasks.";

/** Steps that help you start in an empty workspace, besides creating its first project. */
const nextSteps = () => html`<ul class="stack">
  <li><a href=${viewLink("account")}>Say who you are</a>: your name, as others see it</li>
  ${rights().isAdmin && html`<li><a href=${viewLink("people")}>Invite your team</a> under People</li>`}
  <li><a href=${viewLink("account")}>Let an agent work along</a> with a key of its own</li>
</ul>`;

function NoTasks({ onNewTask }) {
  const nothing = "Nothing matches these filters.";
  const fewer = "Remove a filter, or search for fewer words.";
  if (isFiltered()) return html`<${Empty} text=${nothing} hint=${fewer}>${clearButton()}<//>`;
  const isNew = !workspace.value.projects.length;
  const canAdd = isTeam() && chosenProject()?.status !== "archived";
  if (canAdd && !isNew)
    return html`<p class="dim hint">No tasks yet. Start with a title below.</p>`;
  const hint = canAdd ? FIRST : "They appear here once somebody adds one.";
  return html`<${Empty} text="No tasks yet." hint=${hint}>
    ${canAdd && html`${button("Create the first project", onNewTask, "primary")}${nextSteps()}`}
  <//>`;
}

function Archived({ project }) {
  const unarchive = async () => {
    await patch(`/projects/${project.id}`, { status: "active" }).catch(notifyFault);
    document.getElementById("title").focus(); // the button disappears
    await refresh();
  };
  return html`<p class="band">This project is archived: it takes no new tasks.
    ${isTeam() && button("Unarchive", unarchive)}
  </p>`;
}

const scrolled = {}; // the board, sideways

export function Board({ onNewTask }) {
  const shown = useStore(address);
  const { missing } = useStore(workspace);
  const [open, menu] = useMenu({ places: placesOf });
  const dragging = useDragging();
  const sideways = useScroll(scrolled);
  const states = columns.map(useStore);
  const place = placeOf(shown);
  useEffect(() => {
    if (isBoardOf(place)) return;
    clearSelection();
    loadUntil(loadBoard, () => placeOf(address.value) === place);
  }, [place]);
  const project = chosenProject();
  useStore(draftChanges);
  const unsent = unsentTasks();
  useStore(inbox);
  const isEmpty =
    states.every(({ tasks, isBusy }) => !tasks.some(isKept) && !isBusy) &&
    (isFiltered() || !hasOlder(0));
  const { members, projects, milestones } = workspace.value;
  const nameOf = ({ id, name, full_name, title }) => [id, name ?? full_name ?? title];
  const named = [members, projects, ...Object.values(milestones)].flat();
  const names = JSON.stringify(named.map(nameOf)); // that cards show
  const [unread, hour] = [unreadTasks(), serverTime().slice(0, 13)];
  const [selected, gone] = [useStore(selection), useStore(deleted)];
  const context = { place, unsent, unread, selected, gone, open, names, hour };
  const viewOf = (column) => html`<${ColumnView} key=${column.status} column=${column} ...${context}
    isOver=${dragging.over.status === column.status && !dragging.over.line} />`;
  const press = (event) => {
    stepCards(event);
    pressOn(event, open);
  };
  const chosen = selectedTasks();
  const { line } = dragging.over;
  const board = html`<div id="board" ref=${sideways} role="group" aria-label="Columns" onKeyDown=${press}
    onClick=${selectByClick} ...${dragging.handlers}>${columns.map(viewOf)}</div>
    ${line && html`<div class="drop" style=${line}></div>`}`;
  const isUnknown = shown.project && missing === shown.project && !project;
  const unknown = html`<p class="band">There is no such project.${" "}
    <a href=${viewLink("", { project: "", milestone: "" })}>All projects</a></p>`;
  return html`${project?.status === "archived" && html`<${Archived} project=${project} />`}
    ${isUnknown && unknown}
    ${chosen.length ? html`<${SelectionBar} tasks=${chosen} open=${open} onKeyDown=${press} />` : html`<${Filters} isEmpty=${isEmpty} />`}
    ${isEmpty && html`<${NoTasks} onNewTask=${onNewTask} />`}
    ${(project || !(isEmpty || isUnknown)) && board}
    <p class="skip" role="status">${useStore(announced)}</p> ${menu}`;
}
