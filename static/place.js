// Where the reader is: the focus, and the browser's tab.
import { shownTask } from "./columns.js";

export const focusOn = (id) => document.getElementById(id)?.focus();

/** Move the focus to a task's card, or to the heading of its column where the card is not shown. */
export function focusCard(id, status = shownTask(id)?.status) {
  const places = [`[data-task="${id}"] .title`, `#column-${status}`, "#title"];
  const found = places.map((place) => document.querySelector(place));
  found.find(Boolean)?.focus();
}

/** The titles of tabs in which tasks were opened, the last one first. */
export const openedTitles = [];

const tab = { title: "", unread: 0 };
const icon = document.querySelector("link[rel=icon]");
const icons = { read: icon.href, unread: new URL("icon-unread.svg", icon.href).href };

/** Name what is shown in the browser's tab, with the number of what is unread. */
export function showTab(changes) {
  const { title, unread } = Object.assign(tab, changes);
  if (title.startsWith("#") && title !== openedTitles[0]) openedTitles.unshift(title);
  document.title = unread ? `(${unread}) ${title}` : title;
  icon.href = icons[unread ? "unread" : "read"];
}
