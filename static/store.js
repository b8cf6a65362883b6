// State outside of components, which are drawn again when it changes; among it the address of what is shown.
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
  return mine ? { person: "me", ...names } : names; // `mine` stands in older bookmarks
}

const format = (names) =>
  `#${new URLSearchParams(Object.entries(names).filter(([, value]) => value))}`;

/** What stands in the page's address after the #, which browsers send to no server. */
export const address = new Store(parseAddress());
addEventListener("hashchange", () => address.replace(parseAddress()));

/** The address with these changes; an empty value leaves a name out. */
export const link = (changes) => format({ ...address.value, ...changes });

/** What the address names besides the view and the opened task, as one text. */
export const placeOf = ({ task, view, ...chosen }) => JSON.stringify(chosen);

/** The address of another view of what is chosen and filtered, or of what `more` says. */
export const viewLink = (view, more = {}) => link({ view, task: "", ...more });

/** Go there; `replace` leaves no step for the back button, as for each letter of a search. */
export function go(changes, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", link(changes));
  address.replace(parseAddress());
}

/** Return a load of which `take` gets the answer, unless a later load has begun meanwhile. */
export function latestOf(load, take) {
  let begun = 0;
  return async () => {
    const mine = ++begun;
    const answer = await load();
    if (mine === begun) take(answer);
  };
}
