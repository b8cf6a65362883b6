// The signed-in member with their rights; the members, projects and milestones of the workspace; the stop of its agents.
import { get, remove } from "./api.js";
import { dismissAll, notifyFault } from "./notices.js";
import { useEffect } from "./preact.js";
import { onRefresh, stopRefresh } from "./refresh.js";
import { address, Store, useStore } from "./store.js";
import { now } from "./words.js";

const NOBODY = { member: null, key: null };

/** The signed-in member. `isOut` means that nobody is signed in; `why` is the reason. */
export const session = new Store({ ...NOBODY, isOut: false, why: "" });

export async function loadSession() {
  const { member, key } = await get("/me");
  const reader = sessionStorage.getItem("reader");
  if (reader && reader !== member.id) sessionStorage.clear(); // drafts of somebody else
  sessionStorage.setItem("reader", member.id);
  session.set({ member, key, isOut: false, why: "" });
}

/** The rights of the member in this session; the server decides the same. */
export function rights() {
  const { member, key } = session.value;
  const isWriter = key.scope === "write";
  const isOwner = isWriter && member.role === "owner";
  const isAdmin = isOwner || (isWriter && member.role === "admin");
  return { isWriter, isTeam: isWriter && member.role !== "client", isAdmin, isOwner };
}

export const isClient = () => session.value.member.role === "client";
export const isTeam = () => rights().isTeam;
export const isMe = (person) => person.id === session.value.member.id;

/** Whether the caller may change this member, and their keys and links. */
export function mayManage(person) {
  const { isWriter, isAdmin, isOwner } = rights();
  return isWriter && (isMe(person) || (person.role === "owner" ? isOwner : isAdmin));
}

/** The name under which this tab keeps a draft of the member. */
export const draftOf = (what) => `draft of ${what} by ${session.value.member.id}`;

let isLeaving = false; // after signing out, waiting requests are refused

/** Whether a key or session is still valid. */
export const isUsable = ({ revoked_at, expires_at }) =>
  !revoked_at && (!expires_at || expires_at > now());

export async function signOut() {
  await dismissAll(); // this sends deletions
  const isMade = (one) => one.made_with === session.value.key.id && isUsable(one);
  const names = (await get("/keys")).keys.filter(isMade).map(({ name }) => name);
  const made =
    names.length > 0 && confirm(`Also end what you made in this session: ${names.join(", ")}?`);
  await remove("/session", made ? { made } : {});
  isLeaving = true;
  sessionStorage.clear();
  // A new page keeps nothing of the workspace in memory.
  location.replace(document.documentElement.dataset.signOut || location.pathname);
}

/** Return to where this tab was when the session of the same person ended. */
export function returnToPlace() {
  const kept = sessionStorage.getItem("place");
  sessionStorage.removeItem("place");
  if (kept && !location.hash) location.hash = kept;
}

document.addEventListener("signed-out", ({ detail }) => {
  if (isLeaving) return;
  const { member, why } = session.value;
  if (member) sessionStorage.setItem("place", location.hash);
  stopRefresh();
  dismissAll();
  session.set({ ...NOBODY, isOut: true, why: member ? `You are signed out: ${detail}.` : why });
});

const NOTHING = { members: [], projects: [], labels: [], milestones: {}, isLoaded: false };

/**
 * `milestones` are lists by project, loaded on demand. `isLoaded` means that names are known. `missing` is the id of a
 * project that the address names and that does not exist.
 */
export const workspace = new Store(NOTHING);
export const forgetWorkspace = () => workspace.replace(NOTHING);
const loadMembers = async () => workspace.set(await get("/members"));

/** Load the projects, and give each an angle on the colour wheel, far from its neighbours’ angles. */
export async function loadProjects() {
  const { projects } = await get("/projects");
  const ids = projects.map(({ id }) => id).sort();
  const withHue = (project) => ({ ...project, hue: (ids.indexOf(project.id) * 137.5) % 360 });
  workspace.set({ projects: projects.map(withHue) });
}

/** Look again for a project that is not known: it may have been created seconds ago. */
export async function lookForProject(id) {
  await loadProjects();
  if (!projectOf(id)) workspace.set({ missing: id });
}

