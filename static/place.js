// Where the focus is, and where it goes.
import { shownTask } from "./columns.js";

export const focusOn = (id) => document.getElementById(id)?.focus();

/** Move the focus to a task's card, or to the heading of its column where the card is not shown. */
export function focusCard(id, status = shownTask(id)?.status) {
  const places = [`[data-task="${id}"] .title`, `#column-${status}`, "#title"];
  const found = places.map((place) => document.querySelector(place));
  found.find(Boolean)?.focus();
}
