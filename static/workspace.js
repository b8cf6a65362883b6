// Who works here, and the projects with their progress.
import { create, get, patch } from "./api.js";
import { address, find, go, link, make, notify, onSubmit } from "./elements.js";
import { onRefresh, refresh } from "./refresh.js";
export const STATUSES = { todo: "To do", in_progress: "In progress", review: "Review", done: "Done" };
export const PRIORITIES = { low: "Low", medium: "Medium", high: "High", urgent: "Urgent" };
export const workspace = { caller: null, isWriter: false, isTeam: false, members: [], projects: [] };
const loadMembers = async () => Object.assign(workspace, await get("/members"));
const loadProjects = async () => showProjects(Object.assign(workspace, await get("/projects")));
/** Load who calls, what they may do, and what forms choose from. */
export async function loadWorkspace() {
  const { member, key } = await get("/me");
  const isWriter = key.scope === "write";
  Object.assign(workspace, { caller: member, isWriter, isTeam: isWriter && member.role !== "client" });
  find("caller").textContent = `${member.full_name} (${isWriter ? member.role : "may only read"})`;
  document.body.className = `${isWriter ? "may-comment" : ""} ${workspace.isTeam ? "may-work" : ""}`;
  await Promise.all([loadMembers(), loadProjects()]);
}

export const memberName = (id) => workspace.members.find((member) => member.id === id)?.full_name ?? "a former member";
export const projectName = (id) => workspace.projects.find((project) => project.id === id)?.name;
const projectsThatAre = (status) => workspace.projects.filter((project) => project.status === status);
export const activeProjects = () => projectsThatAre("active");
/** The name of the caller's draft of something; who signs in next on this tab has other ones. */
export const draftOf = (what) => `draft of ${what} by ${workspace.caller.id}`;
/** The `[value, text]` pairs of a select for the assignee. */
export function assignees() {
  const team = workspace.members.filter((member) => member.status === "active" && member.kind === "team");
  return [["", "Nobody"], ...team.map((member) => [member.id, member.full_name])];
}
/** List the projects, each a link to its board, and say of the chosen one if it is archived. */
export function showProjects() {
  const archived = projectsThatAre("archived");
  const sum = (name) => activeProjects().reduce((count, { stats }) => count + stats[name], 0);
  const stats = { total: sum("total"), done: sum("done"), overdue: sum("overdue") };
  const all = [{ id: "", name: "All projects", stats }, ...activeProjects()];
  const focused = document.activeElement.dataset.project;
  const list = (id, projects) =>
    find(id).replaceChildren(...projects.map((project) => make("li", {}, makeProject(project))));
  list("projects", all);
  list("archived-projects", archived);
  find("archived").hidden = !archived.length;
  find("is-archived").hidden = !archived.some(({ id }) => id === address().project);
  if (focused !== undefined) document.querySelector(`aside [data-project="${focused}"]`)?.focus();
}

function makeProject({ id, name, stats }) {
  const { project = "", view } = address();
  const properties = { href: link({ project: id, view: "", task: "" }), data: { project: id } };
  if (id === project && !view) properties.ariaCurrent = "page";
  const progress = make("progress", { max: stats.total || 1, value: stats.done, ariaLabel: `Progress of ${name}` });
  const late = stats.overdue && make("span", { className: "late" }, `${stats.overdue} overdue`);
  const figures = make("span", { className: "facts" }, `${stats.done} of ${stats.total} done`, late);
  return make("a", properties, make("b", {}, name), progress, figures);
}
async function unarchive() {
  await patch(`/projects/${address().project}`, { status: "active" });
  find("title").focus(); // the button goes
  await refresh();
}
find("unarchive").onclick = () => unarchive().catch(notify);
const form = find("new-project").querySelector("form");
onSubmit(form, async () => {
  const { id } = await create(form, "/projects", { name: form.elements.name.value });
  form.reset();
  find("new-project").open = false;
  await loadProjects();
  go({ project: id, view: "" });
});

onRefresh(({ activity }) => {
  const concerns = (...entities) => activity.some((entry) => entities.includes(entry.entity));
  return Promise.all([concerns("member") && loadMembers(), concerns("project", "task") && loadProjects()]);
});
