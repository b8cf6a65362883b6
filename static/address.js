// What is shown stands in the address, after its #, which browsers send to no server.

export const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** The address with these changes; an empty value leaves a name out. */
export function link(changes, fields = address()) {
  const kept = Object.entries({ ...fields, ...changes }).filter(([, value]) => value);
  return `#${new URLSearchParams(kept)}`;
}

/** Go there; `replace` leaves no step for the back button, as for each letter of a search. */
export function go(changes, replace = false) {
  if (link(changes) === link({})) return;
  history[replace ? "replaceState" : "pushState"](null, "", link(changes));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
