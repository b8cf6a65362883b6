// Calls the API with the key of this tab.
import { refusalOf } from "./words.js";
const root = document.documentElement.dataset.api;
const KEY = "api_key"; // where sessionStorage has the key; the page behind an enrollment link puts it there too
const sent = new WeakMap(); // each form's last request, until it was answered
let newest = "";
/** The server's time in its last answer. */
export const serverTime = () => newest;
export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
/** Fail with the status of the answer, or 0 if there was none, and the seconds after which to try again. */
function refuse(status, message, seconds = 0) {
  throw Object.assign(new Error(message), { status, seconds, isTemporary: [0, 429, 503].includes(status) });
}

async function send(method, path, { query = {}, body, version, once } = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { Authorization: `Bearer ${encodeURI(key)}` }; // which leaves a real key as it is
  if (version) headers["If-Match"] = `"${version}"`;
  if (once) headers["Idempotency-Key"] = once;
  if (body && !(body instanceof FormData)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  const chosen = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const url = root + path + (chosen.length ? `?${new URLSearchParams(chosen)}` : "");
  const answer = await fetch(url, { method, headers, body }).catch(() => refuse(0, "The server cannot be reached"));
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: { message: `The server answered ${answer.status}` } }));
  if (answer.status === 401 && key === sessionStorage.getItem(KEY)) {
    sessionStorage.removeItem(KEY);
    document.dispatchEvent(new CustomEvent("key-refused", { detail: error.message }));
  }
  const message = error.details ? refusalOf(error.details) : error.message;
  return refuse(answer.status, message, Number(answer.headers.get("Retry-After")));
}

async function call(method, path, options) {
  const answer = await send(method, path, options);
  const { data, meta } = await answer.json().catch(() => refuse(0, "The answer broke off"));
  if (meta.timestamp > newest) newest = meta.timestamp;
  return data;
}
export const get = (path, query) => call("GET", path, { query });
export const patch = (path, body, version) => call("PATCH", path, { body, version });
export const remove = (path) => call("DELETE", path);
export const download = async (path) => (await send("GET", path)).blob();
/** Create what a form holds: once, also when it is sent again because the answer was lost. */
export async function create(form, path, body, content = JSON.stringify(body)) {
  const request = `${path} ${content}`;
  const numbers = crypto.getRandomValues(new Uint32Array(4)); // randomUUID() is missing where there is no TLS
  if (sent.get(form)?.request !== request) sent.set(form, { request, once: numbers.join("-") });
  const created = await call("POST", path, { body, once: sent.get(form).once });
  sent.delete(form);
  return created;
}
