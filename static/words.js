// The page's words: labels of fields and choices, what the API refuses, dates, numbers.
const { timezone } = document.documentElement.dataset;

export const STATUSES = {
  todo: "To do",
  in_progress: "In progress",
  review: "Review",
  done: "Done",
};
export const PRIORITIES = { low: "Low", medium: "Medium", high: "High", urgent: "Urgent" };
const REPEAT_FROM = { due_date: "The due date", completed_at: "The day when it is done" };
const MAIL = { at_once: "At once", daily: "Once a day" };
const ROLES = { owner: "Owner", admin: "Admin", member: "Member", client: "Client" };
const SCOPES = {
  write: "read and write",
  agent: "agent: works on tasks, people complete them",
  read: "read-only",
};

/** The words for values; other values are words themselves. */
const VALUES = { ...STATUSES, ...PRIORITIES, ...ROLES, ...SCOPES, ...MAIL, ...REPEAT_FROM };
const LABELS = {
  after: "The task above",
  before: "The task below",
  email: "E-mail",
  full_name: "Name",
  phone_number: "Phone",
  scope: "Access",
  mail: "E-mail digest",
  repeat: "Repeats",
  repeat_from: "Counts from",
  project_ids: "Sees",
  q: "Search",
};

/** Whether agents have tried a task so often that a person has to help. */
export const isStuck = ({ status, tries }) => status === "todo" && tries >= 3;

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const inWords = (value) => VALUES[value] ?? capital(value);

/** A field's label: due_date is Due date, assignee_id is Assignee. */
export const labelOf = (field) =>
  LABELS[field] ?? capital(field.replace(/_at$|_id(?=s?$)/, "").replaceAll("_", " "));

// Messages of the API that do not read well after a label, and better ones.
const SAYINGS = [
  [/^must not be null$/, "is required"],
  [/^(must not be \w+) (start|due)_date.*/, "$1 the $2 date"],
  [/^(must not be \w+) (starts|ends)_at.*/, "$1 it $2"],
  [/^the project is archived/, "is archived"],
  [/^no such .*/, "does not exist any longer"],
  [/^needs a due_date$/, "needs a due date: set one, or choose “Never”"],
];

/** The messages of the API about the fields of a body. */
export function refusalsOf(details, body) {
  const refusalOf = ({ field, message }) => {
    const [, at, ofTask] = /^tasks\[(\d+)\]\.(.+)/.exec(field) ?? [];
    if (at) return `#${body.tasks[at]}: ${refusalOf({ field: ofTask, message })}`;
    const [name, place] = field.replace(/^changes\./, "").split(".");
    const isUnknown = ["blocked_by", "tasks"].includes(name) && message.startsWith("no such");
    if (isUnknown) return `There is ${message.replace("such ", "")} #${body[name][place]}`;
    return `${labelOf(name)} ${SAYINGS.reduce((said, pair) => said.replace(...pair), message)}`;
  };
  return details.map(refusalOf).join(". ");
}

/** A number with spaces between thousands, as 4 066. */
export const number = (value) => new Intl.NumberFormat("fr").format(value);
export const count = (value, noun) => `${number(value)} ${value === 1 ? noun : `${noun}s`}`;

export const size = (bytes) =>
  bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/** A text without accents and capitals. */
