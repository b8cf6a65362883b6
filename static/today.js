// Today: what waits for the reader, each dealt with where it stands. An act is sent when it can no longer be undone.
import { changeTask, get, newKey, post, serverTime } from "./api.js";
import { isLate } from "./columns.js";
import { Form } from "./forms.js";
import { loadInbox } from "./inbox.js";
import { Mentions } from "./mentions.js";
import { notify, notifyFault } from "./notices.js";
import { Avatar, button, DateOf, Empty, Moment, ProjectName } from "./parts.js";
import { focusOn } from "./place.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { onRefresh, useRefresh } from "./refresh.js";
import { go, link, Store, useStore, viewLink } from "./store.js";
import { count, dayAfter, dayOf, timeOf } from "./words.js";
import { draftOf, isTeam, memberName, memberOf, projectOf, rights } from "./workspace.js";
import { workspace } from "./workspace.js";

const LISTS = {
  questions: "Questions for you",
  reviews: "To review",
  mentions: "Mentions",
  due: "Overdue and due today",
};
/** What can be done with an entry of some lists by a key: its words, and what is said then. */
const ACTS = {
  accept: { key: "a", words: "Accept", of: ["reviews"], said: "Accepted", isOfTeam: true },
  back: {
    key: "r",
    words: "Send back",
    of: ["reviews"],
    said: "Sent back",
    isTyped: true,
    isOfTeam: true,
  },
  reply: {
    key: "r",
    words: "Reply",
    of: ["questions", "mentions"],
    said: "Replied to",
    isTyped: true,
  },
  done: { key: "d", words: "Done", of: ["due"], said: "Done:", isOfTeam: true },
  read: { key: "d", words: "Done", of: ["mentions"], said: "Read:" },
  later: { key: "h", words: "Later", of: Object.keys(LISTS), said: "Tomorrow again:" },
};

/** The lists as the server has answered last; null before. */
const today = new Store(null);
/** What was done here and is not in those lists yet; `isLeft` says that it can no longer be undone. */
const acts = new Store([]);
export const loadToday = async () => today.replace(await get("/today"));
export const forgetToday = () => [today.replace(null), acts.replace([])];

const draftOfReply = ({ id }) => draftOf(`a comment on ${id}`); // also the opened task's
const placeOfActs = () => draftOf("Today");

function keepActs(all) {
  acts.replace(all);
  if (all.length) sessionStorage.setItem(placeOfActs(), JSON.stringify(all));
  else sessionStorage.removeItem(placeOfActs());
}

function takeBack({ id, task, body }) {
  if (body) sessionStorage.setItem(draftOfReply(task), JSON.stringify({ typed: body }));
  keepActs(acts.value.filter((one) => one.id !== id));
}

/** Change the status, unless an earlier attempt, whose answer was lost, has done so. */
const move = (task, status) =>
  changeTask(task, { status }).catch((error) => {
    if (error.theirs?.status !== status) throw error;
  });
const comment = ({ id, task, body }) => post(`/tasks/${task.id}/comments`, body, id);
const SENDING = {
  accept: ({ task }) => move(task, "done"),
  done: ({ task }) => move(task, "done"),
  back: (act) => comment(act).then(() => move(act.task, "todo")), // who works on it finds the reason there
  reply: comment,
  read: ({ task }) => post("/inbox/read", { task_id: task.id }),
  later: ({ task, until }) => post("/inbox/snooze", { task_id: task.id, until }),
};

/** Send what can no longer be undone, in its order; what does not reach the server stays. */
async function sendLeft() {
  const over = [];
  for (const act of acts.value.filter(({ isLeft }) => isLeft)) {
    const error = await SENDING[act.name](act).then(
      () => null,
      (failure) => failure,
    );
    if (error?.isTemporary) break;
    over.push(act.id);
    if (!error) continue;
    takeBack(act);
    notifyFault(error, null, `“${act.task.title}” stays as it is. `);
  }
  if (!over.length) return;
  await Promise.all([loadToday(), loadInbox()]).catch(() => null); // the next refresh does
  keepActs(acts.value.filter(({ id }) => !over.includes(id)));
}

