// Drag and drop by touch: a long press begins it, and the views get the same events as from a mouse.
const HOLD_MS = 400; // milliseconds; a browser's own menu comes later
const SLACK = 10; // pixels that a finger may move until then
const EDGE = 56; // pixels from the edge of a list, where it scrolls
const SPEED = 8; // pixels each frame

let finger = null; // the only one on the screen
let landed = null; // where it came down
let hold = 0;
let dragged = null;
let ghost = null; // a copy that follows the finger
let over = null; // what is below it

function fire(type, target) {
  const { clientX, clientY } = finger;
  const more = { clientX, clientY, dataTransfer: new DataTransfer() };
  target?.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, ...more }));
}

function lift(element) {
  const { left, top, width } = element.getBoundingClientRect();
  dragged = element;
  ghost = element.cloneNode(true);
  ghost.classList.add("ghost");
  Object.assign(ghost.style, { left: `${left}px`, top: `${top}px`, width: `${width}px` });
  document.body.append(ghost);
  fire("dragstart", dragged);
  pass();
}

/** In each frame, tell what is below the finger, and scroll it at its edges. */
function pass() {
  if (!dragged) return;
  const { clientX: x, clientY: y } = finger;
  ghost.style.translate = `${x - landed.clientX}px ${y - landed.clientY}px`;
  const before = over;
  over = document.elementFromPoint(x, y);
  if (over !== before) fire("dragenter", over);
  fire("dragover", over);
  const towards = (at, from, to) => SPEED * ((at > to - EDGE) - (at < from + EDGE));
  for (const list of ["main", "#board", ".column"].map((name) => over?.closest(name))) {
    const { left, right, top, bottom } = list?.getBoundingClientRect() ?? {};
    list?.scrollBy(towards(x, left, right), towards(y, top, bottom));
  }
  requestAnimationFrame(pass);
}

function end(event) {
  clearTimeout(hold);
  if (event.type === "touchend" && dragged) {
    event.preventDefault(); // it is no press
    fire("drop", over);
  }
  if (dragged) {
    fire("dragend", dragged);
    ghost.remove();
  }
  finger = dragged = over = null;
}

function touch(event) {
  const element = event.target.closest?.("[draggable=true]");
  end(event);
  if (!element || event.touches.length > 1) return;
  [landed] = [finger] = event.touches;
  hold = setTimeout(lift, HOLD_MS, element);
}

function follow(event) {
  if (!finger) return;
  [finger] = event.touches;
  const far = Math.hypot(finger.clientX - landed.clientX, finger.clientY - landed.clientY);
  if (dragged)
    event.preventDefault(); // nothing scrolls
  else if (far > SLACK) end(event);
}

addEventListener("touchstart", touch);
addEventListener("touchmove", follow, { passive: false });
for (const type of ["touchend", "touchcancel"]) addEventListener(type, end, { passive: false });
// Some browsers drag by touch themselves, or show the menu of a link.
for (const type of ["dragstart", "contextmenu"])
  addEventListener(type, (event) => event.isTrusted && finger && event.preventDefault(), true);
