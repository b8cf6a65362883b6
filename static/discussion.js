// What is around the opened task: its comments, attachments and history.
import { create, download, get, patch, remove } from "./api.js";
import { button, day, dropDraft, find, keepDrafts, make, onSubmit, restoreDraft, tell, time } from "./elements.js";
import { refresh } from "./refresh.js";
import { workspace } from "./workspace.js";

const [form, upload] = ["comment-form", "attachment-form"].map(find);
const text = form.elements.content;
let task = null; // the opened task's id
let edited = null; // the comment that is being changed, if it is not a new one
let listed = ""; // what is shown, so that nothing is made anew when nothing has changed
const draftName = () => `draft of ${edited ? `comment ${edited.id}` : `a comment on ${task}`}`;
keepDrafts(form, draftName);

/** Show what is around a task; what is typed into its forms stays. */
export async function showDiscussion(id) {
  const path = `/tasks/${id}`;
  const parts = await Promise.all([get(`${path}/comments`), get(`${path}/attachments`), get(`${path}/activity`)]);
  const [{ comments }, { attachments }, history] = parts;
  if (id !== task) {
    task = id;
    write(null);
    upload.reset();
    tell(upload, "");
  } else if (listed === JSON.stringify(parts)) return;
  listed = JSON.stringify(parts);
  find("comments").replaceChildren(...comments.map(makeComment));
  find("attachments").replaceChildren(...attachments.map(makeAttachment));
  find("history").replaceChildren();
  showHistory(history);
}

/** Let the form be for this comment, or with null for a new one. */
function write(comment) {
  edited = comment;
  text.value = comment?.content ?? "";
  find("comment-label").textContent = comment ? "Your comment, changed" : "New comment";
  find("cancel-comment").hidden = !comment;
  restoreDraft(form, draftName());
  tell(form, "");
}

function makeComment(comment) {
  const head = make("p", {}, make("b", {}, comment.author.full_name), " ", time(comment.created_at));
  if (comment.edited_at) head.append(" (edited)");
  if (workspace.isWriter && comment.author_id === workspace.caller.id) {
    head.append(button("Edit", () => write(comment) ?? text.focus(), { className: "quiet" }));
    head.append(button("Delete", () => removeComment(comment), { className: "quiet" }));
  }
  return make("li", {}, head, make("p", { className: "text" }, comment.content));
}

function removeComment({ id, task_id }) {
  if (!confirm("Delete this comment?")) return;
  remove(`/tasks/${task_id}/comments/${id}`).then(refresh, (error) => tell(form, error));
}
onSubmit(form, async () => {
  const [path, name, fields] = [`/tasks/${task}/comments`, draftName(), { content: text.value }];
  await (edited ? patch(`${path}/${edited.id}`, fields) : create(form, path, fields));
  dropDraft(name);
  if (name === draftName()) write(null);
  refresh();
});
find("cancel-comment").onclick = () => dropDraft(draftName()) ?? write(null);

/** An attachment with a button that saves it as a file; a plain link could not send the key. */
function makeAttachment({ id, task_id, filename, size }) {
  const save = (file) => {
    const href = URL.createObjectURL(file);
    make("a", { href, download: filename }).click();
    URL.revokeObjectURL(href);
  };
  const path = `/tasks/${task_id}/attachments/${id}`;
  const fetchFile = () => download(path).then(save, (error) => tell(upload, error, fetchFile));
  return make("li", {}, button(filename, fetchFile), ` ${Math.ceil(size / 1024)} KiB`);
}
onSubmit(upload, async () => {
  const body = new FormData(upload);
  const { name, size, lastModified } = body.get("file");
  await create(upload, `/tasks/${task}/attachments`, body, `${name} ${size} ${lastModified}`);
  upload.reset();
  refresh();
});

export const inputs = find("task-form").elements;
export const labelOf = (field) => inputs[field].labels[0].firstChild.data.trim();
/** A field's value in words, as the opened task's form would show it. */
export function textOf(field, value) {
  const option = Array.from(inputs[field].options ?? []).find((choice) => choice.value === (value ?? ""));
  if (option || field.endsWith("_id")) return option?.text ?? "another";
  const text = value?.omitted_bytes ? "a long text" : (value ?? "none");
  return field.endsWith("_date") ? day(text) : text;
}

function sentence({ action, entity, changes }) {
  if (entity === "comment") return action === "created" ? "commented" : `${action} a comment`;
  if (action === "created") return "created the task";
  const [before, after] = changes.attachment ?? [];
  if (before || after) return after ? `attached ${after}` : `removed ${before}`;
  const change = (field) => changes[field].map((value) => textOf(field, value).slice(0, 100)).join(" → ");
  const known = Object.keys(changes).filter((field) => inputs[field]);
  return known.map((field) => `${labelOf(field)}: ${change(field)}`).join("; ") || "updated the metadata";
}

function showHistory({ activity, pagination }) {
  const line = (entry) => [make("b", {}, entry.actor.full_name), ` ${sentence(entry)} `, time(entry.created_at)];
  find("history").append(...activity.map((entry) => make("li", {}, line(entry))));
  find("earlier").hidden = !pagination.has_more;
  const query = { before: pagination.next_before };
  find("earlier").onclick = () => get(`/tasks/${task}/activity`, query).then(showHistory, (error) => tell(form, error));
}