/** The stop of all agents: by whom, when and why; null if they work. */
export const stopState = new Store({ stop: null });
export const loadStop = async () =>
  stopState.set(isTeam() ? await get("/agents/stop") : { stop: null });

async function loadLabels() {
  const { labels } = await get("/labels");
  workspace.set({ labels: labels.map(({ label }) => label) });
}

/** Load the milestones of a project; an unknown project has none. */
async function loadMilestones(project) {
  const none = (error) => (error.status === 404 ? {} : Promise.reject(error));
  const path = `/projects/${encodeURIComponent(project)}/milestones`;
  const { milestones = [] } = await get(path).catch(none);
  workspace.set({ milestones: { ...workspace.value.milestones, [project]: milestones } });
}

/** Load the open milestones of a project and the `chosen` one, as `[value, words]` pairs. */
export function useMilestones(project, chosen) {
  const { milestones } = useStore(workspace);
  useEffect(() => void (project && loadMilestones(project).catch(notifyFault)), [project]);
  const isShown = ({ id, closed_at }) => !closed_at || id === chosen;
  return (milestones[project] ?? []).filter(isShown).map(({ id, title }) => [id, title]);
}

export async function loadWorkspace() {
  await Promise.all([loadMembers(), loadProjects(), loadLabels()]);
  workspace.set({ isLoaded: true });
}

const find = (list, id) => workspace.value[list].find((one) => one.id === id);
const ofStatus = (list, status) => workspace.value[list].filter((one) => one.status === status);

export const memberOf = (id) => find("members", id);
export const memberName = (id) => memberOf(id)?.full_name ?? "a former member";
export const projectOf = (id) => find("projects", id);
export const milestoneOf = (id) =>
  Object.values(workspace.value.milestones)
    .flat()
    .find((one) => one.id === id);
export const chosenProject = () => projectOf(address.value.project);
export const projectsThatAre = (status) => ofStatus("projects", status);
export const activeMembers = () => ofStatus("members", "active");

/** The known labels, and these, as `[value, words]` pairs to choose from. */
export const labelPairs = (others) =>
  [...new Set([...workspace.value.labels, ...others])].map((label) => [label, label]);

/** The active members who see a project. */
export const whoSee = (project) =>
  activeMembers().filter(({ project_ids }) => project_ids?.includes(project) ?? true);

/** The clients to whom a project is shown by name, as words that follow the name of the project. */
export function readersOf(project) {
  const isReader = (one) => !isMe(one) && one.project_ids?.includes(project);
  const readers = workspace.value.members.filter(isReader);
  const names = readers.map(({ full_name }) => full_name).join(", ");
  return names && ` (${names} can read its tasks, comments and files)`;
}

/** The projects, or those with this status, as `[value, words]` pairs to choose from. */
export const projectPairs = (status) =>
  (status ? projectsThatAre(status) : workspace.value.projects).map(({ id, name }) => [id, name]);

/** The team as `[value, words]` pairs to choose from. */
export const teamPairs = () =>
  activeMembers().flatMap(({ id, kind, full_name }) => (kind === "team" ? [[id, full_name]] : []));

/** The number of tasks with this status in the chosen project, or else in all active ones. */
export function countOf(status) {
  const projects = chosenProject() ? [chosenProject()] : projectsThatAre("active");
  return projects.reduce((sum, { stats }) => sum + stats[status], 0);
}

/** Load the figures of a project again. */
export async function loadStats(id) {
  const { stats } = await get(`/projects/${id}`);
  const updated = (project) => (project.id === id ? { ...project, stats } : project);
  workspace.set({ projects: workspace.value.projects.map(updated) });
}

onRefresh(({ tasks, isPartial, has }) => {
  const labels = new Set([...workspace.value.labels, ...tasks.flatMap((task) => task.labels)]);
  if (labels.size > workspace.value.labels.length) {
    workspace.set({ labels: [...labels].sort((one, other) => one.localeCompare(other)) });
  }
  return Promise.all([
    has("member") && loadMembers(),
    has("member") && loadStop(),
    isPartial && loadLabels(),
    ...(has("project") ? Object.keys(workspace.value.milestones).map(loadMilestones) : []),
  ]);
});
