// The opened task: its fields, files, comments and history.
import { changeTask, create, download, get, patch, post, serverTime } from "./api.js";
import { CARD_KEYS, CHOICES, deleted, isKept, OPERATION, OWN_KEY } from "./changes.js";
import { removeLater } from "./changes.js";
import { filteredFields, shownTask } from "./columns.js";
import { drafts, dropDraft, Form, isSame, valueInWords } from "./forms.js";
import { inbox, readOf } from "./inbox.js";
import { lazy, notify, notifyFault } from "./notices.js";
import { focusCard, focusOn, letterOf, showTab, TYPED } from "./place.js";
import { Avatar, button, Dialog, Menu, Moment, TaskLink } from "./parts.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { refresh, useRefresh } from "./refresh.js";
import { rulePairs } from "./repeat.js";
import { insert, Mentions, Text, ticked, Written } from "./texts.js";
import { address, closeTask, go, link, useStore } from "./store.js";
import { isStuck, labelOf, now, size } from "./words.js";
import { chosenProject, draftOf, isMe, isTeam, memberName, projectOf } from "./workspace.js";
import { projectsThatAre, rights, session, useMilestones, workspace } from "./workspace.js";

const History = lazy("TaskHistory", () => import("./history.js"));
const FIELDS = [
  "status",
  "assignee_id",
  "priority",
  "project_id",
  "milestone_id",
  "labels",
  "start_date",
  "due_date",
  "repeat",
  "repeat_from",
  "blocked_by",
];
const SAVED_AT_ONCE = FIELDS.filter((name) => name !== "blocked_by");
const CONTENT = {
  isRequired: true,
  missing: "Write a comment first",
  placeholder: `Write a comment${matchMedia("(hover: none)").matches ? "" : ". Ctrl+Enter sends it"}`,
};
const ASKED = { label: "Ask a question (pauses the task until someone answers)" };
const SETTINGS = {
  ...CHOICES,
  title: { placeholder: "What needs to be done?" },
  description: { placeholder: "Description, in Markdown" },
  project_id: { clears: ["milestone_id"] },
  repeat: { kind: "choice", none: "Never" },
  repeat_from: { none: false },
};
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const PREVIEW_MOST = 4e6; // bytes

const draftOfTask = (id) => draftOf(`task ${id}`);
const draftOfComment = (id) => draftOf(`a comment on ${id}`);
const draftsOf = (id) => [draftOfTask(id), draftOfComment(id)];

/** Do what you asked for, and refresh the page. */
const act = (run) => run().then(refresh, (error) => notifyFault(error, () => act(run)));

/** All comments of a task; the API lists the latest 500 first. */
async function loadComments(path, before) {
  const { comments, pagination } = await get(`${path}/comments`, { before });
  if (!pagination.has_more) return comments;
  return [...(await loadComments(path, pagination.next_before)), ...comments];
}

async function loadTask(id, hasComments) {
  const path = `/tasks/${encodeURIComponent(id)}`;
  const [task, comments] = await Promise.all([get(path), hasComments && loadComments(path)]);
  return hasComments ? { task, comments, isPartial: false } : { task };
}

/** The board’s part of a task, shown until the rest is loaded. */
function knownOf(name) {
  const task = shownTask(name);
  return task && { task: { ...task, attachments: [] }, comments: [], isPartial: true };
}

/** The fields that somebody else has changed while you typed into them. */
async function conflictOf(theirs, fields) {
  const { activity } = await get(`/tasks/${theirs.id}/activity`, { entity: "task", limit: 1 });
  const valueOf = (name) => valueInWords(OPERATION, name, theirs[name]);
  const list = fields.map((name) => html`<li>${labelOf(name)}, theirs: ${valueOf(name)}</li>`);
  return html`${activity[0].actor.full_name} has changed this task meanwhile. What you typed is still in its fields.
    <ul>${list}</ul>Save again to replace theirs.`;
}

const linkTo = (task) => html`<p><${TaskLink} ...${{ task }} /></p>`;