let turn = Promise.resolve();
const send = () => (turn = turn.then(sendLeft));

onRefresh(() => {
  const kept = JSON.parse(sessionStorage.getItem(placeOfActs()) ?? "[]");
  if (!acts.value.length && kept.length) keepActs(kept.map((act) => ({ ...act, isLeft: true }))); // the page was loaded again
  void send();
});

/** Do something with an entry, whose place the next one takes. */
function deal(name, { task, list }, row, body) {
  const titles = [...document.querySelectorAll("main .title")];
  const at = titles.findIndex((title) => row.contains(title));
  const id = newKey();
  keepActs([
    ...acts.value,
    { id, name, task, list, body, until: dayAfter(dayOf(serverTime()), 1) },
  ]);
  const undo = () => {
    takeBack({ id, task, body });
    setTimeout(() => document.querySelector(`[data-task="${task.id}"] .title`)?.focus());
  };
  const leave = () => {
    keepActs(acts.value.map((act) => (act.id === id ? { ...act, isLeft: true } : act)));
    return send();
  };
  notify(`${ACTS[name].said} “${task.title}”.`, { words: "Undo", run: undo }, leave);
  const next = titles[at + 1] ?? titles[at - 1];
  if (next) next.focus();
  else setTimeout(focusOn, 0, "today-end"); // when it is drawn
}

function Said({ comment: { author_id, excerpt, created_at } }) {
  return html`<p class="excerpt"><b>${memberName(author_id)}</b> <span class="dim"><${Moment} at=${created_at} /></span>
    ${"\n"}${excerpt}</p>`;
}

function About({ task: { number, project_id, due_date, ...task } }) {
  const project = projectOf(project_id);
  const due = html`<span class=${isLate({ due_date, ...task }) ? "late" : "today"}><${DateOf} at=${due_date} /></span>`;
  return html`<span class="dim line">#${number} ${project && html`<${ProjectName} ...${{ project }} />`}
    ${due_date && due}</span>`;
}

function Entry({ entry }) {
  const { task, list } = entry;
  const row = useRef(null);
  const [typed, setTyped] = useState(""); // the act for which something is being typed
  const mayDo = ([, { of, isOfTeam }]) =>
    of.includes(list) && (isOfTeam ? isTeam() : rights().isWriter);
  const possible = Object.entries(ACTS).filter(mayDo);
  const begin = (name) => (ACTS[name].isTyped ? setTyped(name) : deal(name, entry, row.current));
  const leave = () => {
    setTyped("");
    row.current.querySelector(".title").focus();
  };
  const press = (event) => {
    const { key, target, ctrlKey, metaKey, altKey } = event;
    if (key === "Escape" && typed && !event.defaultPrevented) return leave();
    if (!target.matches(".title") || ctrlKey || metaKey || altKey) return;
    const [name] = possible.find(([, act]) => act.key === key) ?? [];
    const step = { ArrowUp: -1, ArrowDown: 1 }[key];
    const titles = [...document.querySelectorAll("main .title")];
    if (name) begin(name);
    else if (key === "e") go({ task: task.number });
    else if (step) titles[titles.indexOf(target) + step]?.focus();
    else return;
    event.preventDefault();
  };
  const buttonOf = ([name, { words, key, isTyped }]) =>
    button(
      html`${words}${isTyped && "…"} <kbd class="dim" aria-hidden="true">${key}</kbd>`,
      () => begin(name),
      name === "accept" ? "" : "quiet",
      {
        "aria-label": `${words}: ${task.title}`,
        "aria-keyshortcuts": key,
      },
    );
  const answer = (body) => deal(typed, entry, row.current, body);
  const label = typed === "back" ? "What is missing?" : "Your reply";
  const settings = {
    content: {
      label,
      placeholder: `${label} Ctrl+Enter sends it`,
      missing: "Write a comment first",
    },
  };
  const form =
    () => html`<${Form} operation="add_comment" names=${["content"]} draft=${draftOfReply(task)}
    ...${{ settings }} autofocus="content" label=${ACTS[typed].words} onSave=${answer} onCancel=${leave}>
    ${(field) => html`<${Mentions}>${field("content", { isBare: true })}<//>`}
  <//>`;
  const person = entry.comment && list !== "due" && memberOf(entry.comment.author_id);
  return html`<li ref=${row} class="own entry row line" data-task=${task.id} onKeyDown=${press}>
    ${person && html`<${Avatar} ...${{ person }} />`}
    <div class="grow stack">
      <div><a class="title" href=${link({ task: task.number })}>${task.title}</a> <${About} ...${{ task }} /></div>
      ${person && html`<${Said} comment=${entry.comment} />`}
      ${typed ? form() : html`<div class="acts line">${possible.map(buttonOf)}</div>`}
    </div>
  </li>`;
}

