// The opened task: its fields, which are saved together unless somebody else has changed it meanwhile.
import { create, get, patch } from "./api.js";
import { focusCard } from "./board.js";
import { inputs, loadDiscussion, showDiscussion, textOf } from "./discussion.js";
import { address, day, dropDraft, fillSelect, find, go, keepDrafts, make, notify } from "./elements.js";
import { onSubmit, restoreDraft, tell, time } from "./elements.js";
import { onRefresh, refresh } from "./refresh.js";
import { labelOf } from "./words.js";
import { activeProjects, assignees, draftOf, memberName, PRIORITIES, projectName } from "./workspace.js";
import { STATUSES, workspace } from "./workspace.js";
const [dialog, form, creation] = ["task", "task-form", "new-task-form"].map(find);
const NAMES = [...inputs].map((input) => input.name).filter(Boolean);
const CHANGED = "Someone has changed this task meanwhile. What you typed stays; to save it shows the difference.";
let opened = null; // the task on which the form is based: a field that differs from it is not saved yet
const draftOfTask = (id) => draftOf(`task ${id}`);
keepDrafts(form, () => draftOfTask(opened.id), () => opened);
/** A field's text as the form shows it. */
const shown = (task, name) => (name.endsWith("_date") ? day(task[name]) : task[name]) ?? "";
/** A form's field as the API takes it, which reads a date as a day in the workspace's time zone. */
const sendable = ([name, text]) => [name, text.trim() || null];
const tidy = (text) => text.replace(/\r\n?/g, "\n").trim();
const unsaved = () => NAMES.filter((name) => tidy(inputs[name].value) !== tidy(shown(opened, name)));

function fill(task, names = NAMES) {
  for (const name of names) inputs[name].value = shown(task, name);
  find("task-title").textContent = task.title;
  const origin = `${projectName(task.project_id)}, created by ${memberName(task.created_by)} `;
  const completed = task.completed_at ? [", completed ", time(task.completed_at)] : [];
  find("task-dates").replaceChildren(origin, time(task.created_at), ", changed ", time(task.updated_at), ...completed);
}
/** Open a task; what was typed and not saved before is in its fields again. */
export async function openTask(id) {
  if (opened?.id === id) return;
  dialog.close();
  if (opened) leave();
  try {
    const [task, parts] = await Promise.all([get(`/tasks/${id}`), loadDiscussion(id)]);
    const { milestones } = await get(`/projects/${task.project_id}/milestones`);
    if (address().task !== id) return;
    const pairs = milestones.map((milestone) => [milestone.id, milestone.title]);
    const choices = { status: Object.entries(STATUSES), priority: Object.entries(PRIORITIES) };
    Object.assign(choices, { assignee_id: assignees(), milestone_id: [["", "None"], ...pairs] });
    for (const name in choices) fillSelect(inputs[name], choices[name], task[name] ?? "");
    showDiscussion(id, parts);
    for (const name of NAMES) inputs[name].disabled = !workspace.isTeam;
    fill(task);
    const draft = restoreDraft(form, draftOfTask(id));
    opened = draft?.base ?? task;
    tell(form, opened.version < task.version ? CHANGED : draft ? "What you typed before is not saved yet." : "");
    if (!dialog.open) dialog.showModal();
  } catch (error) {
    if (address().task !== id) return;
    notify(error, () => openTask(id));
    if (!error.isTemporary && error.status !== 401) go({ task: "" }, true);
  }
}
/** Take leave of the opened task. Its dialog tells that it was closed with a frame, maybe after the next was opened. */
function leave() {
  const { id, title, status } = opened;
  if (unsaved().length) notify(`Your changes to “${title}” are not saved; they are kept in this tab.`);
  else dropDraft(draftOfTask(id));
  opened = null;
  if (address().task === id && !find("workspace").hidden) go({ task: "" }, true);
  focusCard(id, status);
}
dialog.onclose = () => opened && !dialog.open && leave();

