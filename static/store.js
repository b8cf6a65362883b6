// State outside of components, such as the address; they are drawn again when it changes.
import { useLayoutEffect, useReducer } from "./preact.js";

export class Store {
  watchers = new Set();

  constructor(value) {
    this.value = value;
  }

  replace(value) {
    this.value = value;
    for (const watcher of this.watchers) watcher();
  }

  set(changes) {
    this.replace({ ...this.value, ...changes });
  }
}

/** The value of a store, for the component that calls this. */
export function useStore(store) {
  const [, redraw] = useReducer((times) => times + 1, 0);
  useLayoutEffect(() => {
    store.watchers.add(redraw);
    return () => store.watchers.delete(redraw);
  }, [store]);
  return store.value;
}

function parseAddress() {
  const { mine, ...names } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return mine ? { person: "me", ...names } : names; // older bookmarks contain `mine`
}

const format = (names) =>
  `#${new URLSearchParams(Object.entries(names).filter(([, value]) => value))}`;

/** The part of the address after the #, which browsers do not send. */
export const address = new Store(parseAddress());
addEventListener("hashchange", () => address.replace(parseAddress()));

/** The address with these changes; an empty value removes a name. */
export const link = (changes) => format({ ...address.value, ...changes });

/** The project and the filters in the address, as one text. */
export const placeOf = ({ task, view, by, day, ...chosen }) => JSON.stringify(chosen);

/** The address of another view with the same project and filters, except for `more`. */
export const viewLink = (view, more = {}) => link({ view, task: "", ...more });

/** Change the address. `replace` adds no step for the back button, as while you type a search. */
export function go(changes, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", link(changes));
  address.replace(parseAddress());
}

/** Close the opened task: go back if the step before shows the same without it, so that no step is added. */
export function closeTask() {
  const { navigation } = globalThis; // Firefox has it since 147, Safari since 26.2
  const before = navigation?.entries()[navigation.currentEntry.index - 1]?.url;
  if (before !== new URL(link({ task: "" }), location).href) return go({ task: "" });
  const { task, ...others } = address.value;
  address.replace(others); // at once; the browser goes back a moment later
  history.back();
}

/** Return a function that loads and passes the answer to `take`, or waits for a later load that has begun. */
export function latestOf(load, take) {
  let latest = null;
  return () => {
    const mine = load().then((answer) => (mine === latest ? take(answer) : latest));
    latest = mine;
    return mine;
  };
}
