// The page: signing in and out, and the view that the address asks for.

import { address, go } from "./address.js";
import { hasKey, keepKey, serverTime } from "./api.js";
import { showBoard } from "./board.js";
import { find, notify, onSubmit, tell } from "./elements.js";
import { LISTS, showList } from "./lists.js";
import "./moves.js";
import "./newtask.js";
import { startRefreshing } from "./refresh.js";
import { closeTask, openTask } from "./task.js";
import { loadWorkspace, projectName, showProjects } from "./workspace.js";

const signIn = find("sign-in").querySelector("form");
const filters = find("filters");
const NO_FILTERS = { q: "", priority: "", due: "", mine: "" };
let current = ""; // the view that is shown, without the opened task
let typing = 0;

/** Show the workspace to whoever has a key, else ask for one. */
async function start() {
  find("sign-in").hidden = hasKey();
  if (!hasKey()) return find("key").focus();
  await loadWorkspace();
  const time = serverTime();
  find("sign-in").hidden = true;
  find("workspace").hidden = false;
  current = "";
  await show();
  startRefreshing(time);
}

document.addEventListener("key-refused", ({ detail }) => {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  find("workspace").hidden = true;
  find("sign-in").hidden = false;
  tell(signIn, detail);
  find("key").focus();
});

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
  if (JSON.stringify(rest) !== current) {
    current = JSON.stringify(rest);
    await showView(rest);
  }
  if (task) await openTask(task);
  else closeTask();
}

function showView({ view = "board", project, ...chosen }) {
  const isBoard = !LISTS[view];
  const title = isBoard ? (project ? (projectName(project) ?? "Unknown project") : "All projects") : LISTS[view][0];
  document.title = `${title} – ${document.documentElement.dataset.workspace}`;
  find("board-view").hidden = !isBoard;
  find("list-view").hidden = isBoard;
  for (const link of find("views").children) link.ariaCurrent = link.dataset.view === view ? "page" : null;
  showProjects();
  if (!isBoard) return showList(view);
  find("board-title").textContent = title;
  for (const { name, type } of filters.elements) {
    const input = filters.elements[name];
    if (type === "checkbox") input.checked = Boolean(chosen[name]);
    else if (name && input.value.trim() !== (chosen[name] ?? "").trim()) input.value = chosen[name] ?? "";
  }
  find("clear").hidden = !Object.keys(NO_FILTERS).some((name) => chosen[name]);
  return showBoard();
}

filters.addEventListener("input", ({ target: { name, type, value, checked } }) => {
  clearTimeout(typing);
  if (name === "q") typing = setTimeout(() => go({ q: value }, true), 250);
  else go({ [name]: type === "checkbox" ? checked && "1" : value });
});
filters.addEventListener("submit", (event) => event.preventDefault());
find("clear").onclick = () => go(NO_FILTERS);
for (const close of document.querySelectorAll("dialog .close")) close.onclick = () => close.closest("dialog").close();

addEventListener("hashchange", () => hasKey() && show());
start().catch((error) => notify(error, start));
