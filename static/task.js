// The opened task: its fields, which are saved together unless somebody else has changed it meanwhile.

import { create, get, patch } from "./api.js";
import { focusCard } from "./board.js";
import { inputs, labelOf, showDiscussion, textOf } from "./discussion.js";
import { address, day, dropDraft, fillSelect, find, go, keepDrafts, make, notify, onSubmit } from "./elements.js";
import { restoreDraft, tell, time } from "./elements.js";
import { onRefresh, refresh } from "./refresh.js";
import { activeProjects, assignees, memberName, PRIORITIES, projectName, STATUSES, workspace } from "./workspace.js";

const dialog = find("task");
const form = find("task-form");
const NAMES = [...inputs].map((input) => input.name).filter(Boolean);
const CHANGED = "Someone has changed this task meanwhile. What you typed stays; to save it shows the difference.";
let opened = null; // the task on which the form is based: a field that differs from it is not saved yet

const draftOf = (id) => `draft of task ${id}`;
keepDrafts(form, () => draftOf(opened.id), () => opened);

/** A field's text as the form shows it. */
function shown(task, name) {
  const text = task[name] ?? "";
  return name.endsWith("_date") ? day(text) : text.replace(/\r\n?/g, "\n").trim();
}

/** A form's field as the API takes it. A task is due at the end of a day: on that day it is not overdue yet. */
const sendable = ([name, text]) => [name, (name === "due_date" && text ? `${text}T23:59:59Z` : text.trim()) || null];

const unsaved = () => NAMES.filter((name) => inputs[name].value.trim() !== shown(opened, name));

function fill(task, names = NAMES) {
  for (const name of names) inputs[name].value = shown(task, name);
  find("task-title").textContent = task.title;
  const completed = task.completed_at && [" · Completed ", time(task.completed_at)];
  const created = [`Created by ${memberName(task.created_by)} `, time(task.created_at)];
  find("task-dates").replaceChildren(make("span", {}, `${projectName(task.project_id)} · `, created, " · Changed ", time(task.updated_at), completed));
}

/** Open a task; what was typed and not saved before is in its fields again. */
export async function openTask(id) {
  if (opened?.id === id) return;
  try {
    const task = await get(`/tasks/${id}`);
    const { milestones } = await get(`/projects/${task.project_id}/milestones`);
    const pairs = milestones.map((milestone) => [milestone.id, milestone.title]);
    fillSelect(inputs.status, Object.entries(STATUSES), task.status);
    fillSelect(inputs.priority, Object.entries(PRIORITIES), task.priority);
    fillSelect(inputs.assignee_id, assignees(), task.assignee_id ?? "");
    fillSelect(inputs.milestone_id, [["", "None"], ...pairs], task.milestone_id ?? "");
    await showDiscussion(id);
    if (address().task !== id) return;
    for (const name of NAMES) inputs[name].disabled = !workspace.isTeam;
    fill(task);
    const draft = restoreDraft(form, draftOf(id));
    opened = draft?.base ?? task;
    tell(form, opened.version < task.version ? CHANGED : draft ? "What you typed before is not saved yet." : "");
    if (!dialog.open) dialog.showModal();
  } catch (error) {
    notify(error, () => openTask(id));
    if (!error.isTemporary && error.status !== 401) go({ task: "" }, true);
  }
}

dialog.onclose = () => {
  const { id, title, status } = opened;
  if (unsaved().length) notify(`Your changes to “${title}” are not saved; they are kept in this tab.`);
  else dropDraft(draftOf(id));
  opened = null;
  if (address().task === id && !find("workspace").hidden) go({ task: "" }, true);
  focusCard(id, status);
};

async function save(path, names) {
  if (!names.length) return;
  const fields = Object.fromEntries(names.map((name) => sendable([name, inputs[name].value])));
  Object.assign(opened, await patch(`/tasks/${opened.id}${path}`, fields, opened.version));
}

onSubmit(form, async () => {
  const isUpdated = (name) => ["title", "status", "assignee_id"].includes(name);
  try {
    await save("", unsaved().filter(isUpdated));
    await save("/details", unsaved().filter((name) => !isUpdated(name)));
  } catch (error) {
    if (error.status === 412) return describeConflict();
    throw error;
  }
  dropDraft(draftOf(opened.id));
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
  const lines = both.map((name) => make("li", {}, `${labelOf(name)}, theirs: ${textOf(name, theirs[name])}`));
  const who = activity[0]?.actor.full_name ?? "Someone";
  const text = `${who} has changed this task meanwhile, so yours was not saved; it is still in its fields.`;
  return make("div", { className: "fault" }, text, make("ul", {}, lines), "Save again to replace theirs.");
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

const NEW = "draft of a new task";
const creation = find("new-task").querySelector("form:not([method])");
keepDrafts(creation, () => NEW);

find("new-task-button").onclick = () => {
  const projects = activeProjects().map((project) => [project.id, project.name]);
  if (!projects.length) return notify("Create a project first: a task belongs to one.");
  fillSelect(creation.elements.project_id, projects, address().project ?? projects[0][0]);
  fillSelect(creation.elements.priority, Object.entries(PRIORITIES), "medium");
  fillSelect(creation.elements.assignee_id, assignees(), "");
  restoreDraft(creation, NEW);
  find("new-task").showModal();
};

onSubmit(creation, async () => {
  const task = await create(creation, "/tasks", Object.fromEntries(Array.from(new FormData(creation), sendable)));
  dropDraft(NEW);
  creation.reset();
  find("new-task").close();
  notify(`Created “${task.title}”.`);
  await refresh();
  focusCard(task.id, task.status);
});
