// Lists that you can add to and change: meetings, notes, people, keys, milestones, webhooks; the agents.
import { create, get, patch, post, remove, serverTime } from "./api.js";
import { deleted, isKept, removeLater } from "./changes.js";
import { getTasks } from "./columns.js";
import { EVERY_PROJECT, Form } from "./forms.js";
import { deletedActions, loadDeleted, Undo } from "./history.js";
import { notify, notifyFault, useLoad } from "./notices.js";
import { Avatar, button, Copyable, DateOf, Dialog, Empty, Moment } from "./parts.js";
import { ProjectName, Progress } from "./parts.js";
import { Choice } from "./picker.js";
import { html, useState } from "./preact.js";
import { refresh, useRefresh } from "./refresh.js";
import { link, useStore, viewLink } from "./store.js";
import { Text } from "./texts.js";
import { capital, count, dayHeading, hoursOf, inWords } from "./words.js";
import { draftOf, isMe, isTeam, isUsable, loadStop, mayManage, memberName } from "./workspace.js";
import { projectOf, rights, session, stopState, useMilestones, workspace } from "./workspace.js";

const OfProject = ({ id }) => projectOf(id) && html`<${ProjectName} project=${projectOf(id)} />`;
const pill = (text, kind = "") => html`<span class="pill ${kind}">${text}</span>`;

function Place({ location }) {
  if (!/^https?:/i.test(location) || !URL.canParse(location)) return html`<span>${location}</span>`;
  const words = `Join at ${new URL(location).host}`;
  return html`<a href=${location} rel="noopener noreferrer" target="_blank">${words}</a>`;
}

const CLIENT = "A client of all projects reads everything: all comments, files and addresses.";
const CLIENT_OF_SOME =
  "This client sees the chosen projects with all comments and files, and the team's addresses.";

/** Say what another invitation of the same address replaces. */
function replaced(value) {
  const isSame = ({ email }) => email.toLowerCase() === value("email").trim().toLowerCase();
  const known = workspace.value.members.find((one) => one.status === "invited" && isSame(one));
  return html`<p role="status" class=${known && "band"}>${known && `Already invited as ${known.full_name}, ${inWords(known.role)}. This replaces the name, the role and the link.`}</p>`;
}

function nextHour() {
  const at = new Date(Date.now() + 3_600_000);
  at.setMinutes(0, 0, 0);
  return at.toISOString();
}

/** The title, the secret, and a hint for an answer with a link or key, which is shown once. */
function secretOf({ enrollment_link, expires_at, key, api_key, ...answer }) {
  if (api_key) {
    const text =
      "Copy it now: it is not shown again. A program sends it as Authorization: Bearer KEY.";
    return { title: `The API key “${key.name}”`, secret: api_key, text };
  }
  const { member = answer } = answer; // for a changed address the answer is the member
  const what = member.status === "invited" ? "Invitation" : "Sign-in link";
  const isMailed = document.documentElement.dataset.mail !== undefined;
  const pass = isMailed
    ? `It is mailed to ${member.email}. You can also send this link yourself.`
    : "Send it to them.";
  const text = html`${pass} It works once, until <${Moment} at=${expires_at} />.`;
  return { title: `${what} for ${member.full_name}`, secret: enrollment_link, text };
}

/** Choose another milestone for the open tasks of a closed one. */
function MoveOpen({ milestone, project }) {
  const open = useMilestones(project);
  const move = async (milestone_id) => {
    const tasks = (await getTasks({ milestone_id: milestone, status: "open" })).map(({ id }) => id);
    const changes = { milestone_id: milestone_id === "none" ? null : milestone_id };
    while (tasks.length) await patch("/tasks/batch", { tasks: tasks.splice(0, 100), changes });
    await refresh();
  };
  const run = (chosen) => chosen && move(chosen).catch((error) => notifyFault(error));
  return html`<${Choice} label="Move what is open" look="chip" value="" onChoose=${run}
    options=${[["", "Move what is open to…"], ...open, ["none", "No milestone"]]} />`;
}

const undoOf = ({ id, name }, show) => {
  const dialog = html`<${Undo} of=${{ key: id }} name=${name} onClose=${() => show(null)} />`;
  return isTeam() && ["Undo what it did…", async () => show(dialog)];
};