const PLAIN = new Map("łl øo đd ħh ŧt ‘' ’' ‐- ‑- –-".split(" ").map((pair) => [...pair]));
export const foldedText = (text) =>
  text
    .normalize("NFD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[łøđħŧ‘’‐‑–]/g, (sign) => PLAIN.get(sign));

/** Whether a text, or a word of it, begins with these letters. */
export const hasWordWith = (text, typed) =>
  [text, ...text.split(" ")].some((part) => foldedText(part).startsWith(foldedText(typed)));

/** The first letters of a person's first and last name. */
export const initials = (name) => {
  const letters = Array.from(name.matchAll(/(?<!\S)\S/gu), ([letter]) => letter.toUpperCase());
  return letters[0] + (letters.length > 1 ? letters.at(-1) : "");
};

const DAY = { day: "numeric", month: "short", timeZone: "UTC" };
const dayIn = (timeZone) => new Intl.DateTimeFormat("sv", { timeZone }); // in the order of ISO 8601
const [workspaceDay, localDay] = [dayIn(timezone), dayIn(undefined)];
const relativeDay = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const clockIn = (locale) => new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
const [clock, isoClock] = [clockIn(undefined), clockIn("sv")];
const dayFormat = (options) => new Intl.DateTimeFormat(undefined, { ...DAY, ...options });
const [short, full] = [dayFormat({}), dayFormat({ year: "numeric" })];
const long = dayFormat({ month: "long", weekday: "long" });
const ofMonth = dayFormat({ day: undefined, month: "long", year: "numeric" });
export const monthInWords = (day) => ofMonth.format(new Date(day));
const withWeekday = dayFormat({ weekday: "short" });

export const now = () => new Date().toISOString();
export const later = (instant, seconds) =>
  new Date(Date.parse(instant) + seconds * 1000).toISOString();
export const dayAfter = (day, days) => later(day, days * 86_400).slice(0, 10);
export const timeOf = (instant) => clock.format(new Date(instant));

/** The hours of a meeting, or its beginning if it has no end. */
export const hoursOf = ({ starts_at, ends_at }) =>
  [starts_at, ends_at].filter(Boolean).map(timeOf).join("–");

/** The workspace's day of a due date or start date, as 2026-12-01; empty without one. */
export const dayOf = (instant) => (instant ? workspaceDay.format(new Date(instant)) : "");

/** The Monday of the week of a day, or of the week that is some `weeks` later. */
export function mondayOf(day, weeks = 0) {
  const at = new Date(day);
  at.setUTCDate(at.getUTCDate() - ((at.getUTCDay() + 6) % 7) + 7 * weeks);
  return at.toISOString().slice(0, 10);
}

/** The first day of the month of a day, or of the month that is some `months` later. */
export const monthAfter = (day, months = 0) =>
  new Date(Date.UTC(day.slice(0, 4), day.slice(5, 7) - 1 + months)).toISOString().slice(0, 10);

/** An instant as the value of an input of type datetime-local. */
export const localTimeOf = (instant) =>
  instant ? `${localDay.format(new Date(instant))}T${isoClock.format(new Date(instant))}` : "";

function dayInWords(day, today, sameYear = short) {
  const days = Math.round((Date.parse(day) - Date.parse(today)) / 86_400_000);
  if (Math.abs(days) <= 1) return relativeDay.format(days, "day");
  return (day.slice(0, 4) === today.slice(0, 4) ? sameYear : full).format(new Date(day));
}

/** A due date or start date in words: today, tomorrow, 3 Dec. */
export const dateInWords = (instant, at) => dayInWords(dayOf(instant), dayOf(at));

/** A day of the workspace in words, with its weekday: Tomorrow, Fri 4 Dec. */
export const dayInWeek = (day, at) => capital(dayInWords(day, dayOf(at), withWeekday));

const monthNames = Array.from({ length: 12 }, (_, at) => {
  const parts = dayFormat({ month: "long" }).formatToParts(Date.UTC(2026, at, 1));
  return foldedText(parts.find(({ type }) => type === "month").value);
});
const UNITS = { d: 1, w: 7 };

/** The day that `12`, `12 dec`, `12.12.`, `2026-12-12`, `5 days` or `3 weeks` means, in the future; else "". */
export function dayMeant(typed, today) {
  const text = foldedText(typed).trim();
  const [, number, unit] = /^\+?(\d{1,3}) ?([dw])(?:ays?|eeks?)?$/.exec(text) ?? [];
  if (number) return dayAfter(today, number * UNITS[unit]);
  const isDate = /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text));
  if (isDate) return dayAfter(text, 0) === text ? text : ""; // browsers read 30 February as 2 March
  const [, before, month] =
    /^(\d{1,2})(?:\. ?| ?(?=\p{L})|$)(\p{L}{2,}|\d{1,2})?\.?$/u.exec(text) ?? [];
  const [, word, after] = /^(\p{L}{2,}) (\d{1,2})$/u.exec(text) ?? [];
  const [day, name] = [before ?? after, month ?? word];
  const at = /^\d/.test(name) ? name - 1 : monthNames.findIndex((one) => one.startsWith(name));
  if (!day || (name && !monthNames[at])) return "";
  const [year, now] = today.split("-").map(Number);
  const months = name ? [at, at + 12] : [now - 1, now];
  const days = months.map((one) => [one % 12, new Date(Date.UTC(year, one, day))]);
  const isMeant = ([one, instant]) =>
    instant.getUTCMonth() === one && instant.toISOString() >= today;
  return days.find(isMeant)?.[1].toISOString().slice(0, 10) ?? "";
}

/** The day of an instant where the reader is: today, or with `long` Monday 7 December. */
const localDayInWords = (instant, format) =>
  dayInWords(localDay.format(new Date(instant)), localDay.format(new Date()), format);
export const dayHeading = (instant) => capital(localDayInWords(instant, long));
export const momentInWords = (instant) => `${localDayInWords(instant)} ${timeOf(instant)}`;
