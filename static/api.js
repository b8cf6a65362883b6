// Calls the API. A cookie that no script can read identifies the caller.
import { capital, refusalsOf } from "./words.js";

const { api: root, now: begun } = document.documentElement.dataset;
const unanswered = new Map(); // an Idempotency-Key for each creation that got no answer yet
const KEPT_MOST = 10_000; // characters
let newest = begun;

/** The time on the server when it answered last. */
export const serverTime = () => newest;

/** A failed call, with the status of the response, or 0 without a response. */
export class CallError extends Error {
  constructor(status, message, seconds = 0) {
    super(capital(message));
    this.status = status;
    this.seconds = seconds; // after which to try again
    this.isTemporary = [0, 429, 503].includes(status);
  }
}

async function failureOf(answer, body) {
  const unknown = { error: { message: `The server answered ${answer.status}` } };
  const { error } = await answer.json().catch(() => unknown);
  if (answer.status === 401) {
    document.dispatchEvent(new CustomEvent("signed-out", { detail: error.message }));
  }
  const message = error.details ? refusalsOf(error.details, body) : error.message;
  return new CallError(answer.status, message, Number(answer.headers.get("Retry-After")));
}

async function send(method, path, { query = {}, body, version, once } = {}) {
  const headers = { "X-Requested-With": "page" }; // no other site can send it along with the cookie
  if (version) headers["If-Match"] = `"${version}"`;
  if (once) headers["Idempotency-Key"] = once;
  const isJson = body && !(body instanceof FormData);
  if (isJson) headers["Content-Type"] = "application/json";
  const chosen = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const url = root + path + (chosen.length ? `?${new URLSearchParams(chosen)}` : "");
  const options = { method, headers, body: isJson ? JSON.stringify(body) : body };
  // The page may be closing; browsers then send at most 64 KiB.
  options.keepalive = method === "DELETE" || options.body?.length < KEPT_MOST;
  const answer = await fetch(url, options).catch(() => null);
  if (!answer) throw new CallError(0, "The server cannot be reached");
  if (!answer.ok) throw await failureOf(answer, body);
  return answer;
}

async function call(method, path, options) {
  const answer = await send(method, path, options);
  const content = await answer.json().catch(() => null);
  if (!content) throw new CallError(0, "The answer broke off");
  if (content.meta.timestamp > newest) newest = content.meta.timestamp;
  return content.data;
}

export const isEqual = (one, other) => JSON.stringify(one) === JSON.stringify(other);

export const get = (path, query) => call("GET", path, { query });
export const post = (path, body, once) => call("POST", path, { body, once });
export const patch = (path, body, version) => call("PATCH", path, { body, version });
export const remove = (path, query) => call("DELETE", path, { query });
export const download = async (path) => (await send("GET", path)).blob();

/** An Idempotency-Key. */
export const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-"); // randomUUID() is missing without TLS

/** Create something once, even if the request is repeated because its response was lost. */
export async function create(path, body, content = JSON.stringify(body)) {
  const request = `${path} ${content}`;
  if (!unanswered.has(request)) unanswered.set(request, newKey());
  const created = await call("POST", path, { body, once: unanswered.get(request) });
  unanswered.delete(request);
  return created;
}

/**
 * Change a task from the version that the caller has seen. Changes that somebody else has made meanwhile
 * stay. If they concern the same fields, the error contains their task (`theirs`) and those `fields`.
 */
export async function changeTask(task, changes) {
  try {
    return await patch(`/tasks/${task.id}/details`, changes, task.version);
  } catch (error) {
    if (error.status !== 412) throw error;
    const theirs = await get(`/tasks/${task.id}`);
    const fields = Object.keys(changes).filter((name) => !isEqual(theirs[name], task[name]));
    if (fields.length) throw Object.assign(error, { theirs, fields });
    return changeTask(theirs, changes);
  }
}
