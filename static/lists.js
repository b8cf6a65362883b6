// Meetings and whiteboards, as plain lists.

import { get } from "./api.js";
import { dim, find, make, moment, notify, time } from "./elements.js";
import { projectName } from "./workspace.js";

/** The title of each list, and its rows. */
export const LISTS = {
  meetings: ["Meetings", async () => (await get("/meetings")).meetings.map(makeMeeting)],
  whiteboards: ["Whiteboards", async () => (await get("/whiteboards")).whiteboards.map(makeWhiteboard)],
};

function makeRow(title, when, ...facts) {
  return make("li", {}, make("h2", {}, title), dim(when, ...facts.filter(Boolean).map((fact) => ` · ${fact}`)));
}

function makeMeeting({ title, when, starts_at, ends_at, location, project_id, organizer, participants }) {
  const span = ends_at ? `${moment(starts_at)} to ${moment(ends_at)}` : moment(starts_at);
  const people = [organizer, ...participants].map((person) => person.full_name).join(", ");
  const state = when === "past" ? "over" : "upcoming";
  return makeRow(title, time(starts_at, span), state, location, projectName(project_id), people);
}

function makeWhiteboard({ title, project_id, updated_at, updated_by }) {
  return makeRow(title, time(updated_at), `changed by ${updated_by.full_name}`, projectName(project_id));
}

/** Show one of the lists. */
export async function showList(view) {
  const [title, load] = LISTS[view];
  find("list-title").textContent = title;
  find("list").replaceChildren();
  const rows = await load().catch((error) => notify(error, () => showList(view)));
  if (rows) find("list").replaceChildren(...(rows.length ? rows : [make("li", {}, "There are none.")]));
}
