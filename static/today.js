// What you have to do. Today: what waits for you, dealt with in place; an act is sent when it can no longer be undone.
// My tasks: your open tasks in all projects, grouped by due date and in manual order within each group.
import { changeTask, get, newKey, patch, post, serverTime } from "./api.js";
import { Due, Facts } from "./board.js";
import { changeTasks, deleted, isKept, pressKey, useMenu } from "./changes.js";
import { ANSWER_MOST, getTasks, isLate, PAGE } from "./columns.js";
import { Form } from "./forms.js";
import { isNews, loadInbox } from "./inbox.js";
import { AGAIN, notify, notifyFault, useLoad } from "./notices.js";
import { Avatar, button, Empty, Moment, Priority, ProjectName, section } from "./parts.js";
import { TaskLink } from "./parts.js";
import { Choice } from "./picker.js";
import { focusCard, focusOn, stepAmong, titles } from "./place.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { isFollowing, onRefresh, pauseRefresh, useRefresh } from "./refresh.js";
import { address, go, latestOf, link, Store, useStore, viewLink } from "./store.js";
import { Mentions } from "./texts.js";
import { count, dayAfter, dayOf, hoursOf, mondayOf, STATUSES } from "./words.js";
import { draftOf, isMe, isTeam, memberName, memberOf, projectOf } from "./workspace.js";
import { rights, workspace } from "./workspace.js";

/** The lists in their order, with the acts of their keys. */
const LISTS = {
  questions: { title: "Questions for you", keys: { r: "reply", h: "later" } },
  reviews: { title: "To review", keys: { a: "accept", r: "back", h: "later" } },
  mentions: { title: "Mentions", keys: { r: "reply", d: "read", h: "later" } },
  due: { title: "Overdue and due today", keys: { d: "done", h: "later" } },
};

/** The lists in the latest answer of the server; null before. */
const today = new Store(null);
/** Acts that those lists do not show yet; `isLeft` means that an act can no longer be undone. */
const acts = new Store([]);
const take = (lists) => today.replace(lists);
export const loadToday = latestOf(() => get("/today"), take);
/** Whether Today lists anything. */
export const hasEntries = () => Object.values(today.value ?? {}).flat().length > 0;
export const forgetToday = () => [today.replace(null), acts.replace([])];

/** Change the status, unless an earlier attempt has done so and its answer was lost. */
const move = (task, status) =>
  changeTask(task, { status }).catch((error) => {
    if (error.theirs?.status !== status) throw error;
  });
const complete = ({ task }) => move(task, "done");
const comment = ({ id, task, body }) => post(`/tasks/${task.id}/comments`, body, id);
const sendBack = (act) => comment(act).then(() => move(act.task, "todo")); // the reason first
const read = ({ task }) => post("/inbox/read", { task_id: task.id });
const snooze = ({ task, until }) => post("/inbox/snooze", { task_id: task.id, until });
const MISSING = "What is missing?";
const ACTS = {
  accept: { words: "Accept", said: "Accepted", isOfTeam: true, send: complete },
  back: { words: "Send back", said: "Sent back", isOfTeam: true, ask: MISSING, send: sendBack },
  reply: { words: "Reply", said: "Replied to", ask: "Your reply", send: comment },
  done: { words: "Done", said: "Completed", isOfTeam: true, send: complete },
  read: { words: "Done", said: "Read", send: read },
  later: { words: "Later", said: "Put off until tomorrow:", send: snooze },
};

const draftOfReply = ({ id }) => draftOf(`a comment on ${id}`); // the opened task uses it, too
const KEPT = "acts of Today"; // another reader of this tab never sees it

function keepActs(all) {
  acts.replace(all);
  sessionStorage.setItem(KEPT, JSON.stringify(all));
}

function takeBack({ id, task, body }) {
  if (body) sessionStorage.setItem(draftOfReply(task), JSON.stringify({ typed: body }));
  keepActs(acts.value.filter((act) => act.id !== id));
}

