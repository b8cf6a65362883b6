// Markdown as nodes: made from a lexer's tokens, never through HTML. What is no Markdown stays as typed.
import { Lexer } from "./marked.js";
import { h } from "./preact.js";

const OPTIONS = { gfm: true, breaks: true };
const INLINE_MOST = 2000; // characters; the lexer takes a second for some longer runs of text
const SAFE = /^(https?:|mailto:)/i;
const PLAIN = { paragraph: "p", strong: "strong", em: "em", del: "del", blockquote: "blockquote" };

function link({ href, tokens }) {
  if (!SAFE.test(href)) return h("span", {}, all(tokens));
  return h("a", { href, rel: "noopener noreferrer", target: "_blank" }, all(tokens));
}

const row = (tag, cells) =>
  h(
    "tr",
    {},
    cells.map((cell) => h(tag, {}, all(cell.tokens))),
  );

const table = ({ header, rows }) =>
  h("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": "Table" }, [
    h("table", {}, [
      h("thead", {}, row("th", header)),
      h(
        "tbody",
        {},
        rows.map((cells) => row("td", cells)),
      ),
    ]),
  ]);

function item({ task, checked, tokens }) {
  const box =
    task && h("input", { type: "checkbox", checked, disabled: true, "aria-label": "Done" });
  return h("li", { style: task && { listStyle: "none" } }, [box, all(tokens)]);
}

const list = ({ ordered, start, items }) =>
  h(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : undefined }, items.map(item));

const NODES = {
  br: () => h("br"),
  hr: () => h("hr"),
  space: () => null,
  checkbox: () => null, // which the item shows
  code: ({ text }) => h("pre", { tabIndex: 0 }, h("code", {}, text)),
  codespan: ({ text }) => h("code", {}, text),
  heading: ({ depth, tokens }) => h(`h${Math.min(depth + 3, 6)}`, {}, all(tokens)),
  link,
  list,
  table,
  text: ({ text, tokens }) => (tokens ? all(tokens) : text),
  escape: ({ text }) => text,
};

function node(token) {
  const make = NODES[token.type];
  if (make) return make(token);
  const tag = PLAIN[token.type];
  return tag ? h(tag, {}, all(token.tokens)) : token.raw;
}

const all = (tokens) => tokens.map(node);

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

export function Markdown({ text }) {
  let nodes;
  try {
    nodes = all(tokensOf(text));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // thousands of levels deep
    nodes = h("p", {}, text);
  }
  return h("div", { class: "text" }, nodes);
}
