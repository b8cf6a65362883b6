// Restore deleted objects, and undo all that a key or a person did in a period.
import { get, post, remove, serverTime } from "./api.js";
import { showAgain } from "./changes.js";
import { notify, notifyFault } from "./notices.js";
import { button, Dialog } from "./parts.js";
import { Choice } from "./picker.js";
import { html, useEffect, useState } from "./preact.js";
import { capital, count, labelOf, later } from "./words.js";
import { isMe, rights } from "./workspace.js";

const PERIODS = { 1: "In the last hour", 24: "In the last day", 168: "In the last week" };
const SENTENCES = {
  restored: (n, noun) => `${count(n, noun)} ${n === 1 ? "comes" : "come"} back`,
  updated: (n, noun) =>
    `${count(n, noun)} ${n === 1 ? "goes back to what it was" : "go back to what they were"}`,
  deleted: (n, noun) => `${count(n, `new ${noun}`)} ${n === 1 ? "is" : "are"} deleted`,
  left: (n, reason) => `${n} ${n === 1 ? "is" : "are"} left: ${reason}`,
};
const numberedTitle = ({ title, number }) => (number ? `#${number} ${title}` : title);
const nounOf = ({ entity, fields }) =>
  fields.includes("attachments") ? "file" : entity === "whiteboard" ? "note" : entity;

/** The deleted objects that can be restored. Those that were deleted on this page may be shown in its lists again. */
export async function loadDeleted() {
  const { deleted } = await get("/deleted", { limit: 200 });
  showAgain(deleted.map(({ id }) => id));
  return deleted;
}

export function deletedActions(row) {
  const restore = async () => {
    while (!(await post(`/deleted/${row.id}/restore`)).restored) continue; // a large project, in steps
    notify(`Restored ${numberedTitle(row)}.`);
  };
  const end = async () => confirm("Delete this for good?") && remove(`/deleted/${row.id}`);
  const mayEnd = rights().isAdmin || isMe(row.deleted_by);
  return [["Restore", restore], ...(mayEnd ? [["Delete for good", end]] : [])];
}

/** The effect of an undo in a sentence: "3 tasks go back to what they were, 1 is left: changed since by Ada." */
function summary({ undone, left }) {
  const wordOf = (one) => one.reason ?? nounOf(one);
  const groups = Map.groupBy([...undone, ...left], (one) => one.action + wordOf(one));
  const sizeOf = (some) => new Set(some.map(({ entity_id }) => entity_id)).size;
  const say = (some) => SENTENCES[some[0].action](sizeOf(some), wordOf(some[0]));
  const parts = [...groups.values()].map(say);
  return `${capital(parts.join(", ") || "there is nothing to undo")}.`;
}

const itemOf = ({ action, fields, reason, ...row }) => html`<li class=${reason && "dim"}>
  ${capital(action)}: <b>${numberedTitle(row)}</b>${fields.length > 0 && `, ${fields.map(labelOf).join(", ")}`}${reason && `: ${reason}`}
</li>`;

/** Undo all that a key (`key`) or a person (`actor_id`) with this `name` did in a period, after a preview. */
export function Undo({ of, name, onClose }) {
  const [hours, setHours] = useState("1");
  const [found, setFound] = useState(null);
  useEffect(() => {
    const until = serverTime();
    const body = { ...of, since: later(until, -3600 * hours), until };
    setFound(null);
    const show = (result) => setFound({ ...result, body });
    post("/activity/undo", { ...body, dry_run: true }).then(show, notifyFault);
  }, [hours]);
  const run = async () => {
    notify(`Done: ${summary(await post("/activity/undo", found.body))}`);
    onClose();
  };
  const preview = () => html`<p role="status">${summary(found)}</p>
    <details><summary>Show each</summary><ul>${[...found.left, ...found.undone].map(itemOf)}</ul></details>
    <p class="dim">${found.note}</p>`;
  return html`<${Dialog} title="Undo what ${name} did" onClose=${onClose}>
    <${Choice} label="Period" look="chip" value=${hours} onChoose=${setHours} options=${Object.entries(PERIODS)} />
    <div class="stack" aria-busy=${!found}>${found && preview()}</div>
    <div class="actions line">
      ${found?.undone.length > 0 && button("Undo", () => run().catch(notifyFault), "danger")}
      ${button("Cancel", onClose, "")}
    </div>
  <//>`;
}