/** Send the acts that can no longer be undone, in order. Those that do not reach the server stay. */
async function sendLeft() {
  const over = [];
  for (const act of acts.value.filter(({ isLeft }) => isLeft)) {
    try {
      await ACTS[act.name].send(act);
    } catch (error) {
      if (error.isTemporary) {
        setTimeout(sendActs, 1000 * Math.max(AGAIN, error.seconds));
        break;
      }
      takeBack(act);
      notifyFault(error, null, `“${act.task.title}” stays as it is. `);
    }
    over.push(act.id);
  }
  if (!over.length) return;
  await Promise.all([loadToday(), loadInbox()]).catch(() => null); // the next refresh loads them
  keepActs(acts.value.filter(({ id }) => !over.includes(id)));
}

let sending = Promise.resolve();
const sendActs = () => (sending = sending.then(sendLeft));

onRefresh(async () => {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]"); // from before the page was loaded again
  if (!acts.value.length) acts.replace(kept.map((act) => ({ ...act, isLeft: true })));
  void sendActs();
  if (address.value.view === "today" && !today.value) await loadToday();
});

/** Deal with an entry, and move the focus to the next one. */
function deal(name, { task, list }, row, body) {
  const at = titles().findIndex((title) => row.contains(title));
  const until = dayAfter(dayOf(serverTime()), 1);
  const act = { id: newKey(), name, task, list, body, until };
  const undo = () => {
    takeBack(act);
    setTimeout(focusCard, 0, task.id);
  };
  const leave = () => {
    keepActs(acts.value.map((one) => (one.id === act.id ? { ...one, isLeft: true } : one)));
    return sendActs();
  };
  keepActs([...acts.value, act]);
  notify(`${ACTS[name].said} “${task.title}”.`, { words: "Undo", run: undo }, leave);
  const next = titles()[at + 1] ?? titles()[at - 1];
  if (next) next.focus();
  else setTimeout(focusOn, 0, "today-end"); // after it is drawn
}

const saidOf = ({ author_id, excerpt, created_at }) => html`<p class="excerpt">
  <b>${memberName(author_id)}</b> <span class="dim"><${Moment} at=${created_at} /></span>${"\n"}${excerpt}</p>`;

function aboutOf(task) {
  const project = projectOf(task.project_id);
  return html`<span class="dim line">#${task.number} ${project && html`<${ProjectName} ...${{ project }} />`}
    ${task.priority !== "medium" && html`<${Priority} of=${task.priority} />`}
    ${task.due_date && html`<${Due} ...${{ task }} />`}</span>`;
}

function TodayEntry({ entry }) {
  const { task, list, comment: said } = entry;
  const row = useRef(null);
  const [typed, setTyped] = useState(""); // the act that you are typing for
  const mayDo = ([, name]) => (ACTS[name].isOfTeam ? isTeam() : rights().isWriter);
  const keys = Object.fromEntries(Object.entries(LISTS[list].keys).filter(mayDo));
  const begin = (name) => (ACTS[name].ask ? setTyped(name) : deal(name, entry, row.current));
  const leave = () => {
    setTyped("");
    row.current.querySelector(".title").focus();
  };
  const press = (event) => {
    if (event.key === "Escape" && typed && !event.defaultPrevented) return leave();
    if (!event.target.matches(".title") || stepAmong(event)) return;
    const actOf = ([key, name]) => [key, () => begin(name)];
    const acts = Object.fromEntries(Object.entries(keys).map(actOf));
    pressKey(event, [task], null, { e: () => go({ task: task.number }), ...acts });
  };
  const buttonOf = ([key, name]) => {
    const { words, ask } = ACTS[name];
    const label = { "aria-label": `${words}: ${task.title}`, "aria-keyshortcuts": key };
    const shown = html`${words}${ask && "…"} <kbd class="dim" aria-hidden="true">${key}</kbd>`;
    return button(shown, () => begin(name), name === "accept" ? "" : "quiet", label);
  };
  const form = ({ words, ask: label }) => html`<${Form} operation="add_comment" names=${["content"]}
    settings=${{ content: { label, placeholder: `${label} Ctrl+Enter sends it`, missing: "Write a comment first" } }}
    draft=${draftOfReply(task)} autofocus="content" label=${words} onCancel=${leave}
    onSave=${(body) => deal(typed, entry, row.current, body)}>
    ${(field) => html`<${Mentions}>${field("content", { isBare: true })}<//>`}
  <//>`;
  const person = said && list !== "due" && memberOf(said.author_id);
  return html`<li ref=${row} class="own entry row line" data-task=${task.id} onKeyDown=${press}>
    ${person && html`<${Avatar} ...${{ person }} />`}
    <div class="grow stack">
      <div><a class="title" href=${link({ task: task.number })}>${task.title}</a> ${aboutOf(task)}</div>
      ${person && saidOf(said)} ${typed && form(ACTS[typed])}
    </div>
    ${!typed && html`<div class="acts line">${Object.entries(keys).map(buttonOf)}</div>`}
  </li>`;
}

