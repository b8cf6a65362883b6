// The report of a week: what was done and by whom, what is in progress, late and new. You can copy and print it.
import { get, serverTime } from "./api.js";
import { Filter } from "./board.js";
import { getTasks } from "./columns.js";
import { notify, useCurrent, useLoad } from "./notices.js";
import { button } from "./parts.js";
import { html, useState } from "./preact.js";
import { useRefresh } from "./refresh.js";
import { address, useStore } from "./store.js";
import { Text } from "./texts.js";
import { count, dateInWords, dayOf, mondayOf } from "./words.js";
import { memberName, projectOf, projectPairs, projectsThatAre, workspace } from "./workspace.js";

const WEEKS = Object.entries({ "": "This week", last: "Last week" });

const plain = (name) => name.replace(/[\\`*_[\]<#]/g, "\\$&"); // escapes Markdown
const dueInWords = (at) => (at ? `, due ${dateInWords(at, serverTime())}` : "");
const taskLine = ({ number, title, due_date, completed_at }) =>
  `  * #${number} ${plain(title)}${completed_at ? "" : dueInWords(due_date)}`;
const milestoneLine = ({ title, stats, closed_at, due_date }) =>
  `* ${plain(title)}: ${stats.done} of ${count(stats.total, "task")} done${closed_at ? ", closed" : dueInWords(due_date)}`;

/** A list of the tasks of each person. */
function personLines(tasks) {
  const ofPerson = ({ assignee_id }) => (assignee_id ? memberName(assignee_id) : "Nobody");
  const linesOf = ([name, some]) => [`* **${plain(name)}**: ${some.length}`, ...some.map(taskLine)];
  return [...Map.groupBy(tasks, ofPerson)].flatMap(linesOf);
}

/** The report as Markdown. Late tasks and those in progress are as of now, even in the report of last week. */
async function reportOf(project_id, week) {
  const today = dayOf(serverTime());
  const [from, until] = week ? [-1, 0].map((weeks) => mondayOf(today, weeks)) : [mondayOf(today)];
  const isOf = (at) => dayOf(at) >= from && (!until || dayOf(at) < until);
  const openedSince = async (created_since) =>
    (await get("/tasks", { project_id, created_since, limit: 1 })).pagination.total;
  const open = { project_id, archived: project_id ? "" : "false", sort: "due_date" };
  const ids = project_id ? [project_id] : projectsThatAre("active").map(({ id }) => id);
  const [completed, underway, late, opened, openedAfter, ...lists] = await Promise.all([
    getTasks({ project_id, status: "done", completed_since: from, sort: "-updated_at" }),
    getTasks({ ...open, status: "in_progress" }),
    getTasks({ ...open, status: "open", due_before: serverTime() }),
    openedSince(from),
    until ? openedSince(until) : 0,
    ...ids.map((id) => get(`/projects/${id}/milestones`)),
  ]);
  const done = completed.filter(({ completed_at }) => isOf(completed_at));
  const milestones = lists
    .flatMap((list) => list.milestones)
    .filter(({ closed_at }) => !closed_at || isOf(closed_at));
  const sections = {
    Done: personLines(done),
    "In progress": personLines(underway),
    Late: personLines(late),
    Milestones: milestones.map(milestoneLine),
  };
  const figures = `${done.length} done, ${opened - openedAfter} new, ${late.length} late`;
  const title = plain(projectOf(project_id)?.name ?? "All projects");
  const head = `# ${title}, week of ${dateInWords(`${from}T12:00Z`, "")}\n\n${figures}`;
  const listed = Object.entries(sections).filter(([, lines]) => lines.length);
  const listOf = ([name, lines]) => `## ${name}\n\n${lines.join("\n")}`;
  return [head, ...listed.map(listOf)].join("\n\n");
}

export function Week() {
  const { project = "", week = "" } = useStore(address);
  const { isLoaded } = useStore(workspace);
  const [report, setReport] = useState("");
  const isCurrent = useCurrent(`${project} ${week}`);
  const load = async () => {
    const made = isLoaded && (await reportOf(project, week));
    if (made && isCurrent()) setReport(made);
  };
  useLoad(load, [project, week, isLoaded]);
  useRefresh(({ has }) => (has("task") || has("project")) && load());
  const copy = () => navigator.clipboard.writeText(report).then(() => notify("Copied the report."));
  const projects = [["", "All projects"], ...projectPairs("active")];
  return html`<div class="page stack" aria-busy=${!report}>
    <div class="line">
      <${Filter} name="week" label="Week" pairs=${WEEKS} /> <${Filter} name="project" label="Project" pairs=${projects} />
      ${navigator.clipboard && button("Copy as Markdown", copy, "")} ${button("Print", () => print(), "")}
    </div>
    <${Text} text=${report} top=${1} />
  </div>`;
}
