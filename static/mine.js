// Your open tasks in all projects, grouped by due date and in manual order within each group.
import { pressKey, useMenu } from "./actions.js";
import { patch, serverTime } from "./api.js";
import { Facts } from "./board.js";
import { changeTasks, deleted, isKept } from "./changes.js";
import { ANSWER_MOST, getTasks, isLate, PAGE } from "./columns.js";
import { notify, notifyFault, useLoad } from "./notices.js";
import { button, Empty, ProjectName } from "./parts.js";
import { Choice } from "./picker.js";
import { focusCard, stepAmong } from "./place.js";
import { html, useRef, useState } from "./preact.js";
import { pauseRefresh, useRefresh } from "./refresh.js";
import { go, link, useStore } from "./store.js";
import { dayOf, mondayOf, STATUSES } from "./words.js";
import { isMe, isTeam, projectOf, workspace } from "./workspace.js";

const OWN = { assignee_id: "me", status: "open", archived: "false", sort: "due_date" };
const DUE_GROUPS = ["Overdue", "Today", "This week", "Later", "No date"];

function dueGroupOf(task) {
  const [day, today] = [task.due_date, serverTime()].map(dayOf);
  if (!day) return "No date";
  if (isLate(task)) return "Overdue";
  if (day === today) return "Today";
  return day < mondayOf(today, 1) ? "This week" : "Later";
}

function OwnTask({ task, place, open, ...handlers }) {
  const { id, number, title, status, project_id } = task;
  const project = projectOf(project_id);
  const move = (to) => changeTasks([[task, { status: to }]]);
  const press = (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!event.target.matches(".title")) return;
    if (event.altKey && step) place(task, step);
    else if (!stepAmong(event)) pressKey(event, [task], open, { e: () => go({ task: number }) });
  };
  return html`<li class="own row line" data-task=${id} draggable=${isTeam()} onKeyDown=${press} ...${handlers}>
    <label class="box"><input type="checkbox" aria-label="Done: ${title}" checked=${false} disabled=${!isTeam()}
      onChange=${() => move("done")} /></label>
    <div class="grow">
      <a class="title" href=${link({ task: number })} draggable=${false}>${title}</a>
      <div class="line">
        <span class="dim line">#${number} ${project && html`<${ProjectName} ...${{ project }} />`}</span>
        <${Facts} task=${task} />
      </div>
    </div>
    <${Choice} label="Status of “${title}”" look="chip" value=${status} disabled=${!isTeam()}
      options=${Object.entries(STATUSES)} onChoose=${(chosen) => chosen !== status && move(chosen)} />
    ${isTeam() && button("⋯", (event) => open([task], event.currentTarget), "icon", { "aria-label": `More for “${title}”`, title: "More", "aria-haspopup": "true" })}
  </li>`;
}

export function Mine() {
  const [tasks, setTasks] = useState(null);
  const [dragged, setDragged] = useState(null);
  const [open, menu] = useMenu({ find: (id) => tasks.find((task) => task.id === id) });
  useStore(workspace);
  useStore(deleted);
  const most = useRef(PAGE); // tasks that are shown, the earliest due first
  const changes = useRef(0); // of the order; a list that was loaded before is outdated
  const load = async () => {
    const before = changes.current;
    const found = await getTasks({ ...OWN, include: "comment_count" }, most.current);
    const inOrder = found.toSorted((one, other) => (one.rank < other.rank ? -1 : 1));
    if (before === changes.current) setTasks(inOrder);
  };
  const reload = () => load().catch((error) => notifyFault(error, reload));
  useLoad(load, []);
  useRefresh(({ tasks: changed, concerns, has }) => {
    const isOwn = changed.some(({ assignee_id }) => isMe({ id: assignee_id }));
    return (isOwn || has("project") || !tasks?.every(({ id }) => !concerns(id))) && load();
  });
  const showMore = () => {
    most.current += ANSWER_MOST;
    return reload();
  };
  const groups = Map.groupBy((tasks ?? []).filter(isKept), dueGroupOf);
  /** Move a task by some steps within its group. */
  const place = async (task, steps) => {
    const group = groups.get(dueGroupOf(task));
    const other = group[group.indexOf(task) + steps];
    if (!other || !steps) return;
    const others = tasks.filter((one) => one !== task);
    const from = tasks.indexOf(task);
    const back = from ? { after: tasks[from - 1].number } : { before: others[0].number };
    setTasks(others.toSpliced(others.indexOf(other) + (steps > 0), 0, task));
    queueMicrotask(() => focusCard(task.id)); // after it is drawn
    changes.current += 1;
    const undo = { words: "Undo", task: "", run: () => send(back) };
    const send = async (change, action) => {
      const say = () => notify(`Moved “${task.title}”.`, action);
      await patch(`/tasks/${task.id}/details`, change).then(say, (error) => notifyFault(error));
      changes.current += 1;
      await reload();
    };
    await send({ [steps < 0 ? "before" : "after"]: other.number }, undo);
  };
  const drag = (task) => {
    setDragged(task);
    pauseRefresh(Boolean(task));
  };
  const rowOf = (task, at, group) => {
    const isPlace = dragged && group.includes(dragged);
    const drop = () => isPlace && place(dragged, at - group.indexOf(dragged));
    return html`<${OwnTask} key=${task.id} ...${{ task, place, open }} onDragStart=${() => drag(task)}
      onDragOver=${(event) => isPlace && event.preventDefault()} onDrop=${drop} onDragEnd=${() => drag(null)} />`;
  };
  const listOf = (name) => html`<section class="stack" key=${name}>
    <h2>${name} <span class="dim">${groups.get(name).length}</span></h2>
    <ul class="rows">${groups.get(name).map(rowOf)}</ul>
  </section>`;
  const hint = "Open tasks that are assigned to you are listed here, from all projects.";
  return html`<div class="page stack" aria-busy=${!tasks}>
    ${tasks?.length === 0 && html`<${Empty} text="Nothing on your list." hint=${hint} />`}
    ${DUE_GROUPS.filter((name) => groups.has(name)).map(listOf)}
    ${tasks?.length >= most.current && button("Show more", showMore, "quiet more")}
    ${menu}
  </div>`;
}
