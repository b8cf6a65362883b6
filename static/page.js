// The page: signing in, the frame around the views, and the keyboard.
import { create, get, patch, post, remove, serverTime } from "./api.js";
import { Board } from "./board.js";
import { CARD_KEYS, clearSelection, OWN_KEY } from "./changes.js";
import { forgetBoard, loadBoard } from "./columns.js";
import { Form } from "./forms.js";
import { forgetInbox, Inbox, inbox, loadInbox } from "./inbox.js";
import { faultText, lazy, loadUntil, notify, notifyFault, undoLatest } from "./notices.js";
import { useLoad } from "./notices.js";
import { Avatar, button, Copyable, Dialog, Icon, Menu, Moment } from "./parts.js";
import { ProjectName, Progress } from "./parts.js";
import { Find } from "./picker.js";
import { focusOn, letterOf, openedTitles, showTab, stepAmong, TYPED } from "./place.js";
import { html, render, useEffect, useLayoutEffect, useState } from "./preact.js";
import { refresh, startRefresh } from "./refresh.js";
import { address, go, link, useStore, viewLink } from "./store.js";
import { NewTask, TaskDialog } from "./task.js";
import { forgetToday, hasEntries, loadToday, Mine, Today } from "./today.js";
import { count, inWords, labelOf } from "./words.js";
import { chosenProject, draftOf, forgetWorkspace, isClient, isTeam } from "./workspace.js";
import { loadSession, loadStop, loadWorkspace, lookForProject } from "./workspace.js";
import { projectOf, projectsThatAre, returnToPlace, rights } from "./workspace.js";
import { session, signOut, stopState, workspace } from "./workspace.js";

const { workspace: workspaceName, docs, mail } = document.documentElement.dataset;
const isMailed = mail !== undefined;
const IN_BAR = 4; // views in the bar of a narrow screen (page.css)
const FINDING = { "aria-label": "Find", title: "Find (Ctrl+K)", "aria-keyshortcuts": "Control+K" };
const CARD_LETTERS = Object.entries(CARD_KEYS).map(([key, name]) => [
  key,
  `${labelOf(name)} of a card`,
]);
const SHORTCUTS = {
  "Ctrl K": "Find a task, person, view or command",
  n: "New task",
  "/": "Search",
  "← ↑ ↓ →": "To the first card, and from card to card",
  "Alt ↑ ↓": "Move a card, in manual order",
  ...Object.fromEntries(CARD_LETTERS),
  [OWN_KEY]: "Assign a card to yourself",
  q: "Show only your tasks on the board, or everybody’s",
  "Ctrl A": "Select the column of a card",
  "PgUp PgDn": "In the calendar: earlier, later; Home shows today",
  "Shift ← ↑ ↓ →": "In the calendar: move a task to another day",
  "Ctrl Z": "Undo the latest change; in an opened task, the latest that was made there",
  e: "Open a card",
  x: "Select a card, like Shift or Ctrl and a click",
  Del: "Delete a card, or the selected ones",
  "a r h d": "In Today: accept, reply or send back, later, done",
  c: "Comment on the opened task; the letters above work there, too",
  Esc: "Close what is open, leave the search, or clear the selection",
  "?": "This list",
};

const RecordList = lazy("Records", () => import("./records.js"));
const AgentList = lazy("Agents", () => import("./records.js"));
const ActivityList = lazy("Activity", () => import("./history.js"));
const Calendar = lazy("Month", () => import("./month.js"));
const Report = lazy("Week", () => import("./week.js"));
if (matchMedia("(any-pointer: coarse)").matches) import("./touch.js");

/**
 * Load everything at the same time: on a slow network, requests one after another would add up. Begin with Today if the
 * address names no view; for clients for whom nothing waits, with the board. If only the view fails to load, changes
 * are followed nevertheless.
 */