async function save(task, path, fields) {
  if (!fields.length) return;
  Object.assign(task, await patch(`/tasks/${task.id}${path}`, Object.fromEntries(fields), task.version));
}

onSubmit(form, async () => {
  const task = opened; // which may be closed before the answers come
  const fields = unsaved().map((name) => sendable([name, inputs[name].value]));
  const isUpdated = ([name]) => ["title", "status", "assignee_id"].includes(name);
  try {
    await save(task, "", fields.filter(isUpdated));
    await save(task, "/details", fields.filter((field) => !isUpdated(field)));
  } catch (error) {
    return error.status === 412 && opened === task ? describeConflict(task) : Promise.reject(error);
  }
  dropDraft(draftOfTask(task.id));
  if (opened === task) fill(task);
  refresh();
  return "Saved.";
});
/** Show what somebody else has changed, beside what was typed, which can replace it now. */
async function describeConflict(task) {
  const theirs = await get(`/tasks/${task.id}`);
  const { activity } = await get(`/tasks/${task.id}/activity`, { entity: "task", limit: 1 });
  if (opened !== task) return "";
  const mine = unsaved();
  const both = mine.filter((name) => shown(theirs, name) !== shown(task, name));
  const lines = both.map((name) => make("li", {}, `${labelOf(name)}, theirs: ${textOf(name, theirs[name])}`));
  fill((opened = theirs), NAMES.filter((name) => !mine.includes(name)));
  const text = `${activity[0].actor.full_name} has changed this task meanwhile. What you typed is still in its fields.`;
  return make("div", { className: "fault" }, text, make("ul", {}, lines), "Save again to replace theirs.");
}
/** Show what has changed of the opened task; what was typed and not saved stays. */
async function update(id) {
  const answers = Promise.all([get(`/tasks/${id}`), loadDiscussion(id)]);
  const [task, parts] = await answers.catch((error) => (error.status === 404 ? [] : Promise.reject(error)));
  if (opened?.id !== id) return;
  if (!task) return tell(form, "This task was deleted meanwhile. What you typed is still here, to be copied.");
  showDiscussion(id, parts);
  if (task.version <= opened.version) return;
  if (unsaved().length) return tell(form, CHANGED);
  fill((opened = task));
}
onRefresh(({ concerns }) => opened && concerns(opened.id) && update(opened.id));
form.onreset = (event) => {
  event.preventDefault(); // the fields get the task's values, not those that the page came with
  dropDraft(draftOfTask(opened.id));
  fill(opened);
  tell(form, "");
  update(opened.id).catch((error) => tell(form, error));
};

const newDraft = () => draftOf("a new task");
keepDrafts(creation, newDraft);
find("new-task-button").onclick = () => {
  const projects = activeProjects().map((project) => [project.id, project.name]);
  if (!projects.length) return notify("Create a project first: a task belongs to one.");
  const { project_id } = creation.elements;
  fillSelect(project_id, projects, projects[0][0]);
  fillSelect(creation.elements.priority, Object.entries(PRIORITIES), "medium");
  fillSelect(creation.elements.assignee_id, assignees(), "");
  restoreDraft(creation, newDraft());
  const { project } = address();
  const isActive = projects.some(([id]) => id === project); // an archived one takes no new tasks
  fillSelect(project_id, projects, isActive ? project : project_id.value || projects[0][0]);
  find("new-task").showModal();
};
creation.onreset = () => find("new-task").close();
find("new-task").onclose = () => {
  const { title, description } = creation.elements;
  if (!title.value.trim() && !description.value.trim()) dropDraft(newDraft());
};
onSubmit(creation, async () => {
  const task = await create(creation, "/tasks", Object.fromEntries(Array.from(new FormData(creation), sendable)));
  creation.reset(); // which closes the dialog, and so drops the draft
  notify(`Created “${task.title}”.`);
  await refresh();
  focusCard(task.id, task.status);
});
