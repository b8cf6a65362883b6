// State outside of components; those that show it are drawn again when it changes.
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

  /** Change some members of the value. */
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