const KEY_SCOPES = { read: "read-only", agent: "works on tasks", calendar: "shows a calendar" };

/** The valid keys and sessions, with the number of others that were `made` with each. */
async function loadKeys() {
  const keys = (await get("/keys")).keys.filter(isUsable);
  const madeWith = ({ id }) => keys.filter(({ made_with }) => made_with === id).length;
  return keys.map((one) => ({ ...one, made: madeWith(one) }));
}

async function loadFailedDeliveries() {
  const load = (status) => get("/deliveries", { status, limit: 50 });
  const lists = await Promise.all(["refused", "pending"].map(load));
  return lists.flatMap(({ deliveries }) => deliveries).filter(({ attempts }) => attempts > 0);
}

const say = async (what, call) => notify(`${what}: ${(await call).status}.`);
const redeliver = (id) => say("Sent again", post(`/deliveries/${id}/redeliver`));

/** The keys of agents that the reader may see, each with the tasks that it works on and its last act. */
async function loadAgents() {
  const [keys, { working }] = await Promise.all([loadKeys(), get("/today")]);
  const agents = keys.filter(({ scope, is_session }) => scope === "agent" && !is_session);
  for (const agent of agents) {
    [agent.act] = (await get("/activity", { key: agent.id, limit: 1 })).activity; // a few at once are refused
    agent.holds = working
      .map(({ task }) => task)
      .filter((one) => one.assignee_id === agent.member.id);
  }
  return agents;
}

/** A whiteboard as a note: its text and the `others` that a program keeps in it, or the `whole` if it has no text. */
function noteOf({ content, ...row }) {
  const { text = "", ...others } = content;
  return typeof text === "string" && (text || !Object.keys(others).length)
    ? { ...row, content: text, others }
    : { ...row, content: "", whole: content };
}

const foreignOf = (content) => html`<p class="dim">A program stores this here; it is not a text.</p>
  <pre tabindex="0">${JSON.stringify(content, null, 2)}</pre>`;

/**
 * The lists: where each is loaded (`load`) and changed (`path`), the operation whose form adds a row (`add`), the
 * `facts` of a row, and further `actions`. With `opens`, you can press a row's name.
 */
