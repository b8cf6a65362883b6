// Markdown as nodes: made from a lexer's tokens, never through HTML. What is no Markdown stays as typed.
import { Lexer } from "./marked.js";
import { h, html } from "./preact.js";

const OPTIONS = { gfm: true, breaks: true };
const INLINE_MOST = 2000; // characters; the lexer takes a second for some longer runs of text
const SAFE = /^(https?:|mailto:)/i;

const all = (tokens) => tokens.map((token) => NODES[token.type]?.(token) ?? token.raw);
const inside = (tag) => (token) => h(tag, {}, all(token.tokens));
const row = (tag, cells) => html`<tr>${cells.map(inside(tag))}</tr>`;

function link({ href, tokens }) {
  if (!SAFE.test(href)) return html`<span>${all(tokens)}</span>`;
  return html`<a href=${href} rel="noopener noreferrer" target="_blank">${all(tokens)}</a>`;
}

function item({ task, checked, tokens }) {
  const box = html`<input type="checkbox" checked=${checked} disabled aria-label="Done" />`;
  return html`<li style=${task && { listStyle: "none" }}>${task && box}${all(tokens)}</li>`;
}

/** What is made of each type of token; of another one its text. */
const NODES = {
  paragraph: inside("p"),
  strong: inside("strong"),
  em: inside("em"),
  del: inside("del"),
  blockquote: inside("blockquote"),
  heading: ({ depth, tokens }) => h(`h${Math.min(depth + 3, 6)}`, {}, all(tokens)),
  br: () => h("br"),
  hr: () => h("hr"),
  space: () => [],
  checkbox: () => [], // which the item shows
  code: ({ text }) => html`<pre tabindex="0"><code>${text}</code></pre>`,
  codespan: ({ text }) => h("code", {}, text),
  escape: ({ text }) => text,
  text: ({ text, tokens }) => (tokens ? all(tokens) : text),
  link,
  list: ({ ordered, start, items }) =>
    h(
      ordered ? "ol" : "ul",
      { start: ordered && start !== 1 ? start : undefined },
      items.map(item),
    ),
  table: ({ header, rows }) => html`<div tabindex="0" role="group" aria-label="Table">
    <table>
      <thead>${row("th", header)}</thead>
      <tbody>${rows.map((cells) => row("td", cells))}</tbody>
    </table>
  </div>`,
};

/** The tokens of a text; paragraphs that are too long to be read quickly are left as they are. */
function tokensOf(text) {
  const lexer = new Lexer(OPTIONS);
  const tokens = lexer.blockTokens(text.replace(/\r\n?/g, "\n"), []);
  for (const { src, tokens: inline } of lexer.inlineQueue) {
    if (src.length > INLINE_MOST) inline.push({ type: "text", text: src });
    else lexer.inlineTokens(src, inline);
  }
  return tokens;
}

function nodesOf(text) {
  try {
    return all(tokensOf(text));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // thousands of levels deep
    return text;
  }
}

export const Markdown = ({ text }) => html`<div class="text">${nodesOf(text)}</div>`;
