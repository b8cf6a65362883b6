// The comments and attachments of the opened task.

import { create, download, get, patch, remove } from "./api.js";
import { button, dropDraft, fillForm, find, findDraft, keepDrafts, make, onSubmit, tell, time } from "./elements.js";
import { showHistory } from "./history.js";
import { refresh } from "./refresh.js";
import { workspace } from "./workspace.js";

const list = find("comments");
const form = find("comment-form");
const upload = find("attachment-form");
let task = null; // whose comments these are
let listed = ""; // as they are shown, so that nothing is redrawn when nothing has changed

const draftName = () => `draft of a comment on ${task}`;
keepDrafts(form, draftName);

/** Show a task's comments, attachments and history; forms in which something is typed stay. */
export async function showDiscussion(id) {
  const [{ comments }, { attachments }] = await Promise.all([
    get(`/tasks/${id}/comments`),
    get(`/tasks/${id}/attachments`),
    showHistory(id),
  ]);
  if (id !== task) {
    task = id;
    for (const each of [form, upload]) each.reset();
    for (const each of [form, upload]) tell(each, "");
    fillForm(form, findDraft(draftName())?.fields);
  } else if (list.querySelector("form") || listed === JSON.stringify([comments, attachments])) return;
  listed = JSON.stringify([comments, attachments]);
  list.replaceChildren(...comments.map(makeComment));
  find("attachments").replaceChildren(...attachments.map(makeAttachment));
}

function makeComment(comment) {
  const text = make("p", { className: "text" }, comment.content);
  const head = make("p", {}, make("b", {}, comment.author.full_name), " ", time(comment.created_at));
  if (comment.edited_at) head.append(" (edited)");
  if (workspace.isWriter && comment.author_id === workspace.caller.id) {
    const edit = () => text.replaceWith(makeEditor(comment));
    head.append(button("Edit", edit, { className: "quiet" }), button("Delete", () => removeComment(comment), { className: "quiet" }));
  }
  return make("li", {}, head, text);
}

function makeEditor({ id, content }) {
  const text = make("textarea", { rows: 3, required: true, maxLength: 50_000, value: content });
  const end = () => {
    editor.remove();
    listed = "";
    return showDiscussion(task);
  };
  const parts = [make("label", {}, "Change the comment", text), make("div", { className: "message", role: "alert" })];
  const editor = make("form", {}, parts, make("button", {}, "Save"), button("Cancel", end));
  onSubmit(editor, () => patch(`/tasks/${task}/comments/${id}`, { content: text.value }).then(end));
  return editor;
}

async function removeComment({ id }) {
  if (!confirm("Delete this comment?")) return;
  await remove(`/tasks/${task}/comments/${id}`).catch((error) => tell(form, error));
  refresh();
}

onSubmit(form, async () => {
  const name = draftName();
  await create(form, `/tasks/${task}/comments`, { content: form.elements.content.value });
  dropDraft(name);
  if (name === draftName()) form.reset();
  await showDiscussion(task);
  refresh();
});

function makeAttachment({ id, filename, size }) {
  const open = button(filename, () => fetchAttachment(id, filename).catch((error) => tell(upload, error)));
  return make("li", {}, open, make("span", { className: "dim" }, ` ${Math.ceil(size / 1024)} KiB`));
}

/** Save an attachment as a file; a plain link could not send the key. */
async function fetchAttachment(id, filename) {
  const href = URL.createObjectURL(await download(`/tasks/${task}/attachments/${id}`));
  make("a", { href, download: filename }).click();
  URL.revokeObjectURL(href);
}

onSubmit(upload, async () => {
  const [file] = upload.elements.file.files;
  const body = new FormData();
  body.append("file", file);
  await create(upload, `/tasks/${task}/attachments`, body, `${file.name} ${file.size} ${file.lastModified}`);
  upload.reset();
  await showDiscussion(task);
  refresh();
});
