// Who works here, and the projects with their progress and milestones.
import { address } from "./address.js";
import { get } from "./api.js";
import { onRefresh } from "./refresh.js";
import { Store } from "./store.js";

const NOTHING = { members: [], projects: [], milestones: [], isLoaded: false };

/** `milestones` are those of the project that the address names; `isLoaded` says that names are known. */
export const workspace = new Store(NOTHING);
export const forgetWorkspace = () => workspace.replace(NOTHING);
const loadMembers = async () => workspace.set(await get("/members"));
const loadProjects = async () => workspace.set(await get("/projects"));

/** Load the milestones of the chosen project; one that does not exist has none. */
export async function loadMilestones() {
  const { project } = address.value;
  const nothing = { milestones: [] };
  const none = (error) => (error.status === 404 ? nothing : Promise.reject(error));
  const path = `/projects/${encodeURIComponent(project)}/milestones`;
  const found = project ? await get(path).catch(none) : nothing;
  if (address.value.project === project) workspace.set(found);
}

export async function loadWorkspace() {
  await Promise.all([loadMembers(), loadProjects()]);
  workspace.set({ isLoaded: true });
}

export const memberOf = (id) => workspace.value.members.find((member) => member.id === id);
export const memberName = (id) => memberOf(id)?.full_name ?? "a former member";
export const projectOf = (id) => workspace.value.projects.find((project) => project.id === id);
export const chosenProject = () => projectOf(address.value.project);
export const projectsThatAre = (status) =>
  workspace.value.projects.filter((project) => project.status === status);
export const activeMembers = () =>
  workspace.value.members.filter((member) => member.status === "active");

/** The team as `[value, words]` pairs, to choose from. */
export const teamPairs = () =>
  activeMembers()
    .filter((member) => member.kind === "team")
    .map((member) => [member.id, member.full_name]);

/** Milestones as `[value, words]` pairs; by default those of the chosen project. */
export const milestonePairs = (milestones = workspace.value.milestones) =>
  milestones.map(({ id, title }) => [id, title]);

onRefresh(({ activity, isPartial }) => {
  const concerns = (...entities) =>
    isPartial || activity.some(({ entity }) => entities.includes(entity));
  const isProgress = concerns("project", "task");
  return Promise.all([
    concerns("member") && loadMembers(),
    isProgress && loadProjects(),
    isProgress && loadMilestones(),
  ]);
});