const meetingOf = (meeting) => html`<li key=${meeting.id} class="row line">
  <span class="dim">${hoursOf(meeting)}</span>
  <a class="grow" href=${viewLink("meetings")}>${meeting.title}</a> <span class="dim">${meeting.location}</span>
</li>`;

const workOf = ({ task, comment }) => html`<li key=${task.id} class="entry row"><div class="stack">
  <div><b>${memberName(task.assignee_id)}</b> <${TaskLink} ...${{ task }} />
    ${task.claimed_until && html` <span class="dim">claimed until <${Moment} at=${task.claimed_until} /></span>`}</div>
  ${comment && saidOf(comment)}
</div></li>`;

/** Whether changes may concern what is shown, or what you have to do now. */
function concernsToday({ tasks, concerns, has, inbox }) {
  const isShown = ({ task }) => task && concerns(task.id);
  const mayCome = ({ assignee_id, due_date, status }) =>
    status === "in_progress" || (due_date && isMe({ id: assignee_id }));
  const isOther = has("project") || has("meeting") || isNews(inbox);
  const shown = Object.values(today.value ?? {}).flat();
  return isOther || tasks.some(mayCome) || shown.some(isShown);
}

export function Today() {
  const [lists, done] = [useStore(today), useStore(acts)];
  const { isLoaded, projects } = useStore(workspace);
  useLoad(async () => isFollowing() && loadToday(), []);
  useRefresh((all) => concernsToday(all) && loadToday());
  const isEmpty = isLoaded && !projects.length;
  useEffect(() => {
    if (isEmpty)
      go({ view: "" }, { replace: true }); // the board shows the first steps
    else if (document.activeElement.matches("body, #title")) titles()[0]?.focus();
  }, [isEmpty, !lists]);
  const isDone = (list, { id }) => done.some((act) => act.list === list && act.task.id === id);
  const rowOf = (entry) => html`<${TodayEntry} key=${entry.task.id} ...${{ entry }} />`;
  const sectionOf = ([list, { title }]) => {
    const left = lists[list].filter(({ task }) => !isDone(list, task));
    const rows = left.map((entry) => rowOf({ ...entry, list }));
    return section(title, rows);
  };
  const waiting = lists && Object.entries(LISTS).map(sectionOf);
  const unsent = !navigator.onLine && done.filter(({ isLeft }) => isLeft).length;
  const hint = "Questions, reviews and mentions appear here when they need you.";
  return html`<div class="page stack" aria-busy=${!lists}>
    <p role="status" class="dim">${unsent > 0 && `${count(unsent, "change")} will be sent when you are online again.`}</p>
    ${waiting}
    ${waiting && !waiting.some(Boolean) && html`<div id="today-end" tabindex="-1"><${Empty} text="Done for now." ...${{ hint }} /></div>`}
    ${lists && section("Meetings today", lists.meetings.map(meetingOf))}
    ${lists && section("Agents are working on", lists.working.map(workOf))}
  </div>`;
}

const OWN = { assignee_id: "me", status: "open", archived: "false", sort: "due_date" };
const DUE_GROUPS = ["Overdue", "Today", "This week", "Later", "No date"];

function dueGroupOf(task) {
  const [day, today] = [task.due_date, serverTime()].map(dayOf);
  if (!day) return "No date";
  if (isLate(task)) return "Overdue";
  if (day === today) return "Today";
  return day < mondayOf(today, 1) ? "This week" : "Later";
}

