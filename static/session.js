// Signing in and out, and what the member who is signed in may do.
import { get, post, remove } from "./api.js";
import { dismissAll, faultText } from "./notices.js";
import { html, useState } from "./preact.js";
import { stopRefresh } from "./refresh.js";
import { Store } from "./store.js";

const { workspace: name, docs } = document.documentElement.dataset;
const NOBODY = { member: null, key: null };

/** Who is signed in; `isOut` when that is known to be nobody, with the reason why. */
export const session = new Store({ ...NOBODY, isOut: false, why: "" });

export async function loadSession() {
  const { member, key } = await get("/me");
  const reader = sessionStorage.getItem("reader");
  if (reader && reader !== member.id) sessionStorage.clear(); // somebody else's drafts
  sessionStorage.setItem("reader", member.id);
  session.set({ member, key, isOut: false, why: "" });
}

/** What the member may do with this session; the server decides the same. */
export function rights() {
  const { member, key } = session.value;
  const isWriter = key.scope === "write";
  const isOwner = isWriter && member.role === "owner";
  const isAdmin = isOwner || (isWriter && member.role === "admin");
  return { isWriter, isTeam: isWriter && member.role !== "client", isAdmin, isOwner };
}

export const isMe = (person) => person.id === session.value.member.id;

/** Whether the caller may change this member, and their keys and links. */
export function mayManage(person) {
  const { isWriter, isAdmin, isOwner } = rights();
  return isWriter && (isMe(person) || (person.role === "owner" ? isOwner : isAdmin));
}

/** The name under which this tab keeps what the member typed and did not send. */
export const draftOf = (what) => `draft of ${what} by ${session.value.member.id}`;

export async function signOut() {
  await remove("/session");
  sessionStorage.clear();
  location.replace(location.pathname); // a new page: nothing of the workspace stays in memory
}

document.addEventListener("signed-out", ({ detail }) => {
  const { member, why } = session.value;
  stopRefresh();
  dismissAll();
  session.set({ ...NOBODY, isOut: true, why: member ? `You are signed out: ${detail}.` : why });
});

/** The page for who is not signed in. */
export function SignIn({ onEnter }) {
  const [fault, setFault] = useState(session.value.why);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await post("/session", { api_key: event.target.elements.key.value.trim() });
      await onEnter();
    } catch (error) {
      setFault(faultText(error));
      setBusy(false);
    }
  };
  return html`<main class="entrance">
    <form class="panel stack" onSubmit=${submit} aria-busy=${isBusy}>
      <h1>${name}</h1>
      <p>Open your sign-in link in this browser, or sign in with an API key.</p>
      <input name="user" autocomplete="username" value=${name} hidden readonly />
      <label class="field">API key
        <input name="key" type="password" autocomplete="current-password" required autofocus />
      </label>
      <p role="alert" class=${fault && "fault"}>${fault}</p>
      <button class="primary" disabled=${isBusy}>${isBusy ? "Signing in…" : "Sign in"}</button>
      <details>
        <summary>Lost your link or key?</summary>
        Owners and admins make a new sign-in link under People. Whoever runs the server makes one with
        ${" "}<code>flask --app app member link EMAIL</code>.
      </details>
      <p class="dim">Task service · <a href=${docs}>The API</a></p>
    </form>
  </main>`;
}