async function start() {
  const begun = serverTime();
  const isNamed = location.href.includes("#") || sessionStorage.getItem("place");
  if (!isNamed) go({ view: "today" }, { replace: true });
  const shown = link({ task: "" });
  const load = { "": loadBoard, today: loadToday }[address.value.view ?? ""] ?? (async () => null);
  const loaded = load().catch((error) => error);
  const signedIn = loadSession().then(returnToPlace).then(loadStop);
  await Promise.all([signedIn, loadWorkspace(), loadInbox(), loaded]);
  if (!isNamed && isClient() && !hasEntries()) go({ view: "" }, { replace: true });
  startRefresh(begun);
  if ((await loaded) instanceof Error) loadUntil(load, () => link({ task: "" }) === shown);
}

const begin = () => loadUntil(start);

/** Ask for a sign-in link by mail. The answer does not reveal whose addresses are known. */
function MailedLink() {
  const [said, setSaid] = useState("");
  const ask = async (event) => {
    event.preventDefault();
    const { value: email } = event.target.elements.email;
    const sent = `If ${email} belongs to a member, a link is on its way. It works once, for 15 minutes.`;
    setSaid(await post("/session/link", { email }).then(() => sent, faultText));
  };
  return html`<form class="stack" onSubmit=${ask}>
    <label class="field">E-mail
      <input name="email" type="email" autocomplete="email" required autofocus />
    </label>
    <p role="status">${said}</p>
    <button class="primary">Email me a sign-in link</button>
  </form>`;
}

function SignIn() {
  const [fault, setFault] = useState(session.value.why);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await post("/session", { api_key: event.target.elements.key.value.trim() });
      await start();
      focusOn("title"); // the key's field had the focus
    } catch (error) {
      setFault(faultText(error));
      setBusy(false);
    }
  };
  return html`<main class="entrance">
    <section class="panel stack">
    <h1>${workspaceName}</h1>
    <p role="alert" class=${fault && "fault"}>${fault}</p>
    ${isMailed ? html`<${MailedLink} />` : html`<p>Open your sign-in link in this browser. Ask an owner or admin for one: they can make it under People.</p>`}
    <details>
    <summary>Sign in with an API key</summary>
    <form class="stack" onSubmit=${submit} aria-busy=${isBusy}>
      <input name="user" autocomplete="username" value=${workspaceName} hidden readonly />
      <label class="field">API key
        <input name="key" type="password" autocomplete="current-password" required />
      </label>
      <button class="primary" disabled=${isBusy}>${isBusy ? "Signing in…" : "Sign in"}</button>
      <p class="dim">Lost your key? Run <code>member link EMAIL</code> on the server to get a sign-in link.</p>
    </form>
    </details>
    <p class="dim">Task service · <a href=${docs}>The API</a></p>
    </section>
  </main>`;
}

function ProjectLink({ project, isCurrent }) {
  const { id, name, stats } = project;
  const there = viewLink("", { project: id, milestone: "" });
  return html`<li><a href=${there} aria-current=${isCurrent ? "page" : null}
    title="${stats.done} of ${stats.total} done">
    <b>${id ? html`<${ProjectName} project=${project} />` : name}</b>
    ${stats.done > 0 && html`<${Progress} of=${name} stats=${stats} />`}
    ${
      stats.overdue > 0 &&
      html`<span class="late" title="overdue"><${Icon} of="clock" />${stats.overdue}
      <span class="skip">overdue</span></span>`
    }
  </a></li>`;
}

function ProjectView() {
  const { project: id } = address.value;
  const [project, setProject] = useState(null);
  useLoad(() => get(`/projects/${id}`).then(setProject), [id, projectOf(id)?.updated_at]);
  if (!project || project.id !== id) return null; // an address may name none
  const change = async (fields) => {
    setProject(await patch(`/projects/${id}`, fields));
    await refresh();
    return "Saved.";
  };
  const isArchived = project.status === "archived";
  const archive = async () => {
    const status = isArchived ? "active" : "archived";
    const unarchive = () => change({ status: project.status }).catch(notifyFault);
    const say = () => notify(`${project.name} is ${status}.`, { words: "Undo", run: unarchive });
    await change({ status }).then(say, notifyFault);
  };
  const drop = async () => {
    const { total } = projectOf(id).stats;
    const all = `“${project.name}” and its ${count(total, "task")}`;
    if (total && !confirm(`Delete ${all}? You can restore them for 30 days.`)) return;
    const leave = () => go({ project: "", view: "" });
    await remove(`/projects/${id}`, { force: "true" }).then(leave, notifyFault);
    await refresh();
  };
  const buttons = html`<div class="actions line">
    ${button(isArchived ? "Unarchive" : "Archive", archive, "")}
    ${button("Delete project", drop, "danger")}
  </div>`;
  return html`<div class="page stack">
    <section class="panel stack">
      <${Form} operation="update_project" names=${["name", "description", "owner_id"]} isChange
        base=${{ ...project, owner_id: project.owner.id }} isFixed=${!isTeam()} label="Save changes"
        draft=${draftOf(`project ${id}`)} onSave=${change} />
      ${isTeam() && buttons}
    </section>
    <h2>Milestones</h2>
    <${RecordList} of="milestones" project=${id} />
  </div>`;
}

