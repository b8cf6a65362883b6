// Rules by which tasks repeat (RRULE of RFC 5545): the usual ones to choose from, and any rule as a sentence.
const DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"];
const WORKDAYS = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR";
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const plural = new Intl.PluralRules("en", { type: "ordinal" });
const listFormat = new Intl.ListFormat("en");

const dateFormat = (options) => new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
const [weekday, dayAndMonth] = [
  dateFormat({ weekday: "long" }),
  dateFormat({ day: "numeric", month: "long" }),
];
const nameOf = (code) => weekday.format(Date.UTC(2024, 0, 1 + DAYS.indexOf(code))); // a Monday
const codeOf = (day) => DAYS[(new Date(day).getUTCDay() + 6) % 7];
const ordinal = (number) => `${number}${ENDINGS[plural.select(number)]}`;

/** A rule as a sentence, such as “Every second Tuesday”; `day` is the due date that it counts from, if it is known. */
export function ruleInWords(rule, day) {
  const parts = Object.fromEntries(rule.split(";").map((part) => part.split("=")));
  const { FREQ, INTERVAL = "1", BYDAY = day && codeOf(day), BYMONTHDAY, UNTIL = "" } = parts;
  const every = (one) =>
    ({ 1: `Every ${one}`, 2: `Every second ${one}` })[INTERVAL] ?? `Every ${INTERVAL} ${one}s`;
  const names = listFormat.format((BYDAY || "").split(",").filter(Boolean).map(nameOf));
  const place = BYMONTHDAY ?? (day && String(Number(day.slice(8))));
  const inMonth = place === "-1" ? "last day" : place && ordinal(Number(place));
  const isPlain = INTERVAL < 3 && !BYDAY?.includes(",");
  const said = {
    DAILY: () => every("day"),
    WEEKLY: () => (isPlain && names ? every(names) : `${every("week")}${names && ` on ${names}`}`),
    MONTHLY: () => `${every("month")}${inMonth ? ` on the ${inMonth}` : ""}`,
    YEARLY: () => `${every("year")}${day ? ` on ${dayAndMonth.format(new Date(day))}` : ""}`,
  };
  const isWorkdays = WORKDAYS.endsWith(`=${BYDAY}`) && INTERVAL === "1";
  const end = UNTIL && ` until ${UNTIL.slice(0, 4)}-${UNTIL.slice(4, 6)}-${UNTIL.slice(6, 8)}`;
  return `${isWorkdays ? "Every weekday" : said[FREQ]()}${end}`;
}

/** The usual rules for a task that is due on this day, and the one that it has, as `[value, words]` pairs. */
export function rulePairs(day, own) {
  if (!day) return own ? [[own, ruleInWords(own)]] : [];
  const next = new Date(Date.parse(day) + 86_400_000);
  const isLast = next.getUTCDate() === 1; // of its month
  const rules = `DAILY WEEKLY WEEKLY;INTERVAL=2 MONTHLY ${isLast ? "MONTHLY;BYMONTHDAY=-1 " : ""}YEARLY`;
  const usual = rules
    .split(" ")
    .map((rule) => `FREQ=${rule}`)
    .toSpliced(1, 0, WORKDAYS);
  const all = own && !usual.includes(own) ? [own, ...usual] : usual;
  return all.map((rule) => [rule, ruleInWords(rule, day)]);
}
