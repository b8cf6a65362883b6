// The history of the opened task, in sentences.

import { get } from "./api.js";
import { button, day, find, make, time } from "./elements.js";
import { memberName, PRIORITIES, STATUSES } from "./workspace.js";

export const FIELDS = {
  ...{ title: "Title", status: "Status", priority: "Priority", assignee_id: "Assignee", milestone_id: "Milestone" },
  ...{ start_date: "Start date", due_date: "Due date", description: "Description", metadata: "Metadata" },
};
const COMMENTED = { created: "commented", updated: "changed a comment", deleted: "deleted a comment" };

function valueOf(field, value) {
  if (value === null || value === "") return "none";
  if (field === "assignee_id") return memberName(value);
  if (field === "milestone_id") return find("task").querySelector(`option[value="${value}"]`)?.text ?? "another one";
  if (typeof value !== "string") return "…";
  if (field.endsWith("_date")) return day(value);
  return STATUSES[value] ?? PRIORITIES[value] ?? (value.length > 60 ? `${value.slice(0, 60)}…` : value);
}

function sentence({ action, entity, changes }) {
  if (entity === "comment") return COMMENTED[action];
  if (action === "created") return "created the task";
  const [before, after] = changes.attachment ?? [];
  if (before || after) return after ? `attached ${after}` : `removed ${before}`;
  const known = Object.entries(changes).filter(([field]) => FIELDS[field]);
  return known.map(([field, pair]) => `${FIELDS[field]}: ${pair.map((value) => valueOf(field, value)).join(" → ")}`).join("; ");
}

/** Show the latest of a task's history, or what was before an activity. */
export async function showHistory(id, before) {
  const { activity, pagination } = await get(`/tasks/${id}/activity`, { before });
  const line = (entry) => [make("b", {}, entry.actor.full_name), ` ${sentence(entry)} `, time(entry.created_at)];
  const lines = activity.map((entry) => make("li", {}, line(entry)));
  const earlier = button("Show earlier", () => showHistory(id, pagination.next_before));
  find("history")[before ? "append" : "replaceChildren"](...lines);
  find("earlier").replaceChildren(...(pagination.has_more ? [earlier] : []));
}
