// Moving a card to another status: by dragging it, or with the menu of its button Move.

import { patch } from "./api.js";
import { findTask, focusCard } from "./board.js";
import { button, find, make, notify } from "./elements.js";
import { refresh } from "./refresh.js";
import { STATUSES } from "./workspace.js";

const board = find("board");
const menu = find("move");
let dragged = null;

/** Move a task, unless somebody else has changed it since it was shown. */
async function move(task, status) {
  if (task.status === status) return;
  const error = await patch(`/tasks/${task.id}`, { status }, task.version).then(() => null, (error) => error);
  const failed = `“${task.title}” was not moved. `;
  if (error?.status === 412) notify(`${failed}Someone has changed it meanwhile; the board shows how it is now.`);
  else if (error) notify(error, () => move(task, status), failed);
  else notify(`Moved “${task.title}” to ${STATUSES[status]}.`);
  if (error?.isTemporary) return;
  await refresh();
  focusCard(task.id, "move", status);
}

function openMenu(opener) {
  const task = findTask(opener.closest(".card").dataset.task);
  const choose = (status) => {
    menu.hidePopover();
    move(task, status);
  };
  const choices = Object.entries(STATUSES).filter(([status]) => status !== task.status);
  const buttons = choices.map(([status, title]) => button(title, () => choose(status)));
  menu.replaceChildren(make("p", {}, "Move to"), ...buttons);
  menu.showPopover();
  const place = opener.getBoundingClientRect();
  menu.style.left = `${Math.max(8, place.right - menu.offsetWidth)}px`;
  menu.style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
  buttons[0].focus();
}

menu.addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (!step) return;
  event.preventDefault();
  document.activeElement[step]?.focus();
});

board.addEventListener("click", ({ target }) => {
  if (target.dataset.action === "move") openMenu(target);
});

function mark(column) {
  for (const other of board.children) other.classList.toggle("over", other === column);
}

board.addEventListener("dragstart", (event) => {
  dragged = findTask(event.target.dataset.task);
  event.dataTransfer.setData("text/plain", dragged.title); // Firefox drags nothing without data
  board.classList.add("dragging");
});
board.addEventListener("dragover", (event) => {
  if (!dragged) return; // a file, or what another page lets go
  event.preventDefault();
  mark(event.target.closest(".column"));
});
board.addEventListener("drop", (event) => {
  event.preventDefault();
  const column = event.target.closest(".column");
  if (dragged && column) move(dragged, column.dataset.status);
});
board.addEventListener("dragend", () => {
  dragged = null;
  mark(null);
  board.classList.remove("dragging");
});