/** Your name, other devices, calendar, keys and sessions. */
function Account() {
  const { member } = useStore(session);
  const { isWriter, isAdmin } = rights();
  const names = ["full_name", "phone_number"];
  if (isMailed) names.push("mail");
  if (isMailed || isAdmin) names.push("email");
  const [invitation, setInvitation] = useState(null);
  const [calendar, setCalendar] = useState(null);
  const save = async (fields) => {
    const { email } = await patch(`/members/${member.id}`, fields);
    await Promise.all([loadSession(), refresh()]);
    const isOpen = fields.email && fields.email.toLowerCase() !== email;
    return isOpen ? `Open the link that was mailed to ${fields.email}.` : "Saved.";
  };
  const make = () => post(`/members/${member.id}/invitation`).then(setInvitation, notifyFault);
  const made = () => html`<${Copyable} label="Sign-in link" text=${invitation.enrollment_link} />
    <p>Open it on that device${isMailed && `, or the mail to ${member.email}`}. It works once, until <${Moment} at=${invitation.expires_at} />.</p>`;
  const { email } = member;
  const say = () => notify(`A sign-in link was mailed to ${email}.`);
  const mail = () => post("/session/link", { email }).then(say, notifyFault);
  const subscribe = () => post("/calendar").then(setCalendar, notifyFault);
  return html`<div class="page stack">
    <section class="panel stack">
      <${Form} operation="update_member" names=${names} base=${member} isChange
        isFixed=${!isWriter} label="Save changes" draft=${draftOf("your account")} onSave=${save} />
      <p class="dim">${!names.includes("email") && `E-mail: ${member.email}. `}Role: ${inWords(member.role)}</p>
    </section>
    <section class="panel stack">
      <h2>Another device</h2>
      <p>Make a link, and open it on your phone or in another browser to sign in there.</p>
      <p>To make links or keys, or to change your address, more than 15 minutes after you signed in, sign in again.</p>
      <div class="line">${isWriter && button("Make a sign-in link", make, "")}
        ${isMailed && button("Email me a link to sign in again", mail, "")}</div>
      ${invitation && made()}
    </section>
    <section class="panel stack">
      <h2>Calendar</h2>
      <p>See your due tasks and meetings in your calendar program. A new link replaces the old one.</p>
      <div>${isWriter && button("Make a calendar link", subscribe, "")}</div>
      ${calendar && html`<${Copyable} label="Link for a calendar" text=${calendar.url} />`}
    </section>
    <h2>Keys and sessions</h2>
    <${RecordList} of="keys" key=${calendar?.url} />
  </div>`;
}

/** Tell owners and admins how many members mail has not reached. */
function Unreached() {
  const [number, setNumber] = useState(0);
  useLoad(() => get("/webhooks").then(({ mail }) => setNumber(mail.unreached)), []);
  const text = html`<p class="fault">Mail has not reached ${number} of the members. Run
    ${" "}<code>doctor</code> on the server to see why.</p>`;
  return number > 0 && text;
}

const Webhooks = () => html`<div class="page stack"><${Unreached} />
  <${RecordList} of="webhooks" /><h2>Deliveries that failed</h2><${RecordList} of="deliveries" />
</div>`;

const list = (name) => () => html`<div class="page"><${RecordList} of=${name} /></div>`;

