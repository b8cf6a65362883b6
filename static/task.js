// The opened task: its fields, which are saved together unless somebody else has changed it meanwhile.

import { address, go } from "./address.js";
import { get, patch } from "./api.js";
import { focusCard } from "./board.js";
import { showDiscussion } from "./discussion.js";
import { day, dim, dropDraft, fillForm, fillSelect, find, findDraft, keepDrafts, make } from "./elements.js";
import { notify, onSubmit, tell, time } from "./elements.js";
import { FIELDS } from "./history.js";
import { onRefresh, refresh } from "./refresh.js";
import { assignees, memberName, PRIORITIES, STATUSES, workspace } from "./workspace.js";

const dialog = find("task");
const form = find("task-form");
const inputs = form.elements;
const NAMES = Object.keys(FIELDS).filter((name) => inputs[name]);
const UPDATED = ["title", "status", "assignee_id"]; // by PATCH /tasks/:id, the others by /tasks/:id/details
const CHANGED = "Someone has changed this task meanwhile. What you typed stays; to save it shows the difference.";
let opened = null; // the task on which the form is based: a field that differs from it is not saved yet

const draftName = (id) => `draft of task ${id}`;
keepDrafts(form, () => draftName(opened.id), () => opened);

/** A field's text as the form shows it. */
function shown(task, name) {
  const text = task[name] ?? "";
  return name.endsWith("_date") ? day(text) : text.replace(/\r\n?/g, "\n").trim();
}

const typed = (name) => inputs[name].value.trim();
const unsaved = () => NAMES.filter((name) => typed(name) !== shown(opened, name));

/** A date as the API takes it. A task is due at the end of the day: on that day it is not overdue yet. */
export const asDue = (date) => date && `${date}T23:59:59Z`;

function fill(task, names = NAMES) {
  for (const name of names) inputs[name].value = shown(task, name);
  find("task-title").textContent = task.title;
  const completed = task.completed_at && [" · Completed ", time(task.completed_at)];
  const created = [`Created by ${memberName(task.created_by)} `, time(task.created_at)];
  find("task-dates").replaceChildren(dim(created, " · Changed ", time(task.updated_at), completed));
}

/** Open a task; what was typed and not saved before is in its fields again. */
export async function openTask(id) {
  if (opened?.id === id) return;
  try {
    const task = await get(`/tasks/${id}`);
    const [{ milestones }] = await Promise.all([get(`/projects/${task.project_id}/milestones`), showDiscussion(id)]);
    if (address().task !== id) return;
    fillSelect(inputs.status, Object.entries(STATUSES), task.status);
    fillSelect(inputs.priority, Object.entries(PRIORITIES), task.priority);
    fillSelect(inputs.assignee_id, assignees(), task.assignee_id ?? "");
    const pairs = milestones.map((milestone) => [milestone.id, milestone.title]);
    fillSelect(inputs.milestone_id, [["", "None"], ...pairs], task.milestone_id ?? "");
    for (const name of NAMES) inputs[name].disabled = !workspace.isTeam;
    find("task-project").textContent = task.project.name;
    const draft = findDraft(draftName(id));
    opened = draft?.base ?? task;
    fill(opened);
    fillForm(form, draft?.fields);
    tell(form, opened.version < task.version ? CHANGED : draft ? "What you typed before is not saved yet." : "");
    if (!dialog.open) dialog.showModal();
  } catch (error) {
    notify(error, () => openTask(id));
    if (!error.isTemporary && error.status !== 401) go({ task: "" }, true);
  }
}

/** Close the opened task; what is not saved stays as a draft. */
export const closeTask = () => dialog.close();

dialog.addEventListener("close", () => {
  const { id, title, status } = opened;
  if (unsaved().length) notify(`Your changes to “${title}” are not saved; they are kept in this tab.`);
  else dropDraft(draftName(id));
  opened = null;
  if (workspace.caller && address().task === id) go({ task: "" }, true);
  focusCard(id, "open", status);
});

async function save(path, names) {
  const values = names.map((name) => [name, (name === "due_date" ? asDue(typed(name)) : typed(name)) || null]);
  if (names.length) Object.assign(opened, await patch(`/tasks/${opened.id}${path}`, Object.fromEntries(values), opened.version));
}

onSubmit(form, async () => {
  try {
    await save("", unsaved().filter((name) => UPDATED.includes(name)));
    await save("/details", unsaved().filter((name) => !UPDATED.includes(name)));
  } catch (error) {
    if (error.status === 412) return describeConflict();
    throw error;
  }
  dropDraft(draftName(opened.id));
  fill(opened);
  refresh();
  return "Saved.";
});

/** Show what somebody else has changed, beside what was typed, which can replace it now. */
async function describeConflict() {
  const path = `/tasks/${opened.id}`;
  const [theirs, { activity }] = await Promise.all([get(path), get(`${path}/activity`, { entity: "task", limit: 1 })]);
  const mine = unsaved();
  const both = mine.filter((name) => shown(theirs, name) !== shown(opened, name));
  opened = theirs;
  fill(theirs, NAMES.filter((name) => !mine.includes(name)));
  const textOf = (name, text) => [...(inputs[name].options ?? [])].find(({ value }) => value === text)?.text ?? text;
  const who = activity[0]?.actor.full_name ?? "Someone";
  return make(
    "div",
    { className: "fault" },
    `${who} has changed this task meanwhile, so yours was not saved; it is still in its fields.`,
    make("ul", {}, both.map((name) => make("li", {}, `${FIELDS[name]}, theirs: ${textOf(name, shown(theirs, name))}`))),
    "Save again to replace theirs.",
  );
}

onRefresh(async ({ concerns }) => {
  const id = opened?.id;
  if (!id || !concerns(id)) return;
  try {
    const [task] = await Promise.all([get(`/tasks/${id}`), showDiscussion(id)]);
    if (opened?.id !== id || task.version === opened.version) return;
    if (unsaved().length) return tell(form, CHANGED);
    opened = task;
    fill(task);
  } catch (error) {
    if (error.status !== 404) throw error;
    tell(form, "This task was deleted meanwhile. What you typed is still here, to be copied.");
  }
});
