// Where the reader is: the focus, and the browser's tab.
import { shownTask } from "./columns.js";
import { useLayoutEffect, useRef } from "./preact.js";

export const focusOn = (id) => document.getElementById(id)?.focus();

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** The place that ↑ or ↓ leads to from `at`, around the ends of a list; undefined for other keys. */
export const placeAfter = ({ key }, at, length) =>
  STEPS[key] && (at + STEPS[key] + length) % (length || 1);

/** The titles of the tasks that a view lists, and the days of the calendar. */
export const titles = () => [...document.querySelectorAll("main :is(.title, .days .quiet)")];

/** Move the focus among elements by ↑ or ↓, with `isRound` around the ends. Return whether it was such a key. */
export function stepAmong(event, items = titles(), isRound = false) {
  if (!STEPS[event.key]) return false;
  event.preventDefault();
  const at = items.indexOf(document.activeElement);
  items[isRound ? placeAfter(event, at, items.length) : at + STEPS[event.key]]?.focus();
  return true;
}

/** Move the focus to a task's card, or to the heading of its column if the card is not shown. */
export function focusCard(id, status = shownTask(id)?.status) {
  const places = [`[data-task="${id}"] .title`, `#column-${status}`, "#title"];
  const found = places.map((place) => document.querySelector(place));
  found.find(Boolean)?.focus();
}

/** Return a ref of an element. While another view is shown, `kept` holds how far it was scrolled. */
export function useScroll(kept) {
  const [place, scrolled] = [useRef(null), useRef(null)];
  useLayoutEffect(() => {
    if (place.current === scrolled.current) return; // a board that was empty for a moment is another element
    scrolled.current = place.current;
    place.current?.scrollTo(kept.left ?? 0, kept.top ?? 0);
  });
  useLayoutEffect(() => {
    const keep = ({ scrollLeft: left, scrollTop: top }) => Object.assign(kept, { left, top });
    return () => place.current && keep(place.current);
  }, [kept]);
  return place;
}

/** The titles of the tasks that were opened in this tab, the last one first. */
export const openedTitles = [];

const tab = { title: "", unread: 0 };
const icon = document.querySelector("link[rel=icon]");
const icons = { read: icon.href, unread: new URL("icon-unread.svg", icon.href).href };

/** Show the title in the browser's tab, with the number of unread notifications. */
export function showTab(changes) {
  const { title, unread } = Object.assign(tab, changes);
  if (title.startsWith("#") && title !== openedTitles[0]) openedTitles.unshift(title);
  document.title = unread ? `(${unread}) ${title}` : title;
  icon.href = icons[unread ? "unread" : "read"];
}

export const TYPED = "input, textarea, [role=combobox]"; // into what you type letters

/** The letter of a pressed key, whatever the layout and Caps Lock; with Shift, what was typed. */
export function letterOf({ key, code, shiftKey }) {
  if (shiftKey || key.length > 1) return key;
  return ((key > "~" && code.match(/^Key(.)$/)?.[1]) || key).toLowerCase();
}
