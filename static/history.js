// The history of a task and of the workspace, in sentences; restore deleted objects, and undo what a key or a person did.
import { get, post, remove, serverTime } from "./api.js";
import { showAgain } from "./changes.js";
import { hasField, valueInWords } from "./forms.js";
import { notify, notifyFault, useCurrent, useLoad } from "./notices.js";
import { Avatar, button, Dialog, Empty, Moment } from "./parts.js";
import { Choice } from "./picker.js";
import { html, useEffect, useState } from "./preact.js";
import { useRefresh } from "./refresh.js";
import { link, viewLink } from "./store.js";
import { capital, count, dayHeading, labelOf, later, STATUSES, timeOf } from "./words.js";
import { isMe, isTeam, memberName, rights, teamPairs } from "./workspace.js";

const CUT = 100; // characters of a value
const LATEST = 20; // comments of a task that are looked at
const ACTIONS = {
  "": "Everything",
  created: "Created",
  updated: "Changed",
  moved: "Moved",
  deleted: "Deleted",
  restored: "Restored",
};

function changeInWords(entity, field, [before, after]) {
  const verb = before ? (after ? "changed" : "deleted") : "added";
  if (field === "milestone") return `${verb} a milestone`;
  if (field === "status" && entity === "task") return `moved to ${STATUSES[after]}`;
  if (field === "question_id") return after ? "asked a question" : "the question is answered";
  const operation = entity === "task" ? "update_task_details" : `update_${entity}`;
  if (!hasField(operation, field)) return "";
  const cut = (value) => valueInWords(operation, field, value).slice(0, CUT);
  return `${labelOf(field)}: ${cut(before)} → ${cut(after)}`;
}

/** A sentence about a link, a key, or somebody who joined; undefined for other changes. */
function memberSentence({ action, actor, entity_id, changes }) {
  const isOwn = actor.id === entity_id;
  if (action === "created") return isOwn ? "made this workspace:" : "invited";
  const { invitation, api_key: key, status, stop } = changes ?? {};
  if (stop) return stop[1] ? "stopped all agents" : "ended the stop of all agents";
  if (status) return "joined:";
  if (invitation) return invitation[1] === "revoked" ? "withdrew the link of" : "made a link for";
  return key && (key[1] ? "made a key for" : "ended a key of");
}

function sentence(entry) {
  const { action, entity, changes } = entry;
  const commented = action === "created" ? "commented on" : `${action} a comment on`;
  if (entity === "comment") return [commented, ""];
  const all = Object.entries(changes ?? {}).filter(([, pair]) => Array.isArray(pair));
  const words = all.map(([field, pair]) => changeInWords(entity, field, pair)).filter(Boolean);
  const ofMember = entity === "member" && memberSentence(entry);
  if (ofMember) return [ofMember, changes?.stop?.[1] ?? words.join("; ")];
  if (["created", "restored"].includes(action)) return [action, ""];
  if (action === "deleted") return [entity === "member" ? "removed" : "deleted", ""];
  const [before, after] = changes.attachment ?? [];
  if (before || after) return [after ? `attached ${after} to` : `removed ${before} from`, ""];
  return [changes.undoes ? "undid changes of" : "changed", words.join("; ")];
}

function Entry({ entry, isOfTask, texts }) {
  const { actor, action, entity, title, entity_id, number, created_at } = entry;
  const task = entry.task_id ?? (entity === "task" && entity_id);
  const isGone = action === "deleted" && entity === "task";
  const [verb, changed] = sentence(entry);
  const details = changed || texts?.[entry.id];
  const name = number ? `#${number} ${title}` : title;
  const isSelf = entity === "member" && actor.id === entity_id;
  const bare = verb.replace(/ (on|to|from|for|of)$|:$/, "");
  const about = task && !isGone ? html`<a href=${link({ task })}>${name}</a>` : name;
  const what = isOfTask ? details || bare : isSelf ? bare : html`${verb} ${about}`;
  return html`<li class="entry line">
    <${Avatar} person=${actor} />
    <div class="grow">
      <b>${actor.full_name}</b> ${what}
      ${!isOfTask && details && html`<p class="dim">${details}</p>`}
    </div>
    <span class="dim">${isOfTask ? html`<${Moment} at=${created_at} />` : timeOf(created_at)}</span>
  </li>`;
}

/** Whether the reader sees any of what changed: some clients do not see every task that blocks another. */
const isSeen = ({ changes }) => JSON.stringify(changes) !== '{"blocked_by":[[],[]]}';

const Entries = ({ entries, ...rest }) => html`<ol class="stack" aria-label="History">
  ${entries.filter(isSeen).map((entry) => html`<${Entry} key=${entry.id} entry=${entry} ...${rest} />`)}
</ol>`;