function OwnTask({ task, place, open, ...handlers }) {
  const { id, number, title, status, project_id } = task;
  const project = projectOf(project_id);
  const move = (to) => changeTasks([[task, { status: to }]]);
  const press = (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!event.target.matches(".title")) return;
    if (event.altKey && step) place(task, step);
    else if (!stepAmong(event)) pressKey(event, [task], open, { e: () => go({ task: number }) });
  };
  return html`<li class="own row line" data-task=${id} draggable=${isTeam()} onKeyDown=${press} ...${handlers}>
    <label class="box"><input type="checkbox" aria-label="Done: ${title}" checked=${false} disabled=${!isTeam()}
      onChange=${() => move("done")} /></label>
    <div class="grow">
      <a class="title" href=${link({ task: number })} draggable=${false}>${title}</a>
      <div class="line">
        <span class="dim line">#${number} ${project && html`<${ProjectName} ...${{ project }} />`}</span>
        <${Facts} task=${task} />
      </div>
    </div>
    <${Choice} label="Status of “${title}”" look="chip" value=${status} disabled=${!isTeam()}
      options=${Object.entries(STATUSES)} onChoose=${(chosen) => chosen !== status && move(chosen)} />
    ${isTeam() && button("⋯", (event) => open([task], event.currentTarget), "icon", { "aria-label": `More for “${title}”`, title: "More", "aria-haspopup": "true" })}
  </li>`;
}

export function Mine() {
  const [tasks, setTasks] = useState(null);
  const [dragged, setDragged] = useState(); // its id: the list may be loaded again meanwhile
  const [open, menu] = useMenu({ find: (id) => tasks.find((task) => task.id === id) });
  useStore(workspace);
  useStore(deleted);
  const most = useRef(PAGE); // tasks that are shown, the earliest due first
  const changes = useRef(0); // of the order; a list that was loaded before is outdated
  const load = async () => {
    const before = changes.current;
    const found = await getTasks({ ...OWN, include: "comment_count" }, most.current);
    const inOrder = found.toSorted((one, other) => (one.rank < other.rank ? -1 : 1));
    if (before === changes.current) setTasks(inOrder);
  };
  const reload = () => load().catch((error) => notifyFault(error, reload));
  useLoad(load, []);
  useRefresh(({ tasks: changed, concerns, has }) => {
    const isOwn = changed.some(({ assignee_id }) => isMe({ id: assignee_id }));
    return (isOwn || has("project") || !tasks?.every(({ id }) => !concerns(id))) && load();
  });
  const showMore = () => {
    most.current += ANSWER_MOST;
    return reload();
  };
  const groups = Map.groupBy((tasks ?? []).filter(isKept), dueGroupOf);
  /** Move a task by some steps within its group. */
  const place = async (task, steps) => {
    const group = groups.get(dueGroupOf(task));
    const other = group[group.indexOf(task) + steps];
    if (!other || !steps) return;
    const others = tasks.filter((one) => one !== task);
    const from = tasks.indexOf(task);
    const back = from ? { after: tasks[from - 1].number } : { before: others[0].number };
    setTasks(others.toSpliced(others.indexOf(other) + (steps > 0), 0, task));
    queueMicrotask(() => focusCard(task.id)); // after it is drawn
    changes.current += 1;
    const undo = { words: "Undo", task: "", run: () => send(back) };
    const send = async (change, action) => {
      const say = () => notify(`Moved “${task.title}”.`, action);
      await patch(`/tasks/${task.id}/details`, change).then(say, (error) => notifyFault(error));
      changes.current += 1;
      await reload();
    };
    await send({ [steps < 0 ? "before" : "after"]: other.number }, undo);
  };
  const drag = (id) => {
    setDragged(id);
    pauseRefresh(Boolean(id));
  };
  const rowOf = (task, at, group) => {
    const from = group.findIndex(({ id }) => id === dragged);
    const drop = () => from >= 0 && place(group[from], at - from);
    return html`<${OwnTask} key=${task.id} ...${{ task, place, open }} onDragStart=${() => drag(task.id)}
      onDragOver=${(event) => from >= 0 && event.preventDefault()} onDrop=${drop} onDragEnd=${() => drag()} />`;
  };
  const listOf = (name) => section(name, (groups.get(name) ?? []).map(rowOf));
  const hint = "Open tasks that are assigned to you are listed here, from all projects.";
  return html`<div class="page stack" aria-busy=${!tasks}>
    ${tasks?.length === 0 && html`<${Empty} text="Nothing on your list." hint=${hint} />`}
    ${DUE_GROUPS.map(listOf)}
    ${tasks?.length >= most.current && button("Show more", showMore, "quiet more")}
    ${menu}
  </div>`;
}
