// Draws Markdown from a lexer's tokens, never through HTML. Anything else stays as typed.
import { get } from "./api.js";
import { shownTask } from "./columns.js";
import { Lexer } from "./marked.js";
import { h, html, useMemo, useRef, useState } from "./preact.js";
import { link } from "./store.js";
import { BOX } from "./texts.js";

const OPTIONS = { gfm: true, breaks: true };
const LEVELS_MOST = 30; // preact can draw a few hundred
const INLINE_MOST = 2000; // characters of a paragraph
const WORK_MOST = 2e6; // of a text, in units of about 20 ns; 50 000 characters of ordinary prose take up to 1e6
const MARKS = /[!-/:-@[-`{-~\n]| {2}/g; // punctuation of ASCII, ends of lines, gaps
const SAFE = /^(https?:|mailto:)/i;
const NUMBER = /(?<![\p{L}\p{N}#&/])#(\d{1,9})(?![\p{L}\p{N}])/u; // of a task

let made = {}; // about the text that is being drawn: its `lines`, and the functions `picture` and `tick`

const all = (tokens) => tokens.map((token) => NODES[token.type]?.(token) ?? token.raw);
const inside = (tag) => (token) => h(tag, {}, all(token.tokens));
const rowNode = (tag, cells) => html`<tr>${cells.map(inside(tag))}</tr>`;

function linkNode({ href, tokens }) {
  if (!SAFE.test(href)) return html`<span>${all(tokens)}</span>`;
  made.isLink = true; // links cannot be nested
  const words = all(tokens);
  made.isLink = false;
  return html`<a href=${href} rel="noopener noreferrer" target="_blank">${words}</a>`;
}

/** A link to a task, with its title as a tooltip. An unknown title is loaded when you hover or focus the link. */
function NumberLink({ number }) {
  const [title, setTitle] = useState(shownTask(number)?.title);
  const show = (task) => setTitle(task.title ?? task.message); // or of a failure
  const look = () => title ?? get(`/tasks/${number}`).then(show, show);
  return html`<a href=${link({ task: number })} ...${{ title }} onPointerEnter=${look} onFocus=${look}>#${number}</a>`;
}

function plainNode(text) {
  if (made.isLink) return text;
  const linkOf = (part, at) => (at % 2 ? html`<${NumberLink} number=${part} />` : part);
  return text.split(NUMBER).map(linkOf);
}

function itemNode({ task, checked, tokens, text, line }) {
  const { tick, lines } = made;
  const set = async ({ target }) => {
    const isDone = target.checked;
    if (!(await tick(line, isDone))) target.checked = !isDone;
  };
  const box = () => html`<label class="box"><input type="checkbox" aria-label=${text.split("\n")[0]}
    checked=${checked} disabled=${!tick || !BOX.test(lines[line])} onChange=${set} /></label>`;
  return html`<li style=${task && { listStyle: "none" }}>${task && box()}${all(tokens)}</li>`;
}

/** Give each item of a list the line of the text in which it begins. */
function locate(tokens, start) {
  let line = start;
  for (const token of tokens) {
    token.line = line;
    locate(token.items ?? token.tokens ?? [], line);
    line += token.raw.split("\n").length - 1;
  }
}

/** The nodes for each type of token; other tokens stay text. */
const NODES = {
  paragraph: inside("p"),
  strong: inside("strong"),
  em: inside("em"),
  del: inside("del"),
  blockquote: inside("blockquote"),
  heading: ({ depth, tokens }) => h(`h${Math.min(depth + made.top, 6)}`, {}, all(tokens)),
  br: () => h("br"),
  hr: () => h("hr"),
  space: () => [],
  checkbox: () => [], // the item shows it
  code: ({ text }) => html`<pre tabindex="0"><code>${text}</code></pre>`,
  codespan: ({ text }) => h("code", {}, text),
  escape: ({ text }) => text,
  text: ({ text, tokens }) => (tokens ? all(tokens) : plainNode(text)),
  link: linkNode,
  image: ({ href, text, raw }) => made.picture?.(href, text) ?? raw,
  list: ({ ordered, start, items }) =>
    html`<${ordered ? "ol" : "ul"} start=${ordered && start !== 1 ? start : undefined}>${items.map(itemNode)}<//>`,
  table: ({ header, rows }) => html`<div tabindex="0" role="group" aria-label="Table">
    <table>
      <thead>${rowNode("th", header)}</thead>
      <tbody>${rows.map((cells) => rowNode("td", cells))}</tbody>
    </table>
  </div>`,
};

/**
 * Raise a RangeError if a text is nested too deeply or takes too long: a short text can take the lexer hours, or all
 * memory. If only a paragraph takes too long, it stays as typed.
 */
class BoundedLexer extends Lexer {
  level = 0;
  work = 0;

  spend(work) {
    this.work += work;
    if (this.work > WORK_MOST) throw new RangeError("Too much Markdown");
  }

  blockTokens(text, ...more) {
    if (this.level === LEVELS_MOST) throw new RangeError("Too many levels of Markdown");
    // In a list's item, the lexer reads from each line to the item's end.
    const times = this.state.top ? 1 : text.split("\n").length;
    this.spend(500 + text.length * times);
    this.level += 1;
    const tokens = super.blockTokens(text, ...more);
    this.level -= 1;
    return tokens;
  }

  /** Called for each paragraph, line of an item, and cell, even for cells that a row lacks. */
  inline(text, ...more) {
    this.spend(500);
    return super.inline(text, ...more);
  }

  inlineTokens(text, tokens = []) {
    // From each mark on, the lexer looks for one that closes it.
    const work = (text.match(MARKS)?.length ?? 0) ** 2;
    if (text.length > INLINE_MOST || this.work + work > WORK_MOST) {
      tokens.push({ type: "text", raw: text, text });
      return tokens;
    }
    this.work += work;
    return super.inlineTokens(text, tokens);
  }
}

function nodesOf(text) {
  try {
    const tokens = new BoundedLexer(OPTIONS).lex(text);
    locate(tokens, 0);
    return all(tokens);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return text;
  }
}

/**
 * A text below a heading of level `top`. `picture(name, words)` draws its pictures. `tick(line, isDone)` sets one of its
 * checkboxes and returns whether that succeeded.
 */
export function Markdown({ text, tick, picture, top = 3 }) {
  const current = useRef(tick);
  current.current = tick;
  const isOpen = Boolean(tick);
  return useMemo(() => {
    const set = isOpen && ((line, isDone) => current.current(line, isDone));
    made = { lines: text.split("\n"), tick: set, picture, top };
    return html`<div class="text">${nodesOf(text)}</div>`;
  }, [text, picture, isOpen]);
}