/** The loaded pages of a history, newest first, and a button for the next page. */
function useHistory(path, query, concerns) {
  const [pages, setPages] = useState([]);
  const isCurrent = useCurrent(JSON.stringify([path, query]));
  const load = async (before) => {
    const page = await get(path, { ...query, before });
    if (isCurrent()) setPages((shown) => (before ? [...shown, page] : [page]));
  };
  const show = (before) => load(before).catch((error) => notifyFault(error, () => show(before)));
  useLoad(load, [path, JSON.stringify(query)]);
  useRefresh((changes) => concerns(changes) && load());
  const { has_more, next_before } = pages.at(-1)?.pagination ?? {};
  const earlier = has_more && button("Show earlier", () => show(next_before), "quiet more");
  return [pages.flatMap((page) => page.activity), earlier, pages.length > 0];
}

export function TaskHistory({ id }) {
  const isOfIt = ({ concerns }) => concerns(id);
  const [entries, earlier] = useHistory(`/tasks/${id}/activity`, {}, isOfIt);
  return html`<${Entries} entries=${entries} isOfTask />${earlier}`;
}

/** The texts of recent comments, by the ids of their entries. */
function useComments(entries) {
  const [texts, setTexts] = useState({});
  const isWritten = ({ entity, action }) => entity === "comment" && action !== "deleted";
  const unknown = entries.filter((entry) => isWritten(entry) && !(entry.id in texts));
  useEffect(() => {
    for (const [task, some] of Map.groupBy(unknown, ({ task_id }) => task_id)) {
      const none = { comments: [] }; // the task may be deleted
      const loaded = get(`/tasks/${task}/comments`, { limit: LATEST }).catch(() => none);
      loaded.then(({ comments }) => {
        const contents = Object.fromEntries(comments.map(({ id, content }) => [id, content]));
        const textOf = ({ id, entity_id }) => [id, (contents[entity_id] ?? "").slice(0, 2 * CUT)];
        setTexts((known) => ({ ...known, ...Object.fromEntries(some.map(textOf)) }));
      });
    }
  }, [unknown.map(({ id }) => id).join()]);
  return texts;
}

export function Activity() {
  const [actor_id, setActor] = useState("");
  const [action, setAction] = useState("");
  const [isUndoing, setUndoing] = useState(false);
  const mayUndo = actor_id && isTeam() && (rights().isAdmin || isMe({ id: actor_id }));
  const isAny = () => true;
  const query = { actor_id, action, limit: 50 };
  const [entries, earlier, isLoaded] = useHistory("/activity", query, isAny);
  const texts = useComments(entries);
  const days = Map.groupBy(entries, (entry) => dayHeading(entry.created_at));
  const groupOf = ([day, done]) => html`<section class="stack">
    <h2>${day}</h2><${Entries} entries=${done} texts=${texts} />
  </section>`;
  return html`<div class="page stack">
    <div class="line">
      <${Choice} label="Person" look="chip" value=${actor_id} onChoose=${setActor}
        options=${[["", "Everybody"], ...teamPairs()]} />
      <${Choice} label="Kind" look="chip" value=${action} onChoose=${setAction} options=${Object.entries(ACTIONS)} />
      ${mayUndo && button(`Undo what ${memberName(actor_id)} did…`, () => setUndoing(true), "")}
      ${isTeam() && html`<a class="quiet" href=${viewLink("deleted")}>Recently deleted</a>`}
    </div>
    ${isUndoing && html`<${Undo} of=${{ actor_id }} name=${memberName(actor_id)} onClose=${() => setUndoing(false)} />`}
    ${isLoaded && !entries.length && html`<${Empty} text="Nothing has happened yet." hint="Every change appears here, with who made it." />`}
    ${[...days].map(groupOf)}
    <div>${earlier}</div>
  </div>`;
}

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

/** The effect of an undo in a sentence: "3 tasks go back to what they were. 1 is left: changed since by Ada." */
function summary({ undone, left }) {
  const wordOf = (one) => one.reason ?? nounOf(one);
  const sizeOf = (some) => new Set(some.map(({ entity_id }) => entity_id)).size;
  const say = (some) => SENTENCES[some[0].action](sizeOf(some), wordOf(some[0]));
  const kindOf = (one) => one.action + wordOf(one);
  const partsOf = (rows) => [...Map.groupBy(rows, kindOf).values()].map(say);
  const sentences = [partsOf(undone).join(", "), ...partsOf(left)].filter(Boolean);
  return sentences.map((words) => `${capital(words)}.`).join(" ") || "There is nothing to undo.";
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
