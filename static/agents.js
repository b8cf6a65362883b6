// The agents under People: what each one does, how to stop all of them, how to connect one.
import { post } from "./api.js";
import { Form } from "./forms.js";
import { Copyable } from "./parts.js";
import { html } from "./preact.js";
import { Records } from "./records.js";
import { useStore } from "./store.js";
import { draftOf, loadStop, rights, stopState } from "./workspace.js";

const { api, oauth } = document.documentElement.dataset;
// A program that gets its key by OAuth needs the address as the server knows it.
const ADDRESS = oauth ? `${oauth}/mcp` : new URL(api.replace(/api\/v1$/, "mcp"), location).href;
const HEADER = oauth ? "" : ' --header "Authorization: Bearer KEY"';
const server = { url: ADDRESS, ...(!oauth && { headers: { Authorization: "Bearer KEY" } }) };
const CLIENTS = {
  "Claude Code": `claude mcp add --scope user --transport http tasks ${ADDRESS}${HEADER}`,
  "Cursor, in mcp.json": JSON.stringify({ mcpServers: { tasks: server } }),
  "VS Code, in .vscode/mcp.json": JSON.stringify({
    servers: { tasks: { type: "http", ...server } },
  }),
  Codex: `codex mcp add tasks --url ${ADDRESS}${oauth ? "" : " --bearer-token-env-var TASKS_KEY"}`,
  "Gemini CLI": `gemini mcp add --scope user --transport http${HEADER} tasks ${ADDRESS}`,
  ...(oauth && { "claude.ai and ChatGPT, as a connector": ADDRESS }),
};
const OF_KEYS = html`Each agent needs a member and a KEY of its own. Make both on the server: <code>tasks member add "Build agent" --agent</code>`;

export function Agents() {
  const { stop } = useStore(stopState);
  const save = (fields) => post("/agents/stop", fields).then(loadStop);
  const form = () => html`<details><summary>Stop all agents</summary>
    <p class="dim">They can then only read, until an owner or admin lets them go on. They get your reason.</p>
    <${Form} operation="stop_agents" names=${["reason"]} label="Stop all agents"
      draft=${draftOf("a stop")} onSave=${save} /></details>`;
  return html`<section class="stack" id="agents">
    <h2>Agents</h2><${Records} of="agents" />
    ${!stop && rights().isAdmin && form()}
    <details><summary>Connect an agent</summary>
    <p class="dim">${oauth ? "The agent opens this page, which asks you what it may do." : OF_KEYS}</p>
    ${Object.entries(CLIENTS).map(([name, text]) => html`<p>${name}</p><${Copyable} label=${name} text=${text} />`)}
    </details>
  </section>`;
}
