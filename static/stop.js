// The stop of all agents, which every view shows.
import { get, post } from "./api.js";
import { notifyFault } from "./notices.js";
import { button, Moment } from "./parts.js";
import { html } from "./preact.js";
import { onRefresh } from "./refresh.js";
import { Store, useStore } from "./store.js";
import { isTeam, rights } from "./workspace.js";

/** The stop of all agents: by whom, when and why; null if they work. */
export const stopState = new Store({ stop: null });

export const loadStop = async () =>
  stopState.set(isTeam() ? await get("/agents/stop") : { stop: null });

onRefresh(({ has }) => has("member") && loadStop());

export function Stopped() {
  const { stop } = useStore(stopState);
  const start = () => post("/agents/start").then(loadStop, notifyFault);
  const shown = () => html`<div class="band stack">
    <p>${stop.by.full_name} stopped all agents <${Moment} at=${stop.created_at} />: ${stop.reason}</p>
    ${rights().isAdmin && button("Let agents go on", start, "")}
  </div>`;
  return html`<div role="status">${stop && shown()}</div>`;
}
