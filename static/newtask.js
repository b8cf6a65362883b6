// The form of a new task.

import { address } from "./address.js";
import { create } from "./api.js";
import { focusCard } from "./board.js";
import { dropDraft, fillForm, fillSelect, find, findDraft, keepDrafts, notify, onSubmit } from "./elements.js";
import { refresh } from "./refresh.js";
import { asDue } from "./task.js";
import { activeProjects, assignees, PRIORITIES } from "./workspace.js";

const DRAFT = "draft of a new task";
const form = find("new-task").querySelector("form");
keepDrafts(form, () => DRAFT);

find("new-task-button").onclick = () => {
  const projects = activeProjects().map((project) => [project.id, project.name]);
  if (!projects.length) return notify("Create a project first: a task belongs to one.");
  fillSelect(form.elements.project_id, projects, address().project ?? projects[0][0]);
  fillSelect(form.elements.priority, Object.entries(PRIORITIES), "medium");
  fillSelect(form.elements.assignee_id, assignees(), "");
  fillForm(form, findDraft(DRAFT)?.fields);
  find("new-task").showModal();
};

onSubmit(form, async () => {
  const typed = [...new FormData(form)].map(([name, text]) => [name, name === "due_date" ? asDue(text) : text]);
  const task = await create(form, "/tasks", Object.fromEntries(typed.filter(([, text]) => text)));
  dropDraft(DRAFT);
  form.reset();
  find("new-task").close();
  notify(`Created “${task.title}”.`);
  await refresh();
  focusCard(task.id, "open", task.status);
});