/** Set a checkbox of the description, even if somebody else has changed other lines. Return undefined if that failed. */
async function tickTask(task, take, line, isDone) {
  const lineOf = ({ description }) => description?.split("\n")[line];
  try {
    take(await changeTask(task, { description: ticked(task.description, line, isDone) }));
    refresh();
  } catch (error) {
    const { theirs } = error;
    if (!theirs) return void notifyFault(error);
    if (lineOf(theirs) === lineOf(task)) return tickTask(theirs, take, line, isDone);
    take(theirs);
    notify("Someone has changed this line meanwhile; you see theirs.");
  }
  return true;
}

/** The fields with these names, without fields of a rule that would have no effect. */
const fieldsOf = (names, field, value) =>
  names.map((name) => {
    const [day, rule] = [value("due_date"), value("repeat")];
    if (name === "repeat") return (day || rule) && field(name, { pairs: rulePairs(day, rule) });
    return (name !== "repeat_from" || rule) && field(name);
  });

/** The form of the task; its heading is the field of the title. `take` gets the saved task. */
function TaskForm({ task, take, picture }) {
  const isFixed = !isTeam();
  const settings = { ...SETTINGS, milestone_id: { pairs: useMilestones(task.project_id) } };
  const note = (origin, changed) =>
    changed.some((name) => !isSame(task[name], origin[name]))
      ? "Someone has changed this task meanwhile. What you typed stays. Save to see the difference."
      : "Not saved yet.";
  const save = async (changes, origin, rebase) => {
    try {
      take(await changeTask(origin, changes));
    } catch (error) {
      if (!error.theirs) throw error;
      take(error.theirs);
      rebase(error.theirs);
      throw Object.assign(error, { explained: await conflictOf(error.theirs, error.fields) });
    }
    refresh();
    return "Saved.";
  };
  return html`<${Form} operation=${OPERATION} names=${["title", "description", ...FIELDS]} base=${task}
    draft=${draftOfTask(task.id)} label="Save changes" onSave=${save} isChange saves=${SAVED_AT_ONCE}
    ...${{ settings, note, isFixed }}>
    ${(field, value, discards) => html`
      <div class="stack">
        ${field("title", { isHeading: true })}
        <${Written} key=${discards} name="description" text=${value("description")} stored=${task.description}
          ...${{ field, isFixed, picture }} tick=${!isFixed && ((...box) => tickTask(task, take, ...box))} />
      </div>
      <div class="task-fields">
        ${fieldsOf(FIELDS, field, value)}
        ${task.next_number && html`<p>Next: <a href=${link({ task: task.next_number })}>#${task.next_number}</a></p>`}
        ${task.blocked_by.map(linkTo)}
        ${isStuck(task) && html`<p class="band">Agents tried this ${task.tries} times without a result. Change or reassign it, and they may try again.</p>`}
        ${task.blocks?.length > 0 && html`<p class="dim">Blocks</p>${task.blocks.map(linkTo)}`}
        <p class="dim">
          Created by ${memberName(task.created_by)} <${Moment} at=${task.created_at} />, changed
          ${" "}<${Moment} at=${task.updated_at} />
          ${task.claimed_until && html`, claimed until <${Moment} at=${task.claimed_until} />`}
          ${task.completed_at && html`, completed <${Moment} at=${task.completed_at} />`}
        </p>
      </div>`}
  <//>`;
}

