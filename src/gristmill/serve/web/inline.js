// Bold, italics, code and links of one paragraph, fed in pieces of any size. What can no longer change is appended once;
// the undecided end is drawn as a guess and replaced. A span reaches LIMIT characters, so the work stays linear.

const LIMIT = 2000;
const LONGEST_RUN = 20; // of backticks that open code
const SPECIAL = /[*_`~[!\\]|https?:\/\//g;
const LINK = /^!?\[([^[\]\n]{0,500})\]\([ \t]{0,9}<?([^\s()<>]{0,1500}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500}){0,4})>?(?:[ \t]{1,9}"[^"\n]{0,500}")?[ \t]{0,9}\)/;
const LINK_BEGUN = /^!?(?:\[[^[\]\n]{0,500}(?:\](?:\([^\n]{0,1900})?)?)?$/;
const URL_TEXT = /^https?:\/\/[^\s<>"`*]{1,1900}/;
const URL_BEGUN = /(?:^|[^A-Za-z0-9])(h|ht|htt|https?|https?:|https?:\/)$/;
const ELEMENTS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "del" };
const WORD = /[\p{L}\p{N}_]/u;
const SPACE = /\s/;

function link(url, label) {
  let parsed;
  try {
    parsed = new URL(url);
  } catch {
    return null;
  }
  if (parsed.protocol !== "http:" && parsed.protocol !== "https:") return null;
  const anchor = document.createElement("a");
  anchor.href = parsed.href;
  anchor.rel = "noopener noreferrer";
  anchor.target = "_blank";
  anchor.title = parsed.href;
  anchor.textContent = label || url;
  return anchor;
}

function wrap(name, text) {
  const element = document.createElement(name);
  append(element, parse(text, true).parts);
  return element;
}

function codeSpan(text) {
  const code = document.createElement("code");
  code.textContent = text.length > 2 && text.startsWith(" ") && text.endsWith(" ") ? text.slice(1, -1) : text;
  return code;
}

/** Strings and elements after what is there; neighbouring text becomes one node. */
function append(parent, parts) {
  let text = "";
  const addText = () => {
    if (parent.lastChild?.nodeType === Node.TEXT_NODE) parent.lastChild.appendData(text);
    else if (text) parent.append(text);
    text = "";
  };
  for (const part of parts) {
    if (typeof part === "string") {
      text += part; // a text node that grows by single words would be copied for each of them
    } else {
      addText();
      parent.append(part);
    }
  }
  addText();
}

/** Where closing marks stand. It remembers the next one of each kind, so that all searches together pass the text once. */
class Closers {
  constructor(text, final) {
    this.text = text;
    this.final = final;
    this.next = new Map();
  }

  /** The first closer of `mark` at or after `from`, or -1. */
  find(mark, from) {
    let at = this.next.get(mark);
    if (at === undefined || (at !== -1 && at < from)) {
      at = this.search(mark, from);
      this.next.set(mark, at);
    }
    return at;
  }

  search(mark, from) {
    const { text, final } = this;
    const char = mark[0];
    let at = text.indexOf(char, from);
    while (at >= 0) {
      let end = at + 1;
      while (text[end] === char) end += 1;
      if (end === text.length && !final) return -1;
      if (this.closes(mark, at, end)) return end - mark.length;
      at = text.indexOf(char, end);
    }
    return -1;
  }

  closes(mark, start, end) {
    const { text } = this;
    const run = end - start;
    if (mark[0] === "`") return run === mark.length;
    if (start === 0 || SPACE.test(text[start - 1]) || text[start - 1] === "\\") return false;
    if (mark[0] === "_" && end < text.length && WORD.test(text[end])) return false;
    return mark.length === 2 ? run >= 2 : run === 1 || run === 3;
  }
}

// What stands at a special character: {end, part} is decided, {end} alone is plain text up to there, {guess} must wait.
function emphasis(text, at, final, closers, before) {
  const char = text[at];
  let run = 1;
  while (run < 3 && text[at + run] === char) run += 1;
  if (at + run === text.length && !final) return { guess: [""] };
  const mark = run >= 2 ? char + char : char;
  const from = at + mark.length;
  const opens =
    mark in ELEMENTS && from < text.length && !SPACE.test(text[from]) && !(char === "_" && before && WORD.test(before));
  if (!opens) return { end: at + run };
  const close = closers.find(mark, from + 1);
  if (close > from && close - at <= LIMIT) {
    return { end: close + mark.length, part: wrap(ELEMENTS[mark], text.slice(from, close)) };
  }
  if (close < 0 && !final && text.length - at <= LIMIT) return { guess: [wrap(ELEMENTS[mark], text.slice(from))] };
  return { end: from };
}

