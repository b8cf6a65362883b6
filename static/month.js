// The calendar: tasks by due date, and meetings, of a month or week, yours or a project’s.
import { get, serverTime } from "./api.js";
import { Filter } from "./board.js";
import { changeTasks, deleted, isKept, pressKey, useMenu } from "./changes.js";
import { getTasks, isDone, isLate } from "./columns.js";
import { notifyFault, useCurrent, useLoad } from "./notices.js";
import { button, Icon, ProjectDot } from "./parts.js";
import { focusCard, letterOf } from "./place.js";
import { html, useEffect, useState } from "./preact.js";
import { pauseRefresh, useRefresh } from "./refresh.js";
import { address, go, link, useStore, viewLink } from "./store.js";
import { dayAfter, dayInWeek, dayMeant, dayOf, localTimeOf, mondayOf } from "./words.js";
import { monthAfter, monthInWords, timeOf } from "./words.js";
import { isClient, isMe, isTeam, projectOf, projectPairs, workspace } from "./workspace.js";

const SPANS = Object.entries({ "": "Month", week: "Week" });
const SHIFTS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 }; // days
const TURNS = { PageUp: -1, PageDown: 1, Home: 0 }; // months or weeks; 0 leads to today

/** The days of the week of a day, or of all weeks of its month. */
function daysOf(day, isWeek) {
  const from = mondayOf(isWeek ? day : monthAfter(day));
  const until = mondayOf(isWeek ? day : dayAfter(monthAfter(day, 1), -1), 1);
  const length = (Date.parse(until) - Date.parse(from)) / 86_400_000;
  return Array.from({ length }, (_, days) => dayAfter(from, days));
}

const placesIn = (day) => [...document.querySelectorAll(`[data-day="${day}"] :is(.quiet, a)`)];