function saveFile(file, filename) {
  const href = URL.createObjectURL(file);
  Object.assign(document.createElement("a"), { href, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // some browsers read it later
}

const pathOf = ({ id, task_id }) => `/tasks/${task_id}/attachments/${id}`;
const isPicture = ({ content_type, size: bytes }) =>
  PICTURES.includes(content_type) && bytes <= PREVIEW_MOST;

function Preview({ attachment, words }) {
  const { filename, content_type: type } = attachment;
  const path = pathOf(attachment);
  const [url, setUrl] = useState("");
  useEffect(() => {
    const show = (data) => setUrl(URL.createObjectURL(new Blob([data], { type })));
    download(path).then(show, () => setUrl("")); // the button of the file says why
  }, [path]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  const picture = html`<img src=${url} alt=${words || filename} />`;
  return url && html`<a href=${url} target="_blank" title="Open ${filename}">${picture}</a>`;
}

/** Return a function that draws a picture that is attached to the task; other pictures stay as typed. */
const pictureOf = (attachments) => (name, words) => {
  const isNamed = ({ filename }) => [filename, encodeURI(filename)].includes(name);
  const found = attachments.find((one) => isNamed(one) && isPicture(one));
  return found && html`<${Preview} attachment=${found} ...${{ words }} />`;
};

function Attachment({ attachment }) {
  const { filename, size: bytes } = attachment;
  const path = pathOf(attachment);
  const open = () => act(() => download(path).then((file) => saveFile(file, filename)));
  const drop = () => removeLater(attachment.id, path, ["Removed", filename]);
  return html`<li class="file">
    ${isPicture(attachment) && html`<${Preview} ...${{ attachment }} />`}
    ${button(filename, open)}
    <span class="dim">${size(bytes)}</span>
    ${isTeam() && button("✕", drop, "icon", { "aria-label": `Remove ${filename}` })}
  </li>`;
}

/** Give a pasted picture a name of its own: browsers call each of them image.png. */
function named(file) {
  if (file.name !== "image.png") return file;
  return new File([file], `image-${now().slice(0, -1).replace(/\D/g, "-")}.png`, file);
}

/** Attach files one after another. The message about a failure names the file. */
async function attach(id, files) {
  for (const file of files) {
    const body = new FormData();
    body.append("file", file);
    const { name, size: bytes, lastModified } = file;
    try {
      await create(`/tasks/${id}/attachments`, body, `${name} ${bytes} ${lastModified}`);
    } catch (error) {
      if (error.status === 413) error.message = `It is too large, with ${size(bytes)}`;
      notifyFault(error, () => attach(id, [file]), `${name} was not attached. `);
    }
  }
  await refresh();
}

function Attachments({ attachments, add }) {
  const choose = ({ target }) => {
    add([...target.files]);
    target.value = "";
  };
  const input = html`<div class="attach line">
    <label class="button quiet">Attach files, or paste or drop them here<input type="file" multiple onChange=${choose} /></label>
  </div>`;
  return html`<section class="stack">
    ${attachments.length > 0 && html`<h3>Attachments</h3>`}
    <ul class="line" aria-label="Attachments">
      ${attachments.map((one) => html`<${Attachment} key=${one.id} attachment=${one} />`)}
    </ul>
    ${isTeam() && input}
  </section>`;
}

function Comment({ comment, isSent, isOpen, picture }) {
  const { id, task_id, author, content, created_at, edited_at } = comment;
  const [isEdited, setEdited] = useState(false);
  const path = `/tasks/${task_id}/comments/${id}`;
  const isMine = rights().isWriter && isMe(author);
  const save = async (body) => {
    await patch(path, body);
    setEdited(false);
    refresh();
  };
  const drop = () => {
    removeLater(id, path, ["Deleted", "the comment"]);
    focusOn("comments-title");
  };
  const latest = useMemo(() => ({ content }), [content]); // with boxes that are being saved
  const tick = (line, isDone) => {
    latest.content = ticked(latest.content, line, isDone);
    const takeBack = (error) => {
      latest.content = content;
      notifyFault(error);
    };
    const saved = patch(path, latest).then(refresh);
    return saved.then(() => true, takeBack);
  };
  const leave = () => setEdited(false);
  const form = html`<${Form} operation="update_comment" base=${{ content }} label="Save comment"
    settings=${{ content: { ...CONTENT, label: "Your comment, changed" } }} isChange
    autofocus="content" draft=${draftOf(`comment ${id}`)} onSave=${save} onCancel=${leave} />`;
  const buttons = html`${isMine && button("Edit", () => setEdited(true))}
    ${(isMine || rights().isAdmin) && button("Delete", drop)}`;
  return html`<li class="comment line" aria-busy=${Boolean(isSent)}>
    <${Avatar} person=${author} />
    <div class="grow">
      <b>${author.full_name}</b>${" "}
      <span class="dim"><${Moment} at=${created_at} />${edited_at && " (edited)"}</span>
      ${isOpen && html` <span class="pill">Question</span>`}
      ${isOpen && rights().isWriter && button("Answer", () => composer().focus())}
      ${!isSent && buttons}
      ${isEdited ? form : html`<${Text} text=${content} tick=${isMine && !isSent && tick} ...${{ picture }} />`}
    </div>
  </li>`;
}

function Comments({ id, project, comments, said, question, picture, sendBack }) {
  const [sent, setSent] = useState(null); // shown until the server has answered
  const send = async (body) => {
    setSent({ author: session.value.member, content: body.content, created_at: serverTime() });
    try {
      said(await create(`/tasks/${id}/comments`, body));
    } finally {
      setSent(null);
    }
    await sendBack?.(); // the reason has to be there first
    refresh();
  };
  const settings = { content: { ...CONTENT, label: "New comment" }, question: ASKED };
  const form = html`<${Form} operation="add_comment" draft=${draftOfComment(id)} label=${sendBack ? "Send back" : "Send"} onSave=${send}
    names=${["content", ...(isTeam() ? ["question"] : [])]} ...${{ settings }}>
    ${(field) => html`<${Mentions} ...${{ project }}>${field("content", { isBare: true })}<//>${isTeam() && field("question")}`}
  <//>`;
  return html`<section class="stack">
    <h3 id="comments-title" tabindex="-1">Comments</h3>
    <ol class="stack" aria-label="Comments">
      ${comments.map(
        (one) => html`<${Comment} key=${one.id} comment=${one} isOpen=${one.id === question}
        ...${{ picture }} />`,
      )}
      ${sent && html`<${Comment} comment=${sent} ...${{ picture }} isSent />`}
    </ol>
    ${rights().isWriter && form}
  </section>`;
}

const composer = () => document.querySelector(".task .bare");

/** Accept a task in review, or send it back with a comment that says why. */
function Review({ accept, isReturning, setReturning }) {
  const back = () => {
    setReturning(!isReturning);
    composer().focus();
  };
  const words = isReturning ? "Say below what is missing." : "Ready for review.";
  return html`<div class="band line" role="group" aria-label="Review">
    <span class="grow">${words}</span>
    ${button(isReturning ? "Cancel" : "Send back…", back, "")}
    ${!isReturning && button("Accept", accept, "primary")}
  </div>`;
}

/** The keys of a card act on the opened task, too, unless you are typing; `c` writes a comment. */
function usePropertyKeys(assignMe) {
  useLayoutEffect(() => {
    const press = (event) => {
      const { target, ctrlKey, metaKey, altKey } = event;
      const key = letterOf(event);
      const isElsewhere = target.closest?.(`${TYPED}, [popover], dialog:not(.task)`);
      if (isElsewhere || ctrlKey || metaKey || altKey) return;
      if (key === OWN_KEY && isTeam()) return assignMe.current();
      const field = document.querySelector(`.task [name="${CARD_KEYS[key]}"]:not(:disabled)`);
      const place = key === "c" ? composer() : field;
      if (!place) return;
      event.preventDefault();
      // With the focus in the field, the next letter would be typed there.
      if (place === field) place.click();
      else place.focus();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** Close a task, and say which input is unsent; drafts of a deleted task are dropped. */
function leave({ task, isGone }) {
  if (session.value.isOut || !task) return;
  const { id, number, title, status } = task;
  const unsent = draftsOf(id).filter((name) => drafts().includes(name));
  if (isGone) unsent.forEach(dropDraft);
  else if (unsent.length && isKept({ id })) {
    const open = { words: "Open", run: () => go({ task: number }) };
    notify(`What you typed into “${title}” is not saved; it is kept in this tab.`, open);
  }
  if (!document.querySelector("dialog[open]"))
    focusCard(isGone || !isKept({ id }) ? "" : id, status);
}

const tabOf = ({ number, title, project_id }) =>
  [`#${number} ${title}`, projectOf(project_id)?.name].filter(Boolean).join(" – ");

/** The opened task, which the address names by its number or id. */
export function TaskDialog({ name }) {
  const [loaded, setLoaded] = useState(() => knownOf(name) ?? null);
  const [isGone, setGone] = useState(false);
  const [hasHistory, setHistory] = useState(false); // loaded on request
  const [menu, setMenu] = useState(null);
  const tab = loaded && tabOf(loaded.task);
  useEffect(() => {
    if (tab) showTab({ title: tab });
  }, [tab]);
  const latest = useRef({});
  latest.current = { task: loaded?.task, isGone };
  useStore(workspace);
  useStore(deleted);
  const assignMe = useRef(null);
  usePropertyKeys(assignMe);
  const { unread } = useStore(inbox);
  const opened = !loaded?.isPartial && loaded?.task.id;
  useEffect(() => void (opened && readOf(opened)), [opened, unread]);
  const [isReturning, setReturning] = useState(false);
  const isOpen = () => address.value.task === name;
  const close = () => isOpen() && closeTask();
  const load = async (hasComments = true) => {
    const found = await loadTask(name, hasComments);
    if (isOpen()) setLoaded((shown) => ({ ...shown, ...found }));
  };
  useEffect(() => {
    load().catch((error) => {
      if (!isOpen() || session.value.isOut) return;
      notifyFault(error, () => go({ task: name }), "", isTeam() && error.status === 404);
      go({ task: "" }, { replace: true });
    });
    return () => setTimeout(leave, 0, latest.current);
  }, []);
  useRefresh(({ concerns, has }) => {
    const gone = (error) => (error.status === 404 ? setGone(true) : Promise.reject(error));
    return loaded && concerns(loaded.task.id) && load(has("comment")).catch(gone);
  });
  const attachments = loaded?.task.attachments;
  const files = JSON.stringify(attachments);
  const picture = useMemo(() => attachments && pictureOf(attachments), [files]);
  if (!loaded) return null;
  const { task, comments } = loaded;
  const { id } = task;
  const take = (saved) => setLoaded((shown) => ({ ...shown, task: { ...shown.task, ...saved } }));
  const said = (one) => setLoaded((shown) => ({ ...shown, comments: [...shown.comments, one] }));
  const add = (files) => attach(id, files);
  /** Attach pasted or dropped files, and insert pictures at the caret. */
  const receive = (event, { files }) => {
    if (!files.length) return;
    event.preventDefault();
    if (!isTeam()) return notify("Only the team attaches files.");
    const some = [...files].map(named);
    const pictures = some.filter(({ type }) => PICTURES.includes(type));
    const shown = pictures.map(({ name }) => `![](${encodeURI(name)})`).join("\n");
    if (event.target.matches("textarea:not(.heading)") && shown) insert(event.target, shown);
    add(some);
  };
  /** Office programs give a picture beside the text that was copied; the text is meant. */
  const paste = (event) => {
    const { types } = event.clipboardData;
    const isText = types.includes("text/plain") && types.includes("text/html");
    if (!isText) receive(event, event.clipboardData);
  };
  const change = (fields) => changeTask(task, fields).then(take);
  const move = (status) => change({ status });
  assignMe.current = () => act(() => change({ assignee_id: session.value.member.id }));
  const accept = () => act(() => move("done").then(() => focusOn("comments-title")));
  const sendBack = () => act(() => move("todo").then(() => setReturning(false)));
  const drop = () => {
    const done = () => draftsOf(id).forEach(dropDraft);
    removeLater(id, `/tasks/${id}`, ["Deleted", `“${task.title}”`], done);
    close();
  };
  const gone = html`<p class="fault" role="alert">This task was deleted meanwhile. You can still copy what you typed.</p>`;
  const copy = async () => {
    setMenu(null);
    await navigator.clipboard.writeText(location.href);
    notify(`Copied the link to #${task.number}.`);
  };
  const duplicate = () =>
    act(async () => {
      setMenu(null);
      const made = await create(`/tasks/${id}/copy`, {});
      notify(`This is #${made.number}, a copy of #${task.number}.`);
      go({ task: made.number });
    });
  const skip = () =>
    act(async () => {
      setMenu(null);
      const moved = await post(`/tasks/${id}/skip`);
      take(moved);
      const { due_date, start_date, repeat } = task;
      const back = () => changeTask(moved, { due_date, start_date, repeat }).then(take);
      notify(`Skipped this one of “${task.title}”.`, { words: "Undo", run: () => act(back) });
    });
  const more = { "aria-label": "More", "aria-haspopup": "true" };
  const items = html`<${Menu} label="More" anchor=${menu} onClose=${() => setMenu(null)}>
    ${navigator.clipboard && button("Copy the link", copy, "")}
    ${isTeam() && button("Duplicate", duplicate, "")}
    ${isTeam() && task.repeat && button("Skip this one", skip, "")}
    ${isTeam() && button("Delete task", drop, "danger")}
  <//>`;
  const head = html`<div class="dim line">#${task.number}
    <span class="end">${button("⋯", (event) => setMenu(event.currentTarget), "icon", more)}</span>
  </div>${menu && items}`;
  return html`<${Dialog} title=${task.title} head=${head} className="task" onClose=${close}>
    ${isGone && gone}
    ${task.status === "review" && isTeam() && html`<${Review} ...${{ accept, isReturning, setReturning }} />`}
    <div class="task-body" aria-busy=${Boolean(loaded.isPartial)} onPaste=${paste}
      onDragOver=${(event) => event.preventDefault()}
      onDrop=${(event) => receive(event, event.dataTransfer)}>
      <${TaskForm} ...${{ task, take, picture }} />
      <div class="stack">
        <${Attachments} attachments=${attachments.filter(isKept)} add=${add} />
        <${Comments} ...${{ id, said, picture }} project=${task.project_id} comments=${comments.filter(isKept)} question=${task.question_id}
          sendBack=${isReturning && task.status === "review" ? sendBack : null} />
        <details onToggle=${(event) => setHistory(event.target.open)}>
          <summary>History</summary>${hasHistory && html`<${History} id=${id} />`}
        </details>
      </div>
    </div>
  <//>`;
}

/** The field of the milestone, if the project has any. */
function MilestoneField({ project, field }) {
  const pairs = useMilestones(project);
  return pairs.length > 0 && field("milestone_id", { pairs });
}

export function NewTask({ due_date, onClose }) {
  const chosen = chosenProject();
  const active = projectsThatAre("active");
  const latest = active.find(({ id }) => id === localStorage.getItem("project")) ?? active[0];
  const project = chosen?.status === "active" ? chosen : latest;
  const shown = "project_id priority assignee_id due_date repeat labels".split(" ");
  const names = ["title", "description", ...shown, "milestone_id"];
  const [base] = useState(() => {
    const { milestone_id, ...filtered } = filteredFields();
    const ofProject = { project_id: project?.id, ...(project === chosen && { milestone_id }) };
    const { view } = address.value;
    const isMine = view === "mine" || (view === "month" && !chosen);
    const ofMine = isMine && { assignee_id: session.value.member.id };
    const fields = { ...filtered, ...ofMine, ...ofProject, due_date };
    return { ...fields, priority: filtered.priority ?? "medium" };
  });
  const save = async (body) => {
    const task = await create("/tasks", body);
    localStorage.setItem("project", task.project_id); // the likely project of the next task
    onClose();
    const open = { words: "Open", run: () => go({ view: "", task: task.number }) };
    notify(`Created “${task.title}”.`, open);
    await refresh();
    // You may be typing elsewhere by now.
    if (!document.activeElement.matches("input, textarea")) focusCard(task.id, task.status);
  };
  return html`<${Dialog} title="New task" onClose=${onClose}>
    <${Form} operation="create_task" draft=${draftOf("a new task")} settings=${SETTINGS}
      ...${{ names, base }} autofocus="title" label="Create task" onSave=${save} onCancel=${onClose}>
      ${(field, value) => html`${field("title", { isHeading: true })}
        <${Mentions}>${field("description", { isBare: true })}<//>
        <div class="task-fields">
          ${fieldsOf(shown, field, value)}
          <${MilestoneField} project=${value("project_id")} ...${{ field }} />
        </div>`}
    <//>
  <//>`;
}
