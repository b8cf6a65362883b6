// The board: a column of cards for each status, its filters, and moving cards.
import { changeTask, create, patch, serverTime } from "./api.js";
import { columns, filteredFields, isBoardOf, isLate } from "./columns.js";
import { loadBoard, showAt, shownTask } from "./columns.js";
import { drafts } from "./forms.js";
import { inbox, unreadTasks } from "./inbox.js";
import { notify, notifyFault } from "./notices.js";
import { Avatar, button, DateOf, Dot, Empty, Icon } from "./parts.js";
import { Priority, ProjectName } from "./parts.js";
import { Choice, Picker } from "./picker.js";
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { focusCard } from "./place.js";
import { pauseRefresh, refresh } from "./refresh.js";
import { address, go, link, placeOf, Store, useStore, viewLink } from "./store.js";
import { count, dayOf, number, PRIORITIES, STATUSES } from "./words.js";
import { chosenProject, isTeam, memberOf, projectOf } from "./workspace.js";
import { teamPairs, useMilestones, workspace } from "./workspace.js";

const DUES = { "": "Any time", overdue: "Overdue", week: "Within 7 days" };
const ORDERS = {
  "": "Last changed",
  due_date: "Due date",
  "-priority": "Priority",
  "-created_at": "Newest",
};
const FILTERS = ["q", "person", "priority", "due", "milestone", "sort"];

const isFiltered = () => FILTERS.some((name) => address.value[name] && name !== "sort");
const clearFilters = () => go(Object.fromEntries(FILTERS.map((name) => [name, ""])));

/** Move a task, unless somebody else has moved it meanwhile. The focus goes with its card. */
async function move(task, status, { isUndo = false } = {}) {
  const hadFocus = document.activeElement.closest(`[data-task="${task.id}"]`);
  showAt({ ...task, status, updated_at: serverTime() });
  if (hadFocus) queueMicrotask(() => focusCard(task.id, status)); // when it is drawn
  try {
    const moved = await changeTask(task, { status });
    const undo = { words: "Undo", run: () => move(moved, task.status, { isUndo: true }) };
    notify(`Moved “${task.title}” to ${STATUSES[status]}.`, isUndo ? null : undo);
  } catch (error) {
    showAt(task);
    const before = `“${task.title}” was not moved. `;
    if (error.theirs) notify(`${before}Someone has moved it meanwhile; you see now where it is.`);
    else notifyFault(error, () => move(task, status), before);
    if (error.isTemporary) return;
  }
  await refresh();
  if (document.activeElement === document.body) focusCard(task.id, status);
}

/** The ids of tasks with something typed that was not sent, as one text. */
function unsentTasks() {
  const names = drafts().filter((name) => name.startsWith("draft of "));
  return names.map((name) => /(?:task|comment on) (\S+) by/.exec(name)?.[1] ?? "").join(" ");
}

function Facts({ task, isUnsent }) {
  const { priority, due_date, comment_count } = task;
  const late = isLate(task);
  const isToday = task.status !== "done" && dayOf(due_date) === dayOf(serverTime());
  const due = html`<span class=${late ? "late" : isToday ? "today" : ""}>
    ${late && html`<${Icon} of="clock" />`}<${DateOf} at=${due_date} />${late && html`<span class="skip"> overdue</span>`}
  </span>`;
  const said = count(comment_count, "comment");
  return html`<div class="facts line">
    ${priority !== "medium" && html`<${Priority} of=${priority} />`}
    ${task.blocked_by.length > 0 && html`<span class="pill">Blocked</span>`}
    ${due_date && due}
    ${comment_count > 0 && html`<span class="said" role="img" aria-label=${said}><${Icon} of="bubble" />${comment_count}</span>`}
    ${task.question_id && html`<span class="pill">Question</span>`}
    ${isUnsent && html`<span class="pill draft">Not saved</span>`}
  </div>`;
}

function Card({ task, unsent, unread, openMenu }) {
  const project = !address.value.project && projectOf(task.project_id);
  const assignee = memberOf(task.assignee_id);
  const open = (event) => openMenu(task, event.currentTarget);
  const more = { "aria-label": `Move “${task.title}”`, title: "Move", "aria-haspopup": "dialog" };
  return html`<li class="card panel stack" data-task=${task.id} draggable=${isTeam()}>
    <p class="dim line"><span>#${task.number}</span>${unread.includes(task.id) && html`<span class="news" role="img" aria-label="New for you" title="New for you"></span>`}
      ${project && html`<${ProjectName} project=${project} />`}
      ${assignee && html`<span class="end"><${Avatar} person=${assignee} /></span>`}</p>
    <a class="title" href=${link({ task: task.number })} draggable=${false}>${task.title}</a>
    ${isTeam() && button("⋯", open, "move icon", more)}
    <${Facts} task=${task} isUnsent=${unsent.includes(task.id)} />
  </li>`;
}

