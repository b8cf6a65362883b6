// What is around the opened task: its comments, attachments and history.
import { create, download, get, patch, remove } from "./api.js";
import { button, day, dropDraft, find, keepDrafts, make, onSubmit, restoreDraft, tell, time } from "./elements.js";
import { refresh } from "./refresh.js";
import { labelOf } from "./words.js";
import { draftOf, workspace } from "./workspace.js";
const [form, upload] = ["comment-form", "attachment-form"].map(find);
const text = form.elements.content;
let task = null; // the opened task's id
let edited = null; // the comment that is being changed, if it is not a new one
let listed = ""; // what is shown, so that nothing is made again when nothing has changed
const draftName = () => draftOf(edited ? `comment ${edited.id}` : `a comment on ${task}`);
keepDrafts(form, draftName);

/** All comments of a task, of which the API lists 500 at a time, the latest first. */
async function loadComments(id, before) {
  const { comments, pagination } = await get(`/tasks/${id}/comments`, { before });
  return pagination.has_more ? [...(await loadComments(id, pagination.next_before)), ...comments] : comments;
}
export const loadDiscussion = (id) =>
  Promise.all([loadComments(id), ...["attachments", "activity"].map((part) => get(`/tasks/${id}/${part}`))]);
/** Show what was loaded around a task; what is typed into its forms stays, and the focus. */
export function showDiscussion(id, parts) {
  const [comments, { attachments }, history] = parts;
  const focused = document.activeElement;
  if (id !== task) {
    task = id;
    write(null);
    upload.reset();
    tell(upload, "");
  } else if (listed === JSON.stringify(parts)) return;
  listed = JSON.stringify(parts);
  find("comments").replaceChildren(...comments.map(makeComment));
  find("attachments").replaceChildren(...attachments.map(makeAttachment));
  if (focused.id && !focused.isConnected) (find(focused.id) ?? find("comments-title")).focus();
  find("history").replaceChildren();
  showHistory(history);
}
/** Let the form be for this comment, or with null for a new one. */
function write(comment, isAsked = false) {
  edited = comment;
  text.value = comment?.content ?? "";
  find("comment-label").textContent = comment ? "Your comment, changed" : "New comment";
  find("cancel-comment").hidden = !comment;
  restoreDraft(form, draftName());
  tell(form, "");
  if (isAsked) text.focus();
}

function makeComment(comment) {
  const head = make("p", {}, make("b", {}, comment.author.full_name), " ", time(comment.created_at));
  if (comment.edited_at) head.append(" (edited)");
  if (workspace.isWriter && comment.author_id === workspace.caller.id) {
    head.append(button("Edit", () => write(comment, true), { className: "quiet", id: `edit-${comment.id}` }));
    head.append(button("Delete", () => removeComment(comment), { className: "quiet", id: `delete-${comment.id}` }));
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
find("cancel-comment").onclick = () => {
  dropDraft(draftName());
  write(null, true);
};
/** An attachment with a button that saves it as a file; a plain link could not send the key. */
function makeAttachment({ id, task_id, filename, size }) {
  const save = (file) => {
    const href = URL.createObjectURL(file);
    make("a", { href, download: filename }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000); // some browsers read it later
  };
  const path = `/tasks/${task_id}/attachments/${id}`;
  const fetchFile = () => download(path).then(save, (error) => tell(upload, error, fetchFile));
  return make("li", {}, button(filename, fetchFile, { id: `file-${id}` }), ` ${Math.ceil(size / 1024)} KiB`);
}
onSubmit(upload, async () => {
  const body = new FormData(upload);
  const { name, size, lastModified } = body.get("file");
  await create(upload, `/tasks/${task}/attachments`, body, `${name} ${size} ${lastModified}`);
  upload.reset();
  refresh();
});

export const inputs = find("task-form").elements;
/** A field's value in words, as the opened task's form would show it. */
export function textOf(field, value) {
  const option = Array.from(inputs[field].options ?? []).find((choice) => choice.value === (value ?? ""));
  if (option || field.endsWith("_id")) return option?.text ?? "another";
  if (value?.omitted_bytes) return "a long text";
  return (field.endsWith("_date") ? day(value) : value) ?? "none";
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

function showHistory({ activity, pagination }, id = task) {
  if (id !== task) return; // another task was opened meanwhile
  const line = (entry) => [make("b", {}, entry.actor.full_name), ` ${sentence(entry)} `, time(entry.created_at)];
  find("history").append(...activity.map((entry) => make("li", {}, line(entry))));
  find("earlier").hidden = !pagination.has_more;
  const earlier = () => get(`/tasks/${id}/activity`, { before: pagination.next_before });
  find("earlier").onclick = () => earlier().then((page) => showHistory(page, id), (error) => tell(form, error));
}
