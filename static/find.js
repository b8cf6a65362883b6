// Finds tasks by number and words, projects, people, views, and commands.
import { get } from "./api.js";
import { notifyFault } from "./notices.js";
import { Dialog, Icon } from "./parts.js";
import { markOf, OptionList } from "./picker.js";
import { openedTitles } from "./place.js";
import { html, useEffect, useState } from "./preact.js";
import { link } from "./store.js";
import { foldedText } from "./words.js";
import { activeMembers, projectOf, projectsThatAre } from "./workspace.js";

const PAUSE_MS = 200; // after the last letter, before the server is asked
const [OPENED_MOST, FOUND_MOST] = [5, 10];
const AROUND = 24; // characters
const LABEL = "Tasks, projects, people, views, commands";

/** The part of a text around the first of these words; empty if it contains none of them. */
function excerptOf(text, words) {
  const at = Math.max(...words.map((word) => foldedText(text).indexOf(word)));
  const around = text.slice(Math.max(0, at - AROUND), at + AROUND).replace(/\s+/g, " ");
  return at < 0 ? "" : `…${around}…`;
}

/** A task with its project, or with the part of its description that contains words that the title lacks. */
const taskOption =
  (typed) =>
  ({ number, title, description, status, project_id }) => {
    const isElsewhere = (word) => !foldedText(`#${number} ${title}`).includes(word);
    const others = foldedText(typed).split(" ").filter(isElsewhere);
    const found = others.length > 0 && (excerptOf(description ?? "", others) || "in a comment");
    const about = found || projectOf(project_id)?.name;
    return [link({ task: number }), `#${number} ${title}`, about, markOf(status)];
  };
const openedOption = (title) => [link({ task: /\d+/.exec(title)[0] }), title];
const optionTo = (names, ...about) => [`#${new URLSearchParams(names)}`, ...about];
const viewOption = ([view, { title }]) =>
  optionTo({ view }, title, "View", html`<${Icon} of=${view} />`);
const projectOption = ({ id, name }) => optionTo({ project: id }, name, "Project", markOf(id));
const personOption = ({ id, full_name }) =>
  optionTo({ person: id }, full_name, "Person", markOf(id));

/** Finds by words; `views` are entries of their names, `commands` are functions by their words. */
export function Find({ views, commands, onClose }) {
  const [typed, setTyped] = useState("");
  const [tasks, setTasks] = useState([]);
  const text = typed.trim();
  useEffect(() => {
    let isOver = !text;
    const show = (lists) => isOver || setTasks(lists.flatMap((list) => list.tasks));
    const query = { q: text, limit: FOUND_MOST, sort: "-updated_at" };
    const ofStatus = (status) => get("/tasks", { ...query, status });
    const ask = () => Promise.all(["open", "done"].map(ofStatus)); // completed tasks come last
    const look = () => isOver || ask().then(show, (error) => notifyFault(error));
    const timer = setTimeout(look, PAUSE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text]);
  const [, number] = /^#?(\d{1,9})$/.exec(text) ?? [];
  const isMeant = (task) => String(task.number) === number;
  const sorted = tasks.toSorted((one, other) => isMeant(other) - isMeant(one));
  const found = sorted.slice(0, FOUND_MOST).map(taskOption(text));
  if (number && !tasks.some(isMeant)) found.unshift(openedOption(`#${number}`)); // not answered yet
  const options = [
    ...(text ? [] : [...new Set(openedTitles)].slice(0, OPENED_MOST).map(openedOption)),
    ...views.map(viewOption),
    ...(text ? projectsThatAre("active").map(projectOption) : []),
    ...(text ? activeMembers().map(personOption) : []),
    ...Object.keys(commands).map((words) => [words, words, "Command"]),
  ];
  const choose = (value) => (commands[value] ? commands[value]() : (location.hash = value));
  return html`<${Dialog} title="Find" className="find" onClose=${onClose}>
    <${OptionList} label=${LABEL} value="" onType=${setTyped} onDone=${onClose} onChoose=${choose}
      ...${{ options }} found=${text ? found : []} />
  <//>`;
}