/** Some cards of a column, which are drawn again only when something changes of which they are made. */
function Chunk({ tasks, ...context }) {
  const cardOf = (task) => html`<${Card} key=${task.id} task=${task} ...${context} />`;
  return useMemo(() => html`<ul>${tasks.map(cardOf)}</ul>`, [tasks, ...Object.values(context)]);
}

/** The end of a column with more tasks, which are loaded when one scrolls there. */
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
  return html`<div ref=${end}>${button("Show more", load)}</div>`;
}

function QuickAdd({ status, title }) {
  const [text, setText] = useState("");
  const add = async (event) => {
    event?.preventDefault();
    if (!text.trim()) return;
    setText("");
    try {
      const task = await create("/tasks", { ...filteredFields(), title: text });
      if (status !== "todo") await patch(`/tasks/${task.id}`, { status });
      await refresh();
      const open = { words: "Open", run: () => go({ task: task.number }) };
      if (!shownTask(task.id)) notify(`Created “${text}”, which the filters hide.`, open);
    } catch (error) {
      setText((since) => since || text);
      notifyFault(error, add);
    }
  };
  return html`<form class="add field" onSubmit=${add}>
    <input value=${text} maxlength="500" placeholder="+ Add a task" aria-label="New task in ${title}"
      onInput=${(event) => setText(event.target.value)} />
  </form>`;
}

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
  const isFolded = useStore(folded).includes(column.status);
  const about = `${isFolded ? "Unfold" : "Fold"} ${column.title}`;
  const more = { "aria-label": about, title: about, "aria-expanded": String(!isFolded) };
  const cards = () =>
    chunks.map((chunk, at) => html`<${Chunk} key=${at} tasks=${chunk} ...${context} />`);
  return html`<section class="column ${isOver ? "over" : ""} ${isFolded ? "folded" : ""}" data-status=${column.status}
    aria-labelledby=${id} aria-busy=${isLoading}>
    <div class="top line">
      <h2 id=${id} class="line grow" tabindex="-1">
        <span><${Dot} status=${column.status} />${column.title}</span>
        ${!isLoading && html`<span class="dim">${number(total)}${!isExact && "+"}</span>`}
      </h2>
      ${button(html`<${Icon} of="chevron" />`, () => foldColumn(column.status), "icon", more)}
    </div>
    <div class="grow" hidden=${isFolded}>
      ${isLoading ? html`<${Skeleton} />` : cards()}
      ${hasMore && html`<${More} column=${column} tasks=${tasks} />`}
    </div>
    ${canAdd && !isFolded && html`<${QuickAdd} status=${column.status} title=${column.title} />`}
  </section>`;
}

function stepCards(event) {
  const steps = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
  if (!steps[event.key] || !event.target.matches(".card .title")) return;
  event.preventDefault();
  const [aside, down] = steps[event.key];
  const cardsOf = (column) => [...column.querySelectorAll(".card .title")];
  const board = [...document.querySelectorAll(".column")].map(cardsOf);
  const from = board.findIndex((column) => column.includes(event.target));
  const place = board[from].indexOf(event.target);
  if (down) return board[from][place + down]?.focus();
  for (let next = from + aside; board[next]; next += aside) {
    if (board[next].length) return board[next][Math.min(place, board[next].length - 1)].focus();
  }
}

function useDragging() {
  const [over, setOver] = useState("");
  const dragged = useRef(null);
  const start = (event) => {
    dragged.current = shownTask(event.target.dataset?.task);
    if (!dragged.current) return;
    event.dataTransfer.setData("text/plain", dragged.current.title); // without data Firefox drags nothing
    pauseRefresh(true);
  };
  const columnOf = (event) => event.target.closest(".column")?.dataset.status ?? "";
  const pass = (event) => {
    if (!dragged.current) return;
    event.preventDefault();
    setOver(columnOf(event));
  };
  const end = () => {
    dragged.current = null;
    pauseRefresh(false);
    setOver("");
  };
  const drop = (event) => {
    event.preventDefault();
    const [task, status] = [dragged.current, columnOf(event)];
    end();
    if (task && status && status !== task.status) move(task, status);
  };
  return { over, handlers: { onDragStart: start, onDragOver: pass, onDragEnd: end, onDrop: drop } };
}

function MoveMenu({ menu: { task, anchor }, close }) {
  const choose = (status) => status !== task.status && move(task, status);
  return html`<${Picker} label="Move to" options=${Object.entries(STATUSES)} value=${task.status}
    ...${{ anchor }} onChoose=${choose} onClose=${close} />`;
}

