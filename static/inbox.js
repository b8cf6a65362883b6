// The inbox: notifications of assignments, mentions, questions, answers, reviews and due dates.
import { get, post, serverTime } from "./api.js";
import { pressKey } from "./changes.js";
import { notifyFault } from "./notices.js";
import { Avatar, button, Empty, Icon, Moment, TaskLink } from "./parts.js";
import { showTab, stepAmong } from "./place.js";
import { html, useState } from "./preact.js";
import { onRefresh } from "./refresh.js";
import { go, latestOf, link, Store, useStore } from "./store.js";
import { rights } from "./workspace.js";

const REASONS = {
  assigned: "assigned you",
  mentioned: "mentioned you in",
  commented: "commented on",
  question: "asked you about",
  answered: "answered your question on",
  review: "asks you to review",
  unblocked: "unblocked",
  claim_ended: "did not finish in time:",
  due: "Due soon:", // without an actor
  sent_back: "sent back",
  stuck: "got no further with",
};
const isUnread = ({ read_at, snoozed_until }) => !read_at && !(snoozed_until > serverTime());
const UNTOLD = { notices: [], unread: 0, hasMore: false };

export const inbox = new Store(UNTOLD);
export const forgetInbox = () => inbox.replace(UNTOLD);

const enumeration = new Intl.ListFormat("en-GB");

/** The words for what somebody has done, from the reasons of one or more notifications of a task. */
const deedOf = (reasons) => enumeration.format(reasons.map((reason) => REASONS[reason]));

const textOf = ({ actor, reason, task }) =>
  `${actor?.full_name ?? ""} ${REASONS[reason]} #${task.number} ${task.title}`.trim();

/** Notifications. Consecutive ones of the same person and task are one, with their `reasons`. */
function grouped(notices) {
  const groups = [];
  const keyOf = ({ id, task, actor, ...notice }) =>
    `${task.id} ${actor?.id ?? id} ${isUnread(notice)}`;
  for (const notice of notices) {
    const last = groups.at(-1);
    const isSame = last && keyOf(last) === keyOf(notice) && !last.reasons.includes(notice.reason);
    if (!isSame) groups.push({ ...notice, reasons: [notice.reason] });
    else last.reasons.unshift(notice.reason);
    groups.at(-1).excerpt ||= notice.excerpt;
  }
  return groups;
}

export const loadInbox = latestOf(
  () => get("/inbox"),
  ({ notices, unread, pagination }) => {
    inbox.replace({ notices, unread, hasMore: pagination.has_more });
    showTab({ unread });
  },
);

/** Whether the beginning of the inbox differs from the shown one. */
export const isNews = ({ notices, unread }) =>
  notices[0]?.id !== inbox.value.notices[0]?.id || unread !== inbox.value.unread;

/** Load the inbox again if it has changed, and notify you of what is new if the tab is hidden. */
onRefresh(async ({ inbox: start }) => {
  const before = inbox.value;
  if (!isNews(start)) return;
  await loadInbox();
  const isNew = ({ id, read_at }) => !read_at && id > (before.notices[0]?.id ?? "");
  if (document.hasFocus() || globalThis.Notification?.permission !== "granted") return;
  for (const notice of inbox.value.notices.filter(isNew).slice(0, 3)) announce(notice);
});

function announce(notice) {
  let shown;
  try {
    shown = new Notification(textOf(notice), { body: notice.excerpt, tag: notice.id });
  } catch {
    return; // Chrome for Android has the constructor, but refuses it
  }
  shown.onclick = () => {
    focus();
    location.hash = link({ task: notice.task.number });
  };
}

/** The ids of tasks with unread notifications, as one text. */
export const unreadTasks = () =>
  inbox.value.notices.flatMap((one) => (isUnread(one) ? one.task.id : [])).join(" ");

/** Mark the notifications of an opened task as read. */
export async function readOf(task_id) {
  if (!rights().isWriter || !unreadTasks().includes(task_id)) return;
  await post("/inbox/read", { task_id }).then(loadInbox, () => null); // it stays unread
}

function Told({ notice }) {
  const { actor, reasons, task, excerpt, created_at } = notice;
  const isNew = isUnread(notice);
  const open = { e: () => go({ task: task.number }) };
  return html`<li class="own entry line ${isNew ? "unread" : ""}" data-task=${task.id}
    onKeyDown=${(event) => stepAmong(event) || pressKey(event, [task], null, open)}>
    ${actor ? html`<${Avatar} person=${actor} />` : html`<span class="mark"><${Icon} of="clock" /></span>`}
    <div class="grow">
      ${isNew && html`<span class="skip">New: </span>`}
      ${actor && html`<b>${actor.full_name}</b>`} ${deedOf(reasons)}${" "}
      <${TaskLink} class="title" ...${{ task }} />
      ${excerpt && html`<p class="dim">${excerpt.trim().split("\n")[0]}</p>`}
    </div>
    <span class="dim"><${Moment} at=${created_at} /></span>
  </li>`;
}

/** A button that asks whether this browser may show notifications, unless you have answered. */
function Permission() {
  const [state, setState] = useState(globalThis.Notification?.permission);
  const ask = () => Notification.requestPermission().then(setState);
  return state === "default" && button("Notify me in this browser", ask, "");
}

export function Inbox() {
  const { notices, unread, hasMore } = useStore(inbox);
  const read = () => post("/inbox/read", { until: notices[0].id }).then(loadInbox);
  const readAll = () => read().catch((error) => notifyFault(error, readAll));
  const showMore = async () => {
    const page = await get("/inbox", { before: notices.at(-1).id });
    inbox.set({ notices: [...notices, ...page.notices], hasMore: page.pagination.has_more });
  };
  const more = () => showMore().catch((error) => notifyFault(error, more));
  const nothing =
    "You are notified here when somebody assigns you a task, mentions you, asks you or answers you.";
  return html`<div class="page stack">
    <div class="line">${unread > 0 && button("Mark all as read", readAll, "")}<${Permission} /></div>
    ${!notices.length && html`<${Empty} text="Nothing yet." hint=${nothing} />`}
    <ol class="stack" aria-label="Inbox">
      ${grouped(notices).map((one) => html`<${Told} key=${one.id} notice=${one} />`)}
    </ol>
    ${hasMore && html`<div>${button("Show earlier", more, "quiet more")}</div>`}
  </div>`;
}
