// Markdown as nodes: made from a lexer's tokens, never through HTML. What is no Markdown stays as typed.
import { Lexer } from "./marked.js";
import { h, html, useMemo } from "./preact.js";

const OPTIONS = { gfm: true, breaks: true };
// The lexer takes the square of time for the characters and for the signs of emphasis and links in a paragraph.
const INLINE_MOST = 2000; // characters
const INLINE_MARKS = 100; // signs
const MARKS_MOST = 5000; // signs in the whole text
const DEEPEST = 30; // levels of quotes and lists: the lexer and preact call themselves for each
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

/** How deep a line is nested: its markers of quotes and items, with two blanks of indentation as one. */
function levels(line) {
  const [prefix] = line.match(/^[\s>*+.)\d-]*/);
  return /[>*+.)-]/.test(prefix) ? (prefix.match(/>|[*+.)-]\s| {2}|\t/g) ?? []).length : 0;
}

/** The tokens of a text; paragraphs that the lexer would take long to read are left as they are. */
function tokensOf(text) {
  const lexer = new Lexer(OPTIONS);
  const tokens = lexer.blockTokens(text, []);
  let left = MARKS_MOST;
  for (const { src, tokens: inline } of lexer.inlineQueue) {
    const marks = src.match(/[*_~[]/g)?.length ?? 0;
    left -= marks;
    if (src.length > INLINE_MOST || marks > INLINE_MARKS || left < 0) {
      inline.push({ type: "text", text: src });
    } else lexer.inlineTokens(src, inline);
  }
  return tokens;
}

function nodesOf(text) {
  const lines = text.replace(/\r\n?/g, "\n");
  return lines.split("\n").some((line) => levels(line) > DEEPEST) ? text : all(tokensOf(lines));
}

/** Who opens a task reads each of its texts once, and not with every change. */
export const Markdown = ({ text }) =>
  html`<div class="text">${useMemo(() => nodesOf(text), [text])}</div>`;