const KINDS = {
  meetings: {
    noun: "meeting",
    opens: true,
    names: "title starts_at ends_at location participant_ids project_id description".split(" "),
    settings: { location: { label: "Place or link" } },
    initial: () => ({ starts_at: nextHour() }),
    edited: (row) => ({ ...row, participant_ids: row.participants.map(({ id }) => id) }),
    mayAdd: isTeam,
    mayChange: ({ organizer }) => isTeam() && (rights().isAdmin || isMe(organizer)),
    group: ({ starts_at, when }) => (when === "past" ? "Past" : dayHeading(starts_at)),
    read: (row) => html`
      <p class="facts line">${dayHeading(row.starts_at)} ${KINDS.meetings.facts(row)}</p>
      <${Text} text=${row.description || "No description yet."} />`,
    mayOpen: () => true,
    facts: ({ when, location, project_id, organizer, participants, ...hours }) => html`
      <time dateTime=${hours.starts_at} title=${hours.starts_at}>
        ${when === "past" && `${dayHeading(hours.starts_at)}, `}${hoursOf(hours)}</time>
      ${location && html`<${Place} location=${location} />`} <${OfProject} id=${project_id} />
      <${Avatar} person=${organizer} />
      ${participants.map((one) => one.id !== organizer.id && html`<${Avatar} person=${one} />`)}`,
    empty: "No meetings yet. You see those that you organize or take part in.",
  },
  whiteboards: {
    noun: "whiteboard",
    shownNoun: "note",
    opens: true,
    names: ["title", "project_id", "content"],
    settings: { content: { kind: "lines", label: "Text" } },
    edited: ({ id }) => get(`/whiteboards/${id}`).then(noteOf),
    sent: ({ content: text, ...fields }, note) =>
      text === undefined ? fields : { ...fields, content: { ...note?.others, text: text ?? "" } },
    drawn: (field, value, { base }) => html`${field("title")} ${field("project_id")}
      ${base?.whole ? foreignOf(base.whole) : field("content")}`,
    read: ({ whole, content, project_id }) => html`<${OfProject} id=${project_id} />
      ${whole ? foreignOf(whole) : html`<${Text} text=${content || "No text yet."} />`}`,
    mayAdd: isTeam,
    mayOpen: () => true,
    mayChange: isTeam,
    facts: ({ project_id, updated_at, updated_by }) => html`<${OfProject} id=${project_id} />
      <span>Changed by ${memberName(updated_by)} <${Moment} at=${updated_at} /></span>`,
    empty: "No notes yet. Notes are texts that people and programs share.",
  },
  members: {
    noun: "member",
    add: "invite_member",
    names: ["full_name", "email", "role", "project_ids", "phone_number"],
    addWords: "Invite",
    addPath: "/members/invite",
    isSecret: true,
    initial: () => ({ role: "member", project_ids: [] }),
    sent: (fields) =>
      (fields.role ?? "client") === "client" ? fields : { ...fields, project_ids: null },
    drawn: (field, value, { names, base }) => {
      const isClient = names.includes("role") && value("role") === "client";
      const shown = names.filter((name) => isClient || name !== "project_ids");
      const about =
        isClient && value("project_ids").includes(EVERY_PROJECT) ? CLIENT : CLIENT_OF_SOME;
      return html`${shown.map((name) => field(name))} ${isClient && html`<p class="band">${about}</p>`}
        ${!base && replaced(value)}`;
    },
    namesToChange: () => (rights().isAdmin ? null : ["full_name", "phone_number"]),
    mayAdd: () => rights().isAdmin,
    mayChange: mayManage,
    mayRemove: (row) => rights().isAdmin && mayManage(row) && !isMe(row),
    removeWords: "Remove",
    removal: ({ full_name }) => [
      "Removed",
      full_name,
      "Their keys and sessions end, and their tasks are unassigned.",
    ],
    group: ({ status, kind }) =>
      status === "invited" ? "Invited" : kind === "team" ? "Team" : "Clients",
    facts: ({ role, email, phone_number, project_ids }) => html`${pill(inWords(role))}
      ${project_ids && html`<span>${project_ids.map((id) => projectOf(id)?.name).join(", ") || "No project"}</span>`}
      <a href="mailto:${email}">${email}</a> <span>${phone_number}</span>`,
    actions: (row) => {
      const make = () => post(`/members/${row.id}/invitation`);
      return mayManage(row) ? [[row.status === "invited" ? "New link" : "Sign-in link", make]] : [];
    },
  },
  keys: {
    noun: "key",
    concerned: ["member", "task"],
    load: async () => (await loadKeys()).filter(({ member }) => isMe(member)),
    addWords: "New key for a program",
    isSecret: true,
    names: ["name", "scope", "expires_at"],
    settings: { scope: { none: false } },
    initial: () => ({ scope: "write" }),
    mayAdd: () => rights().isWriter,
    mayChange: () => false,
    mayRemove: ({ member }) => mayManage(member),
    removeWords: "Revoke",
    removal: ({ name }) => ["Revoked", `“${name}”`, "Programs that use it are signed out."],
    actions: ({ id, name, member, made, is_session }, show) => {
      const isSure = () =>
        confirm(`Revoke “${name}”, and all keys and links that were made with it?`);
      const end = async () => isSure() && remove(`/keys/${id}`, { made: true });
      const mayEnd = made && mayManage(member) && ["Revoke with what it made", end];
      return [mayEnd, !is_session && undoOf({ id, name }, show)].filter(Boolean);
    },
    group: ({ is_session }) => (is_session ? "Your sessions" : "Your keys"),
    facts: ({ id, prefix, scope, created_at, expires_at, last_used_at }) => html`
      ${id === session.value.key.id && pill("This browser")}
      <code>${prefix}…</code>${KEY_SCOPES[scope] && html`<span>${KEY_SCOPES[scope]}</span>`}
      <span>made <${Moment} at=${created_at} /></span>
      ${last_used_at && html`<span>used <${Moment} at=${last_used_at} /></span>`}
      ${expires_at && html`<span>until <${DateOf} at=${expires_at} /></span>`}`,
  },
  milestones: {
    noun: "milestone",
    concerned: ["project", "task"],
    names: ["title", "due_date", "description"],
    group: ({ closed_at }) => closed_at && "Closed",
    mayAdd: isTeam,
    mayChange: isTeam,
    removal: ({ title }) => ["Deleted", `the milestone “${title}”`, "Its tasks stay."],
    actions: ({ id, closed_at }) => {
      const change = () => patch(`/milestones/${id}`, { closed: !closed_at });
      return isTeam() ? [[closed_at ? "Open again" : "Close", change]] : [];
    },
    facts: ({ id, title, project_id, due_date, closed_at, stats }) => html`
      ${due_date && html`<span class=${!closed_at && due_date < serverTime() && "late"}>Due <${DateOf} at=${due_date} /></span>`}
      <${Progress} of=${title} stats=${stats} />
      <a href=${viewLink("", { milestone: id })}>${stats.done} of ${count(stats.total, "task")} done</a>
      ${closed_at && stats.done < stats.total && isTeam() && html`<${MoveOpen} milestone=${id} project=${project_id} />`}`,
    empty: "No milestones yet. A milestone is a date by which some tasks are to be done.",
  },
  webhooks: {
    noun: "webhook",
    facts: ({ state, url, reason, pending, events, last_error, first_failure_at }) => html`
      ${pill(capital(state), state === "active" ? "" : "urgent")}<code>${url}</code>
      <span>${events.join(", ")}</span><span>${pending} waiting</span>
      ${last_error && html`<span>${last_error}; failing since <${Moment} at=${first_failure_at} /></span>`}
      <span>${reason}</span>`,
    actions: ({ id, state }) => [
      ["Send a test", () => say("Test", post(`/webhooks/${id}/test`))],
      ...(state === "disabled" ? [["Enable", () => post(`/webhooks/${id}/enable`)]] : []),
    ],
    empty: "No webhooks. Add them to config.toml on the server.",
  },
  deliveries: {
    noun: "delivery",
    titleOf: ({ event, webhook }) => `${event} to ${webhook}`,
    load: loadFailedDeliveries,
    facts: ({ status, attempts, last_status, last_error, waits_for, created_at }) => html`
      ${pill(capital(status), "urgent")}<span>${count(attempts, "attempt")}</span>
      <span>${waits_for ? "waits for an earlier one" : (last_error ?? `answered ${last_status}`)}</span><${Moment} at=${created_at} />`,
    actions: ({ id }) => [["Send again", () => redeliver(id)]],
    empty: "No failed deliveries.",
  },
  deleted: {
    concerned: "task comment project milestone meeting whiteboard".split(" "),
    load: loadDeleted,
    facts: ({ kind, number, project_id, deleted_by, via, deleted_at }) => html`
      ${pill(kind === "whiteboard" ? "Note" : capital(kind))} ${number && `#${number}`} <${OfProject} id=${project_id} />
      <span>by ${deleted_by.full_name}${via && ` (${via})`} <${Moment} at=${deleted_at} /></span>`,
    actions: deletedActions,
  },
};

KINDS.agents = {
  ...KINDS.keys,
  noun: "agent",
  path: "/keys",
  load: loadAgents,
  titleOf: ({ name, member }) =>
    name === member.full_name ? name : `${name} (${member.full_name})`,
  mayAdd: () => false,
  actions: (row, show) => [undoOf(row, show)].filter(Boolean),
  group: () => "",
  facts: ({ prefix, holds, act }) => html`<code>${prefix}…</code>
    ${holds.map(({ number, title, tries }) => html`<a href=${link({ task: number })}>#${number} ${title}${tries > 0 && `, tried ${count(tries, "time")} before`}</a>`)}
    <span>${act ? html`${act.action} ${act.title} <${Moment} at=${act.created_at} />` : "has done nothing yet"}</span>`,
  empty: "",
};

KINDS.others = {
  ...KINDS.keys,
  path: "/keys",
  load: async () => (await loadKeys()).filter(({ member }) => !isMe(member)),
  mayAdd: () => false,
  group: ({ member }) => member.full_name,
};

const DEFAULTS = {
  titleOf: ({ title, name, full_name }) => title ?? name ?? full_name,
  edited: (row) => row,
  actions: () => [],
  sent: (fields) => fields,
  drawn: (field, value, { names }) => names.map((name) => field(name)),
  mayAdd: () => false,
  mayChange: () => false,
  removeWords: "Delete",
  empty: "Nothing here yet.",
};

const lastClosed = (one, other) => Boolean(one.closed_at) - Boolean(other.closed_at);

/** The entry of a list in `KINDS`, with defaults. */
function kindOf(name, project) {
  const path = `/${name}`;
  const collection = project ? `/projects/${project}${path}` : path;
  const kind = { ...DEFAULTS, ...KINDS[name] };
  return {
    path,
    load: async () => (await get(collection))[name].sort(lastClosed),
    add: `create_${kind.noun}`,
    addPath: collection,
    addWords: `New ${kind.shownNoun ?? kind.noun}`,
    removal: (row) => ["Deleted", `the ${kind.shownNoun ?? kind.noun} “${kind.titleOf(row)}”`],
    mayOpen: kind.mayChange,
    mayRemove: kind.mayChange,
    ...kind,
  };
}

function Row({ kind, row, open, drop, run, show }) {
  const name = kind.titleOf(row);
  const actions = [...kind.actions(row, show)];
  if (kind.mayOpen(row)) actions.push([kind.mayChange(row) ? "Edit" : "Open", () => open(true)]);
  const buttonOf = (words, press) =>
    button(words, press, "quiet", { "aria-label": `${words}: ${name}` });
  const isOpened = kind.opens && kind.mayOpen(row);
  return html`<li class="row line">
    ${row.full_name && html`<${Avatar} person=${row} />`}
    <div class="grow">
      <p><b>${isOpened ? button(name, () => run(open), "name") : name}</b></p>
      <p class="facts line">${kind.facts(row)}</p>
      ${!kind.read && row.description && html`<p class="dim">${row.description}</p>`}
    </div>
    <div>
      ${actions.map(([words, action]) => buttonOf(words, () => run(action)))}
      ${kind.mayRemove(row) && buttonOf(kind.removeWords, drop)}
    </div>
  </li>`;
}

/** The form that adds, changes or only shows a row. A text is shown first, with a button to edit it. */
function Editor({ kind, base, close, done, ...rest }) {
  const isChange = Boolean(base);
  const [isEdited, setEdited] = useState(
    !isChange || !kind.read || (rest.isEdited && kind.mayChange(base)),
  );
  const isFixed = isChange && !kind.mayChange(base);
  const names = (isChange && kind.namesToChange?.()) || kind.names;
  const save = async (fields) => {
    const sent = kind.sent(fields, base);
    if (isChange) return done(await patch(`${kind.path}/${base.id}`, sent));
    const add = kind.isSecret ? post : create; // an answer with a secret cannot be repeated
    return done(await add(kind.addPath, sent));
  };
  const drawn = (field, value) => kind.drawn(field, value, { base, isFixed, names });
  const title = isChange ? kind.titleOf(base) : kind.addWords;
  const edit = () => button("Edit", () => setEdited(true), "");
  if (!isEdited)
    return html`<${Dialog} title=${title} onClose=${close}>
      ${kind.read(base)}<div class="actions line">${!isFixed && edit()}</div>
    <//>`;
  return html`<${Dialog} title=${title} onClose=${close}>
    <${Form} operation=${isChange ? `update_${kind.noun}` : kind.add} names=${names} settings=${kind.settings}
      base=${base ?? kind.initial?.()} label=${isChange ? "Save changes" : "Create"}
      draft=${draftOf(`${kind.noun} ${base?.id ?? "new"}`)} autofocus=${isFixed ? "" : names[0]}
      onSave=${save} onCancel=${close} ...${{ isChange, isFixed }}>${drawn}<//>
  <//>`;
}

/** A list of `KINDS`, of a `project` if that is given. With `onClose`, only the form that adds a row. */
export function Records({ of: name, project, onClose }) {
  const kind = kindOf(name, project);
  const [rows, setRows] = useState(null);
  const [edited, setEdited] = useState(onClose ? {} : null); // `{base}` with the row in the form, if any
  const [secret, setSecret] = useState(null);
  const [dialog, show] = useState(null); // of an action
  useStore(session);
  useStore(workspace);
  const load = async () => setRows(await kind.load());
  const reload = () => load().catch((error) => notifyFault(error, reload));
  useLoad(load, [name, project]);
  const concerned = kind.concerned ?? [kind.noun];
  useRefresh(({ has }) => concerned.some(has) && load());
  /** Show the secret of an answer, and refresh the page. */
  const settle = async (answer) => {
    if (answer?.api_key || answer?.enrollment_link) setSecret(secretOf(answer));
    else onClose?.();
    await reload();
    refresh();
  };
  const done = (answer) => {
    setEdited(null);
    settle(answer);
  };
  const run = (action) => action().then(settle, (error) => notifyFault(error, () => run(action)));
  const rowOf = (row) => {
    const open = async (isEdited) => setEdited({ base: await kind.edited(row), isEdited });
    const drop = () => removeLater(row.id, `${kind.path}/${row.id}`, kind.removal(row), reload);
    return html`<${Row} key=${row.id} ...${{ kind, row, open, drop, run, show }} />`;
  };
  useStore(deleted);
  const kept = (rows ?? []).filter(isKept);
  const groups = Map.groupBy(kept, (row) => kind.group?.(row) ?? "");
  const isPart = name === "keys" || project; // of a view, below a heading
  const listOf = ([heading, some]) => html`<section class="stack" key=${heading}>
    ${heading && html`<${isPart ? "h3" : "h2"}>${heading}<//>`}
    <ul class="rows">${some.map(rowOf)}</ul>
  </section>`;
  const add = kind.mayAdd() && button(kind.addWords, () => setEdited({}), isPart ? "" : "primary");
  const shown =
    () => html`<${Dialog} title=${secret.title} onClose=${onClose ?? (() => setSecret(null))}>
    <${Copyable} label=${secret.title} text=${secret.secret} /><p>${secret.text}</p>
  <//>`;
  const dialogs = html`${edited && html`<${Editor} ...${{ kind, done, ...edited }} close=${onClose ?? (() => setEdited(null))} />`}
    ${secret && shown()}${dialog}`;
  if (onClose) return dialogs;
  return html`<div class="stack" aria-busy=${rows === null}>
    ${kept.length > 0 && html`<div class="create">${add}</div>`}
    ${rows && !kept.length && kind.empty && html`<${Empty} text=${kind.empty}>${add}<//>`}
    ${[...groups].map(listOf)}
    ${dialogs}
  </div>`;
}

const { api, oauth } = document.documentElement.dataset;
// A program that gets its key by OAuth needs the address as the server knows it.
const ADDRESS = oauth ? `${oauth}/mcp` : new URL(api.replace(/api\/v1$/, "mcp"), location).href;
const HEADER = oauth ? "" : ' --header "Authorization: Bearer KEY"';
const server = { url: ADDRESS, ...(!oauth && { headers: { Authorization: "Bearer KEY" } }) };
const CLIENTS = {
  "Claude Code": `claude mcp add --scope user --transport http tasks ${ADDRESS}${HEADER}`,
  "Cursor, in mcp.json": JSON.stringify({ mcpServers: { tasks: server } }),
  "VS Code, in .vscode/mcp.json": JSON.stringify({
    servers: { tasks: { type: "http", ...server } },
  }),
  Codex: `codex mcp add tasks --url ${ADDRESS}${oauth ? "" : " --bearer-token-env-var TASKS_KEY"}`,
  "Gemini CLI": `gemini mcp add --scope user --transport http${HEADER} tasks ${ADDRESS}`,
  ...(oauth && { "claude.ai and ChatGPT, as a connector": ADDRESS }),
};
const OF_KEYS = html`Each agent needs a member and a KEY of its own. Make both on the server: <code>tasks member add "Build agent" --agent</code>`;

export function Agents() {
  const { stop } = useStore(stopState);
  const save = (fields) => post("/agents/stop", fields).then(loadStop);
  const form = () => html`<details><summary>Stop all agents</summary>
    <p class="dim">They can then only read, until an owner or admin lets them go on. They get your reason.</p>
    <${Form} operation="stop_agents" names=${["reason"]} label="Stop all agents"
      draft=${draftOf("a stop")} onSave=${save} /></details>`;
  return html`<section class="stack" id="agents">
    <h2>Agents</h2><${Records} of="agents" />
    ${!stop && rights().isAdmin && form()}
    <details><summary>Connect an agent</summary>
    <p class="dim">${oauth ? "The agent opens this page, which asks you what it may do." : OF_KEYS}</p>
    ${Object.entries(CLIENTS).map(([name, text]) => html`<p>${name}</p><${Copyable} label=${name} text=${text} />`)}
    </details>
  </section>`;
}