function backticks(text, at, final, closers, before) {
  let from = at + 1;
  while (text[from] === "`") from += 1;
  if (before === "`" || from - at > LONGEST_RUN) return { end: from };
  if (from === text.length && !final) return { guess: [""] };
  const mark = text.slice(at, from);
  const close = closers.find(mark, from);
  if (close >= 0 && close - at <= LIMIT) return { end: close + mark.length, part: codeSpan(text.slice(from, close)) };
  if (close < 0 && !final && text.length - at <= LIMIT) return { guess: [codeSpan(text.slice(from))] };
  return { end: from };
}

function bracket(text, at, final) {
  const rest = text.slice(at, at + 2 * LIMIT);
  const found = LINK.exec(rest);
  if (found) {
    const anchor = link(found[2], found[1]);
    return anchor ? { end: at + found[0].length, part: anchor } : { end: at + found[0].length };
  }
  if (!final && text.length - at <= LIMIT && LINK_BEGUN.test(rest)) {
    return { guess: [rest.replace(/^!?\[/, "").replace(/\].*$/s, "")] };
  }
  return { end: at + 1 };
}

function bareUrl(text, at, final, before) {
  const found = URL_TEXT.exec(text.slice(at, at + LIMIT));
  if (!found && !final && text.length - at <= "https://".length) return { guess: [text.slice(at)] };
  if (!found || (before && WORD.test(before))) return { end: at + 4 };
  if (!final && at + found[0].length === text.length) return { guess: [found[0]] };
  let url = found[0].replace(/[.,;:!?'"\]}]{1,9}$/, "");
  if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
  const anchor = link(url, url);
  return anchor ? { end: at + url.length, part: anchor } : { end: at + url.length };
}

function special(text, at, final, closers, before) {
  switch (text[at]) {
    case "`":
      return backticks(text, at, final, closers, before);
    case "[":
      return bracket(text, at, final);
    case "!":
      if (at + 1 === text.length && !final) return { guess: ["!"] };
      return text[at + 1] === "[" ? bracket(text, at, final) : { end: at + 1 };
    case "h":
      return bareUrl(text, at, final, before);
    case "\\":
      if (at + 1 === text.length && !final) return { guess: [""] };
      return "*_`~#|>".includes(text[at + 1] || " ") ? { end: at + 2, part: text[at + 1] } : { end: at + 1 };
    default:
      return emphasis(text, at, final, closers, before);
  }
}

/** {parts, rest, guess}: what is settled, the index where the undecided end begins, and how that end looks for now. */
function parse(text, final, before = "") {
  const closers = new Closers(text, final);
  const parts = [];
  let at = 0;
  for (;;) {
    SPECIAL.lastIndex = at;
    const hit = SPECIAL.exec(text);
    if (!hit) break;
    const start = hit.index;
    if (start > at) parts.push(text.slice(at, start));
    const found = special(text, start, final, closers, start ? text[start - 1] : before);
    if (found.guess) return { parts, rest: start, guess: found.guess };
    parts.push(found.part ?? text.slice(start, found.end));
    at = found.end;
  }
  const begun = final ? null : URL_BEGUN.exec(text.slice(Math.max(at, text.length - 9)));
  const end = begun ? text.length - begun[1].length : text.length;
  parts.push(text.slice(at, end));
  return { parts, rest: end, guess: [text.slice(end)] };
}

export class Inline {
  constructor(parent) {
    this.parent = parent;
    this.pending = "";
    this.before = "";
    this.guessed = [];
  }

  push(text) {
    this.pending += text;
  }

  /** Draws what has come since. After `final` nothing may follow. */
  flush(final = false) {
    for (const node of this.guessed) node.remove();
    const { parts, rest, guess } = parse(this.pending, final, this.before);
    append(this.parent, parts);
    if (rest > 0) this.before = this.pending[rest - 1];
    this.pending = this.pending.slice(rest);
    this.guessed = guess.filter(Boolean).map((part) => (typeof part === "string" ? document.createTextNode(part) : part));
    this.parent.append(...this.guessed);
  }
}
