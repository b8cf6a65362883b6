// Deletions: what is deleted is not shown from then on, and sent some seconds later, so that it can be undone.
import { remove } from "./api.js";
import { notify, notifyFault } from "./notices.js";
import { refresh } from "./refresh.js";
import { Store } from "./store.js";

/** The ids of what was deleted here, whether it is sent or not. */
export const deleted = new Store([]);
export const isKept = ({ id }) => !deleted.value.includes(id);

/** Delete what has this id by its path, unless that is undone; when it is, `done` is called. */
export function removeLater(id, path, text, done) {
  const restore = () => deleted.replace(deleted.value.filter((one) => one !== id));
  const send = async () => {
    if (isKept({ id })) return;
    try {
      await remove(path);
      done?.();
    } catch (error) {
      if (error.status === 404) return; // somebody else was faster
      restore();
      notifyFault(error, () => removeLater(id, path, text, done), "It was not deleted. ");
    }
    await refresh();
  };
  deleted.replace([...deleted.value, id]);
  notify(text, { words: "Undo", run: restore }, send);
}