function Filter({ name, label, pairs }) {
  const value = address.value[name] ?? "";
  const look = value && name !== "sort" ? "chip set" : "chip";
  return html`<${Choice} ...${{ label, look, value }} options=${pairs}
    onChoose=${(chosen) => go({ [name]: chosen })} />`;
}

function Search() {
  const { q = "" } = address.value;
  const [typed, setTyped] = useState(null); // what the address does not have yet
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
  return html`<input type="search" id="search" class="chip" maxlength="200" value=${typed ?? q}
    aria-label="Search" placeholder="Search tasks" onInput=${input} />`;
}

const clearButton = () => button("Clear filters", clearFilters);

function Filters({ isEmpty }) {
  const people = [
    ["", "Anyone"],
    ...(isTeam() ? [["me", "Me"]] : []),
    ["none", "Nobody"],
    ...teamPairs(),
  ];
  const priorities = [["", "Any priority"], ...Object.entries(PRIORITIES).reverse()];
  const milestones = [["", "Any milestone"], ...useMilestones(address.value.project)];
  const ofMilestone = html`<${Filter} name="milestone" label="Milestone" pairs=${milestones} />`;
  return html`<div id="filters" class="line" role="search" aria-label="Tasks">
    <${Search} />
    <${Filter} name="person" label="Assignee" pairs=${people} />
    <${Filter} name="priority" label="Priority" pairs=${priorities} />
    <${Filter} name="due" label="Due" pairs=${Object.entries(DUES)} />
    ${milestones.length > 1 && ofMilestone}
    <${Filter} name="sort" label="Order" pairs=${Object.entries(ORDERS)} />
    ${isFiltered() && !isEmpty && clearButton()}
  </div>`;
}

const FIRST = {
  project: "A project holds the tasks of one goal. After it, invite your team under People.",
  task: "Write down what is to be done; who and when may follow.",
};

function NoTasks({ onNewTask }) {
  const nothing = "Nothing matches these filters.";
  const fewer = "Take one away, or search for fewer words.";
  if (isFiltered()) return html`<${Empty} text=${nothing} hint=${fewer}>${clearButton()}<//>`;
  const what = workspace.value.projects.length ? "task" : "project";
  const canAdd = isTeam() && chosenProject()?.status !== "archived";
  const hint = canAdd ? FIRST[what] : "They stand here as soon as somebody has added some.";
  return html`<${Empty} text="No tasks yet." hint=${hint}>
    ${canAdd && button(`Create the first ${what}`, onNewTask, "primary")}
  <//>`;
}

function Archived({ project }) {
  const unarchive = async () => {
    await patch(`/projects/${project.id}`, { status: "active" }).catch(notifyFault);
    document.getElementById("title").focus(); // the button goes
    await refresh();
  };
  return html`<p class="band">This project is archived: it takes no new tasks.
    ${isTeam() && button("Unarchive", unarchive)}
  </p>`;
}

export function Board({ onNewTask }) {
  const shown = useStore(address);
  const { isLoaded } = useStore(workspace);
  const [menu, setMenu] = useState(null);
  const dragging = useDragging();
  const states = columns.map(useStore);
  const place = placeOf(shown);
  useEffect(() => {
    const load = () => loadBoard().catch((error) => notifyFault(error, load));
    if (!isBoardOf(place)) load();
  }, [place]);
  const openMenu = useRef((chosen, anchor) => setMenu({ task: chosen, anchor })).current;
  const project = chosenProject();
  const unsent = unsentTasks();
  useStore(inbox);
  const isEmpty = states.every(({ tasks, isBusy }) => !tasks.length && !isBusy);
  const { members, projects } = workspace.value;
  const nameOf = ({ id, name, full_name }) => [id, name ?? full_name];
  const names = JSON.stringify([...members, ...projects].map(nameOf)); // which are on the cards
  const [unread, hour] = [unreadTasks(), serverTime().slice(0, 13)];
  const context = { place, unsent, unread, openMenu, names, hour };
  const viewOf = (column) => html`<${ColumnView} key=${column.status} column=${column} ...${context}
    isOver=${dragging.over === column.status} />`;
  const board = html`<div id="board" role="group" aria-label="Columns" onKeyDown=${stepCards}
    ...${dragging.handlers}>${columns.map(viewOf)}</div>`;
  const isUnknown = shown.project && isLoaded && !project;
  const unknown = html`<p class="band">There is no such project.
    <a href=${viewLink("", { project: "", milestone: "" })}>All projects</a></p>`;
  return html`${project?.status === "archived" && html`<${Archived} project=${project} />`}
    ${isUnknown && unknown}
    <${Filters} isEmpty=${isEmpty} />
    ${isEmpty && html`<${NoTasks} onNewTask=${onNewTask} />`}
    ${(project || !(isEmpty || isUnknown)) && board}
    ${menu && html`<${MoveMenu} menu=${menu} close=${() => setMenu(null)} />`}`;
}