const meetingOf = ({
  id,
  title,
  location,
  starts_at,
  ends_at,
}) => html`<li key=${id} class="row line">
  <span class="dim">${timeOf(starts_at)}${ends_at && ` – ${timeOf(ends_at)}`}</span>
  <a class="grow" href=${viewLink("meetings")}>${title}</a> <span class="dim">${location}</span>
</li>`;

const workOf = ({ task, comment: said }) => html`<li key=${task.id} class="entry row line">
  <div class="grow stack">
    <div><b>${memberName(task.assignee_id)}</b> <a href=${link({ task: task.number })}>#${task.number} ${task.title}</a>
      ${task.claimed_until && html` <span class="dim">claimed until <${Moment} at=${task.claimed_until} /></span>`}</div>
    ${said && html`<${Said} comment=${said} />`}
  </div>
</li>`;

const section = (title, rows) =>
  rows.length > 0 &&
  html`<section class="stack" key=${title}>
    <h2>${title} <span class="dim">${rows.length}</span></h2>
    <ul class="rows" aria-label=${title}>${rows}</ul>
  </section>`;

export function Today() {
  const lists = useStore(today);
  const done = useStore(acts);
  const { isLoaded, projects } = useStore(workspace);
  const reload = () => loadToday().catch((error) => notifyFault(error, reload));
  useEffect(() => void reload(), []);
  useRefresh(
    ({ tasks, activity, isPartial }) =>
      (tasks.length || activity.length || isPartial) && loadToday(),
  );
  const isEmpty = isLoaded && !projects.length;
  useEffect(() => {
    if (isEmpty)
      go({ view: "" }, { replace: true }); // the board says how to begin
    else if (lists && document.activeElement === document.body)
      document.querySelector("main .title")?.focus();
  }, [isEmpty, !lists]);
  const isDone = (list, task) => done.some((act) => act.list === list && act.task.id === task.id);
  const left = (list) =>
    lists[list].filter(({ task }) => !isDone(list, task)).map((entry) => ({ ...entry, list }));
  const rowsOf = (list) =>
    left(list).map((entry) => html`<${Entry} key=${entry.task.id} ...${{ entry }} />`);
  const unsent = done.filter(({ isLeft }) => isLeft).length;
  const waiting = lists ? Object.keys(LISTS).map((list) => section(LISTS[list], rowsOf(list))) : [];
  const hint = "Questions, reviews and mentions appear here when they need you.";
  return html`<div class="page stack" aria-busy=${!lists}>
    <p role="status" class="dim">${!navigator.onLine && unsent > 0 && `${count(unsent, "change")} will be sent when you are online again.`}</p>
    ${waiting}
    ${lists && !waiting.some(Boolean) && html`<div id="today-end" tabindex="-1"><${Empty} text="Done for now." ...${{ hint }} /></div>`}
    ${lists && section("Meetings today", lists.meetings.map(meetingOf))}
    ${lists && section("Agents are working on", lists.working.map(workOf))}
  </div>`;
}