export function Month({ onNewTask }) {
  const { project = "", by = "", day: chosen = "" } = useStore(address);
  const today = dayOf(serverTime());
  const day = dayMeant(chosen, today) || today;
  const days = daysOf(day, by);
  const place = `${days} ${project}`;
  const isCurrent = useCurrent(place);
  const [{ listed = [], meetings = [], ...shown }, setShown] = useState({}); // with the `place` that they belong to
  const [moved, setMoved] = useState({}); // tasks by id, each on its new day until the list knows of that
  const tasks = listed.map((task) => moved[task.id] ?? task);
  const [dragged, setDragged] = useState({}); // a `task`, and the day that it is `over`
  const find = (id) => tasks.find((task) => task.id === id);
  const [open, menu] = useMenu({ find });
  useStore(workspace);
  useStore(deleted);
  const load = async (ofTasks = true, ofMeetings = true) => {
    const mine = { archived: "false", assignee_id: isClient() ? undefined : "me" };
    const span = { due_since: days[0], due_before: dayAfter(days.at(-1), 1), sort: "due_date" };
    const query = { ...span, ...(project ? { project_id: project } : mine) };
    const [due, met] = await Promise.all([
      ofTasks ? getTasks(query) : listed,
      ofMeetings ? get("/meetings") : { meetings },
    ]);
    if (isCurrent()) setShown({ place, listed: due, ...met });
  };
  useLoad(() => load(), [place]);
  const mayCome = ({ project_id, assignee_id }) =>
    project ? project_id === project : isClient() || isMe({ id: assignee_id });
  useRefresh(({ has, concerns, tasks: changed }) => {
    const isShown = tasks.some(({ id }) => concerns(id));
    const ofTasks = isShown || has("project") || changed.some(mayCome);
    return (ofTasks || has("meeting")) && load(ofTasks, has("meeting"));
  });
  const isBusy = shown.place !== place;
  useEffect(() => {
    if (!isBusy && document.activeElement.matches("body, #title")) placesIn(day)[0]?.focus();
  }, [isBusy, day]);
  const inOrder = tasks.filter(isKept).toSorted((one, other) => isDone(one) - isDone(other));
  const tasksOn = Map.groupBy(inOrder, ({ due_date }) => dayOf(due_date));
  const met = meetings.filter(({ project_id }) => !project || project_id === project);
  const meetingsOn = Map.groupBy(met, ({ starts_at }) => localTimeOf(starts_at).slice(0, 10));
  const show = (date) => go({ day: date }, { replace: true });
  const turn = (steps) => show(steps && (by ? dayAfter(day, 7 * steps) : monthAfter(day, steps)));
  /** Move a task to another day, which is shown at once. */
  const put = async (task, to) => {
    if (!task || dayOf(task.due_date) === to) return;
    // With the version that the change makes: the next move may begin before the list is loaded again.
    const there = { ...task, due_date: `${to}T12:00:00.000Z`, version: task.version + 1 };
    setMoved((all) => ({ ...all, [task.id]: there }));
    setTimeout(focusCard, 0, task.id); // after it is drawn
    await changeTasks([[task, { due_date: to }]]);
    await load().catch(notifyFault);
    setMoved((all) => (all[task.id] === there ? { ...all, [task.id]: null } : all));
  };
  const press = (event) => {
    const { key, target, shiftKey, ctrlKey, metaKey, altKey } = event;
    const { day: on } = target.closest("[data-day]").dataset;
    const task = find(target.closest("[data-task]")?.dataset.task);
    if (task) pressKey(event, [task], open, { e: () => go({ task: task.number }) });
    const [shift, turns] = [SHIFTS[key], TURNS[key]];
    const isAdd = letterOf(event) === "n" && isTeam();
    if (ctrlKey || metaKey || altKey || !(shift || key in TURNS || isAdd)) return;
    event.preventDefault();
    event.stopPropagation(); // elsewhere n begins a task without a date
    if (isAdd) return onNewTask({ due_date: on });
    const to = shift ? dayAfter(on, shift) : turns === 0 && today;
    if (shift && shiftKey && task) return isTeam() && put(task, to);
    const step = { ArrowUp: -1, ArrowDown: 1 }[key]; // within a day, then to another
    const next = placesIn(on)[placesIn(on).indexOf(target) + step];
    const there = next ?? (to && placesIn(to).at(step < 0 ? -1 : 0));
    if (there) return there.focus();
    target.blur(); // the day that gets the focus is not shown yet
    shift ? show(to) : turn(turns);
  };
  const drag = (task) => [setDragged({ task }), pauseRefresh(Boolean(task))];
  const taskOf = (task) => html`<li key=${task.id} data-task=${task.id} draggable=${isTeam()}
    class=${isLate(task) ? "late" : isDone(task) ? "done" : ""} onDragStart=${() => drag(task)} onDragEnd=${() => drag()}>
    ${isLate(task) && html`<${Icon} of="clock" /><span class="skip">Overdue: </span>`}
    ${isDone(task) && html`<span class="skip">Done: </span>`}
    <a class="title" href=${link({ task: task.number })} title=${task.title} draggable=${false}>
      ${!project && projectOf(task.project_id) && html`<${ProjectDot} of=${projectOf(task.project_id)} />`}${task.title}</a></li>`;
  const meetingOf = ({ id, title, starts_at }) => html`<li key=${id}>
    <a class="title" href=${viewLink("meetings")} title=${title}><b>${timeOf(starts_at)}</b> ${title}</a></li>`;
  const dayView = (date) => {
    const entries = [
      ...(meetingsOn.get(date) ?? []).map(meetingOf),
      ...(tasksOn.get(date) ?? []).map(taskOf),
    ];
    const words = dayInWeek(date, serverTime());
    const kind = `${date.startsWith(day.slice(0, 7)) ? "" : "other"} ${dragged.over === date ? "over" : ""}`;
    return html`<li key=${date} data-day=${date} class="day ${kind}"
      onDragEnter=${() => dragged.task && setDragged({ ...dragged, over: date })}
      onDragOver=${(event) => dragged.task && event.preventDefault()} onDrop=${() => [drag(), put(find(dragged.task?.id), date)]}>
      <div class="line"><button type="button" class="quiet dim" aria-current=${date === today ? "date" : null}
        onClick=${() => go({ by: "week", day: date })}>${words}</button>
        ${isTeam() && button("+", () => onNewTask({ due_date: date }), "icon end", { "aria-label": `New task: ${words}` })}</div>
      ${entries.length > 0 && html`<ul>${entries}</ul>`}
    </li>`;
  };
  const projects = [["", isClient() ? "All projects" : "Mine"], ...projectPairs("active")];
  const turner = (sign, words, steps) =>
    button(sign, () => turn(steps), "icon", { "aria-label": words, title: words });
  return html`<div class="page stack" aria-busy=${isBusy}>
    <div class="line"><h2 class="grow" aria-live="polite">${monthInWords(by ? days[3] : day)}</h2>
      <${Filter} name="project" label="Project" pairs=${projects} /> <${Filter} name="by" label="Days" pairs=${SPANS} />
      ${turner("‹", "Earlier", -1)} ${button("Today", () => turn(0), "")} ${turner("›", "Later", 1)}</div>
    <ol class="days ${by}" onKeyDown=${press}>${days.map(dayView)}</ol>
    ${menu}
  </div>`;
}