const People = () => html`<div class="page stack"><${RecordList} of="members" />
  ${isTeam() && html`<${AgentList} />`}
  ${rights().isAdmin && html`<details><summary>Other people’s keys and sessions</summary><${RecordList} of="others" /></details>`}
</div>`;

/** The views by their name in the address. */
const VIEWS = {
  today: { title: "Today", view: Today },
  mine: { title: "My tasks", view: Mine },
  "": { title: "Board" },
  inbox: { title: "Inbox", view: Inbox },
  month: { title: "Calendar", view: Calendar },
  activity: { title: "Activity", view: ActivityList },
  meetings: { title: "Meetings", view: list("meetings") },
  whiteboards: { title: "Notes", view: list("whiteboards") },
  people: { title: "People", view: People },
  week: { title: "Week", view: Report },
  project: { title: "Project", view: ProjectView, isHidden: true },
  account: { title: "Your account", view: Account, isHidden: true },
  webhooks: { title: "Webhooks", view: Webhooks, isHidden: true, right: "isAdmin" },
  deleted: { title: "Recently deleted", view: list("deleted"), isHidden: true, right: "isTeam" },
};

const isOffered = ([name, { isHidden }]) => !isHidden && !(name === "mine" && isClient());
const shownViews = () => Object.entries(VIEWS).filter(isOffered);
const ofAccount = () => ["account", "deleted", "webhooks"].filter(mayShow);
const mayShow = (view) => Object.hasOwn(VIEWS, view) && (rights()[VIEWS[view].right] ?? true);
const viewOf = ({ view = "" }) => (mayShow(view) ? view : "");

function titleOf(chosen) {
  const view = viewOf(chosen);
  if (view && view !== "project") return VIEWS[view].title;
  const unknown = workspace.value.missing === chosen.project ? "Unknown project" : "";
  return chosen.project ? (projectOf(chosen.project)?.name ?? unknown) : "All projects";
}

/** The stop of all agents, which every view shows. */
function Stopped() {
  const { stop } = useStore(stopState);
  const start = () => post("/agents/start").then(loadStop, notifyFault);
  const shown = () => html`<div class="band stack">
    <p>${stop.by.full_name} stopped all agents <${Moment} at=${stop.created_at} />: ${stop.reason}</p>
    ${rights().isAdmin && button("Let agents go on", start, "")}
  </div>`;
  return html`<div role="status">${stop && shown()}</div>`;
}

