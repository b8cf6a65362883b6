// The page: signing in and out, and the view that the address asks for.
import { get, hasKey, keepKey, serverTime } from "./api.js";
import { showBoard } from "./board.js";
import { address, fillSelect, find, go, make, notify, onSubmit, tell, time } from "./elements.js";
import { onRefresh, refreshFrom } from "./refresh.js";
import { openTask } from "./task.js";
import { loadWorkspace, memberName, PRIORITIES, projectName, showProjects, workspace } from "./workspace.js";
const LISTS = { meetings: "Meetings", whiteboards: "Whiteboards" };
const [signIn, filters] = ["sign-in-form", "filters"].map(find);
let current = ""; // the view that is shown, without the opened task
let reader = ""; // the id of the member for whom this page has shown something
let typing = 0;
/** Show the workspace to whoever has a key, else ask for one. */
async function start() {
  if (!hasKey()) return askForKey("");
  await loadWorkspace();
  const { id } = workspace.caller;
  if (reader && reader !== id) return location.replace(location.pathname); // as when somebody signs out
  reader = id;
  const time = serverTime();
  find("workspace").hidden = false;
  if (!find("sign-in").hidden) find("title").focus(); // of which the key's field had the focus
  find("sign-in").hidden = true;
  current = "";
  await show();
  refreshFrom(time);
}
/** Ask for a key; of what another one showed nothing stays. */
function askForKey(why) {
  document.title = document.documentElement.dataset.workspace;
  for (const shown of document.querySelectorAll("#workspace :is(ul, h1, .count), #caller")) shown.replaceChildren();
  find("workspace").hidden = true;
  find("sign-in").hidden = false;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  tell(signIn, why);
  find("key").focus();
}
document.addEventListener("key-refused", ({ detail }) => askForKey(`You are signed out: ${detail}.`));

onSubmit(signIn, async () => {
  keepKey(find("key").value.trim());
  await start();
  find("key").value = "";
});
find("sign-out").onclick = () => {
  sessionStorage.clear();
  location.replace(location.pathname); // a new page: nothing of the workspace stays in memory
};

async function show() {
  const { task, ...rest } = address();
  const before = current;
  current = JSON.stringify(rest);
  if (current !== before) await showView(rest);
  if (address().task !== task) return; // which another call has opened or closed meanwhile
  if (task) await openTask(task);
  else find("task").close();
}
addEventListener("hashchange", () => hasKey() && show());

function showView({ view = "board", project, ...chosen }) {
  clearTimeout(typing);
  const isList = Object.hasOwn(LISTS, view);
  const title = isList ? LISTS[view] : project ? (projectName(project) ?? "Unknown project") : "All projects";
  document.title = `${title} – ${document.documentElement.dataset.workspace}`;
  find("title").textContent = title;
  [find("board-view").hidden, find("list").hidden] = [isList, !isList];
  for (const link of find("views").children) link.ariaCurrent = link.dataset.view === view ? "page" : null;
  showProjects();
  find("list").replaceChildren();
  if (isList) return showList(view);
  for (const input of filters.querySelectorAll("[name]")) {
    if (input.type === "checkbox") input.checked = Boolean(chosen[input.name]);
    else input.value = chosen[input.name] ?? "";
  }
  find("clear").hidden = !Object.keys(chosen).length;
  return showBoard();
}
/** Show meetings or whiteboards as a plain list. */
async function showList(view) {
  const data = await get(`/${view}`).catch((error) => notify(error, () => showList(view)));
  if (data && address().view === view) find("list").replaceChildren(...data[view].map(makeRow));
}

function makeRow({ title, starts_at, ends_at, when, location, project_id, organizer, participants = [], ...row }) {
  const span = starts_at ? [time(starts_at), ends_at && " to ", ends_at && time(ends_at)] : time(row.updated_at);
  const people = organizer ? [organizer, ...participants].map((one) => one.full_name) : [memberName(row.updated_by)];
  const facts = [when, location, projectName(project_id), people.join(", ")].filter(Boolean).join(" · ");
  return make("li", {}, make("h2", {}, title), make("p", { className: "dim" }, span, ` · ${facts}`));
}
filters.oninput = ({ target: { name, type, value, checked } }) => {
  clearTimeout(typing);
  if (name === "q") typing = setTimeout(() => go({ q: value }, true), 250);
  else go({ q: filters.elements.q.value, [name]: type === "checkbox" ? checked && "1" : value });
};
filters.onsubmit = (event) => event.preventDefault();
find("clear").onclick = () => go({ q: "", priority: "", due: "", sort: "", mine: "" });
fillSelect(filters.elements.priority, [["", "Any"], ...Object.entries(PRIORITIES).reverse()], "");
onRefresh(({ activity, isPartial }) => {
  const { view } = address();
  const isChanged = isPartial || activity.some((entry) => `${entry.entity}s` === view);
  return Object.hasOwn(LISTS, view) && isChanged && showList(view);
});
const begin = () => start().catch((error) => notify(error, begin));
begin();
