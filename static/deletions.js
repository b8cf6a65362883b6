// Deletions are shown at once and sent some seconds later, so that you can undo them.
import { remove } from "./api.js";
import { notify, notifyFault } from "./notices.js";
import { refresh } from "./refresh.js";
import { Store } from "./store.js";
import { count } from "./words.js";
import { isTeam } from "./workspace.js";

/** The ids of objects that were deleted here, whether the request was sent or not. */
export const deleted = new Store([]);
export const isKept = ({ id }) => !deleted.value.includes(id);
export const showAgain = (ids) =>
  deleted.replace(deleted.value.filter((one) => !ids.includes(one)));

/**
 * Delete objects, given as `[id, path]` pairs, unless you undo it. Call `done` after each. `words` say it: a verb, such as
 * "Deleted", what, and a further sentence.
 */
export function removeAll(pairs, words, done) {
  const [verb, what, more = ""] = words;
  const ids = pairs.map(([id]) => id);
  const send = async () => {
    const left = pairs.filter(([id]) => !isKept({ id }));
    for (const [at, [, path]] of left.entries()) {
      try {
        await remove(path);
        done?.();
      } catch (error) {
        if (error.status === 404) continue; // somebody else was faster
        const others = left.slice(at);
        showAgain(others.map(([id]) => id));
        const rest = pairs.length > 1 ? count(others.length, "task") : what;
        const again = () => removeAll(others, [verb, rest, more], done);
        notifyFault(error, again, `Not ${verb.toLowerCase()}: ${rest}. `);
        break;
      }
    }
    if (left.length) await refresh();
  };
  deleted.replace([...deleted.value, ...ids]);
  const undo = { words: "Undo", run: () => showAgain(ids), link: verb === "Deleted" && isTeam() };
  notify(`${verb} ${what}. ${more}`.trim(), undo, send);
}

export const removeLater = (id, path, words, done) => removeAll([[id, path]], words, done);