/** The frame: the views, what you may do with your account, and the projects. Narrow screens show most of it in a sheet. */
function Frame({ onHelp, onFind, onNewProject }) {
  const { member } = useStore(session);
  const { project = "", ...chosen } = useStore(address);
  const { unread } = useStore(inbox);
  useStore(workspace);
  const [anchor, setAnchor] = useState(null);
  const close = () => setAnchor(null);
  const { isWriter } = rights();
  const view = viewOf(chosen);
  const viewLinkOf = ([name, { title }]) => {
    const isCurrent = name === view || (!name && view === "project");
    const news = html` <span class="pill end" aria-label="${unread} unread">${unread}</span>`;
    return html`<a href=${viewLink(name)} aria-current=${isCurrent ? "page" : null}>
      <${Icon} of=${name} />${title}${name === "inbox" && unread > 0 && news}</a>`;
  };
  const account = html`<p class="dim">${member.full_name}, ${isWriter ? inWords(member.role) : "read-only"}</p>
    ${ofAccount().map((name) => html`<a href=${viewLink(name)} onClick=${close}>${VIEWS[name].title}</a>`)}
    <a href=${docs}>The API</a>
    ${button("Keyboard shortcuts", onHelp, "")}
    ${button("Sign out", signOff, "")}`;
  const views = shownViews();
  const others = views.slice(IN_BAR);
  const isOther = others.some(([name]) => name === view);
  const [active, archived] = ["active", "archived"].map(projectsThatAre);
  const sum = (name) => active.reduce((total, { stats }) => total + stats[name], 0);
  const stats = { total: sum("total"), done: sum("done"), overdue: sum("overdue") };
  const isCurrent = ({ id }) => id === project && ["", "project"].includes(view);
  const linkOf = (one) =>
    html`<${ProjectLink} key=${one.id} project=${one} isCurrent=${isCurrent(one)} />`;
  const more = html`<details open=${archived.some(isCurrent)}>
    <summary>Archived</summary><ul>${archived.map(linkOf)}</ul>
  </details>`;
  const hide = ({ target, currentTarget }) =>
    target.closest("a, button") && currentTarget.togglePopover(false);
  return html`<header>
    <b class="brand">${workspaceName}</b>
    <nav class="grow" aria-label="Views">
      ${views.map(viewLinkOf)}
      <button type="button" class="narrow" popovertarget="sheet" aria-current=${isOther ? "true" : null}>
        <${Icon} of="more" />More</button>
    </nav>
    ${button(html`<${Icon} of="find" />`, onFind, "icon", FINDING)}
    <button type="button" id="user" class="icon" aria-label="You: ${member.full_name}" aria-haspopup="true"
      onClick=${(event) => setAnchor(event.currentTarget)}><${Avatar} person=${member} /></button>
    ${anchor && html`<${Menu} label="You" anchor=${anchor} onClose=${close}>${account}<//>`}
    <${Stopped} />
  </header>
  <aside id="sheet" popover="auto" aria-label="Projects" onClick=${hide}>
    <div class="narrow">${button(html`<${Icon} of="find" />Find`, onFind, "")}${others.map(viewLinkOf)}</div>
    <ul id="projects">${[{ id: "", name: "All projects", stats }, ...active].map(linkOf)}</ul>
    ${isTeam() && button("New project", onNewProject, "add-project")}
    ${archived.length > 0 && more}
    <div class="narrow">${account}</div>
  </aside>`;
}

function Help({ onClose }) {
  const row = ([key, text]) => html`<tr><th><kbd>${key}</kbd></th><td>${text}</td></tr>`;
  const rows = Object.entries(SHORTCUTS).map(row);
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}><table>${rows}</table><//>`;
}

function NewProject({ onClose }) {
  const save = async (fields) => {
    const { id } = await create("/projects", fields);
    await refresh();
    onClose();
    go({ project: id, view: "", task: "" });
  };
  return html`<${Dialog} title="New project" onClose=${onClose}>
    <${Form} operation="create_project" names=${["name", "description"]} label="Create project"
      autofocus="name" draft=${draftOf("a new project")} onSave=${save} onCancel=${onClose} />
  <//>`;
}

// An input method takes its own keys, such as the Enter that ends a composition.
const isComposed = ({ isComposing, keyCode }) => isComposing || keyCode === 229;
addEventListener("keydown", (event) => isComposed(event) && event.stopPropagation(), true);

// A file that is dropped beside an opened task would replace the page.
const isFile = ({ dataTransfer }) => dataTransfer.types.includes("Files");
for (const type of ["dragover", "drop"])
  addEventListener(type, (event) => isFile(event) && event.preventDefault());

/** Keys that work while you are not typing and no dialog is open. */
function useKeys(keys) {
  useLayoutEffect(() => {
    const press = (event) => {
      const { target, ctrlKey, metaKey, altKey } = event;
      const key = letterOf(event);
      if (key === "Escape" && target.id === "search") target.blur();
      if (key === "Escape" && target === document.body) clearSelection();
      if ((ctrlKey || metaKey) && key === "k") {
        event.preventDefault();
        return keys.find();
      }
      const isText = target.matches?.("input:not([type=checkbox]), textarea");
      if ((ctrlKey || metaKey) && key === "z" && !isText) return undoLatest();
      const isTyped = target.matches?.(TYPED) || ctrlKey || metaKey || altKey;
      if (isTyped || document.querySelector("dialog[open]")) return;
      const isNowhere = target.matches?.("body, #title, a:not(main *)");
      if (isNowhere && key === "ArrowDown") return stepAmong(event); // to the first
      if (!keys[key]) return;
      event.preventDefault();
      keys[key]();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
}

const signOff = () => signOut().catch(notifyFault);

function skip(event) {
  event.preventDefault(); // the address is used for the view
  focusOn("title");
}

/** The frame of the page around the view that the address names. */
function Workspace() {
  const chosen = useStore(address);
  const { isLoaded } = useStore(workspace);
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const { view } = VIEWS[viewOf(chosen)];
  const title = titleOf(chosen);
  const newTask = ({ due_date } = {}) =>
    isTeam() &&
    setDialog(projectsThatAre("active").length ? { isTask: true, due_date } : "project");
  const ofMe = chosen.person === "me" ? "" : "me";
  const showMine = () => !view && isTeam() && go({ person: ofMe });
  const help = () => setDialog("help");
  const search = () => {
    if (!view) return focusOn("search");
    go({ view: "" });
    setTimeout(focusOn, 0, "search");
  };
  const find = () => setDialog("find");
  useKeys({ n: newTask, q: showMine, "/": search, "?": help, find });
  useLayoutEffect(() => {
    showTab({ title: `${title} – ${workspaceName}` }); // an opened task replaces it
  }, [title, chosen.task]);
  useEffect(() => {
    const current = document.querySelectorAll("[aria-current=page]");
    for (const shown of current) shown.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [view, chosen.project]); // on a phone the links scroll sideways
  const project = chosenProject();
  const isKnown = !chosen.project || project;
  useEffect(() => {
    if (isLoaded && !isKnown) lookForProject(chosen.project).catch(notifyFault);
  }, [isLoaded, chosen.project]);
  const other = view
    ? html`<a class="quiet" href=${viewLink("")}>Board</a>`
    : html`<a class="quiet" href=${viewLink("project")}>Milestones<span> and settings</span></a>`;
  const commands = {
    ...(isTeam() && { "New task": newTask, "New project": () => setDialog("project") }),
    ...(rights().isAdmin && { Invite: () => setDialog("members") }),
    ...(isTeam() && { "New meeting": () => setDialog("meetings") }),
    ...(isTeam() && { Agents: () => go({ view: "people", task: "" }) }),
    "Keyboard shortcuts": help,
    "Sign out": signOff,
  };
  const add = () => button("New task", newTask, "primary end", { id: "new-task" });
  return html`<div id="workspace">
    <a class="skip" href="#title" onClick=${skip}>Skip to the content</a>
    <${Frame} onHelp=${help} onFind=${find} onNewProject=${() => setDialog("project")} />
    <main>
      <div class="place line">
        <h1 id="title" tabindex="-1">${title}</h1>
        ${!view && html`<button type="button" class="narrow icon" popovertarget="sheet" aria-label="Projects">▾</button>`}
        ${project && (!view || view === ProjectView) && other}
      </div>
      ${(!view || [Today, Mine, Calendar].includes(view)) && isTeam() && isKnown && project?.status !== "archived" && add()}
      <${view ?? Board} onNewTask=${newTask} />
    </main>
    ${chosen.task && isLoaded && html`<${TaskDialog} key=${chosen.task} name=${chosen.task} />`}
    ${dialog.isTask && html`<${NewTask} due_date=${dialog.due_date} onClose=${close} />`}
    ${dialog === "project" && html`<${NewProject} onClose=${close} />`}
    ${["members", "meetings"].includes(dialog) && html`<${RecordList} of=${dialog} onClose=${close} />`}
    ${dialog === "find" && html`<${Find} views=${[...shownViews(), ...ofAccount().map((name) => [name, VIEWS[name]])]} ...${{ commands }} onClose=${close} />`}
    ${dialog === "help" && html`<${Help} onClose=${close} />`}
  </div>`;
}

/** Forget everything that a session has shown when it ends. */
function Page() {
  const { member, isOut } = useStore(session);
  useLayoutEffect(() => {
    if (!isOut) return;
    showTab({ title: workspaceName, unread: 0 });
    forgetWorkspace();
    forgetInbox();
    forgetToday();
    openedTitles.length = 0;
    forgetBoard();
  }, [isOut]);
  if (isOut) return html`<${SignIn} />`;
  return member && html`<${Workspace} />`;
}

render(html`<${Page} />`, document.getElementById("page"));
begin();
