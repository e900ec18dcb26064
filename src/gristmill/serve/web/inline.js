// Bold, italics, code and links of one paragraph, fed in pieces of any size. What can no longer change is appended once;
// the undecided end is drawn as a guess and replaced. A span reaches LIMIT characters, so the work stays linear.

const LIMIT = 2000;
const LONGEST_RUN = 20; // of backticks that open code
const SPECIAL = /[*_`~[!\\]|https?:\/\//g;
const SPECIAL_IN_LINK = /[*_`~\\]/g;
const STOPS = { "*": /[*`]/g, _: /[_`]/g, "~": /[~`]/g };
const LINK = /^!?\[([^[\]\n]{0,500})\]\([ \t]{0,9}<?([^\s()<>`]{0,1500}(?:\([^\s()<>`]{0,500}\)[^\s()<>`]{0,500}){0,4})>?(?:[ \t]{1,9}"[^"\n`]{0,500}")?[ \t]{0,9}\)/;
const LINK_BEGUN = /^!?(?:\[[^[\]\n]{0,500}(?:\](?:\([^\n]{0,1900})?)?)?$/;
const URL_TEXT = /^https?:\/\/[^\s<>"`*]{1,1900}/;
const URL_BEGUN = /(?:^|[^A-Za-z0-9])(h|ht|htt|https?|https?:|https?:\/)$/;
const ELEMENTS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "del" };
const WORD = /[\p{L}\p{N}_]/u;
const SPACE = /\s/;

/** A link around `parts`, or null where it leads anywhere but to http and https. */
function link(url, parts) {
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
  append(anchor, parts);
  return anchor;
}

function wrap(name, text, inLink) {
  const element = document.createElement(name);
  append(element, parse(text, true, "", inLink).parts);
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

/**
 * Where closing marks stand; those in code are none. It remembers the next one of each kind, so that all searches together
 * pass the text once.
 */
class Closers {
  constructor(text, final) {
    this.text = text;
    this.final = final;
    this.next = new Map();
    this.pairs = null;
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
    const stops = STOPS[mark[0]];
    let at = from;
    for (;;) {
      stops.lastIndex = at;
      const hit = stops.exec(text);
      if (!hit) return -1;
      if (hit[0] === "`") {
        const code = this.codeAt(hit.index);
        if (!code) return -1;
        at = code.end;
      } else {
        at = hit.index;
        let end = at + 1;
        while (text[end] === mark[0]) end += 1;
        if (end === text.length && !final) return -1;
        if (this.closes(mark, at, end)) return end - mark.length;
        at = end;
      }
    }
  }

  /** What the backticks at `at` are: code {from, close, end}, plain characters {end}, or null while that is undecided. */
  codeAt(at) {
    const { text, final } = this;
    this.pairs ??= this.pairBackticks();
    let from = at + 1;
    while (text[from] === "`") from += 1;
    if (from - at > LONGEST_RUN || text[at - 1] === "\\") return { end: from };
    if (from === text.length && !final) return null;
    const close = this.pairs.get(at);
    if (close === undefined) return !final && text.length - at <= LIMIT ? null : { end: from };
    return close - at <= LIMIT ? { from, close, end: close + from - at } : { end: from };
  }

  /** For each run of backticks, where the next one of its length begins. */
  pairBackticks() {
    const { text, final } = this;
    const pairs = new Map();
    const last = new Map();
    for (const { 0: run, index } of text.matchAll(/`+/g)) {
      if (!final && index + run.length === text.length) break;
      if (last.has(run.length)) pairs.set(last.get(run.length), index);
      last.set(run.length, index);
    }
    return pairs;
  }

  closes(mark, start, end) {
    const { text } = this;
    const run = end - start;
    if (start === 0 || SPACE.test(text[start - 1]) || text[start - 1] === "\\") return false;
    if (mark[0] === "_" && end < text.length && WORD.test(text[end])) return false;
    return mark.length === 2 ? run >= 2 : run === 1 || run === 3;
  }
}

// What stands at a special character: {end, part} is decided, {end} alone is plain text up to there, {guess} must wait.
function emphasis(text, at, final, closers, before, inLink) {
  const char = text[at];
  let run = 1;
  while (run < 3 && text[at + run] === char) run += 1;
  if (at + run === text.length && !final) return { guess: [""] };
  const mark = run >= 2 ? char + char : char;
  const from = at + mark.length;
  const opens =
    mark in ELEMENTS && from < text.length && !SPACE.test(text[from]) && !(char === "_" && before && WORD.test(before));
  if (!opens) return { end: at + run };
  const close = closers.find(mark, text[from] === "`" ? from : from + 1);
  if (close > from && close - at <= LIMIT) {
    return { end: close + mark.length, part: wrap(ELEMENTS[mark], text.slice(from, close), inLink) };
  }
  // Backticks before LIMIT may wait for their end until twice as far.
  if (close < 0 && !final && text.length - at <= 2 * LIMIT) return { guess: [wrap(ELEMENTS[mark], text.slice(from), inLink)] };
  return { end: from };
}

function backticks(text, at, final, closers, before) {
  let from = at + 1;
  while (text[from] === "`") from += 1;
  if (before === "`") return { end: from };
  const code = closers.codeAt(at);
  if (!code) return { guess: [from === text.length ? "" : codeSpan(text.slice(from))] };
  return code.close === undefined ? code : { end: code.end, part: codeSpan(text.slice(code.from, code.close)) };
}

/** Whether code in a link's label also ends in it (else the code goes before the link); null while that is undecided. */
function codeEnds(text, from, to, closers) {
  for (let at = text.indexOf("`", from); at >= 0 && at < to; at = text.indexOf("`", at)) {
    const code = closers.codeAt(at);
    if (!code) return null;
    if (code.end > to) return false;
    at = code.end;
  }
  return true;
}

function bracket(text, at, final, closers) {
  const rest = text.slice(at, at + 2 * LIMIT);
  const found = LINK.exec(rest);
  if (found) {
    const [whole, label, url] = found;
    const from = at + whole.indexOf("[") + 1;
    const ends = codeEnds(text, from, from + label.length, closers);
    if (ends === null) return { guess: parse(label, true, "", true).parts };
    if (!ends) return { end: from };
    const anchor = link(url, label ? parse(label, true, "", true).parts : [url]);
    return anchor ? { end: at + whole.length, part: anchor } : { end: at + whole.length };
  }
  if (!final && text.length - at <= LIMIT && LINK_BEGUN.test(rest)) {
    return { guess: parse(rest.replace(/^!?\[/, "").replace(/\].*$/s, ""), true, "", true).parts };
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
  const anchor = link(url, [url]);
  return anchor ? { end: at + url.length, part: anchor } : { end: at + url.length };
}

function special(text, at, final, closers, before, inLink) {
  switch (text[at]) {
    case "`":
      return backticks(text, at, final, closers, before);
    case "[":
      return bracket(text, at, final, closers);
    case "!":
      if (at + 1 === text.length && !final) return { guess: ["!"] };
      return text[at + 1] === "[" ? bracket(text, at, final, closers) : { end: at + 1 };
    case "h":
      return bareUrl(text, at, final, before);
    case "\\":
      if (at + 1 === text.length && !final) return { guess: [""] };
      return "*_`~#|>".includes(text[at + 1] || " ") ? { end: at + 2, part: text[at + 1] } : { end: at + 1 };
    default:
      return emphasis(text, at, final, closers, before, inLink);
  }
}

/** {parts, rest, guess}: what is settled, the index where the undecided end begins, and how that end looks for now. */
function parse(text, final, before = "", inLink = false) {
  const closers = new Closers(text, final);
  const marks = inLink ? SPECIAL_IN_LINK : SPECIAL;
  const parts = [];
  let at = 0;
  for (;;) {
    marks.lastIndex = at;
    const hit = marks.exec(text);
    if (!hit) break;
    const start = hit.index;
    if (start > at) parts.push(text.slice(at, start));
    const found = special(text, start, final, closers, start ? text[start - 1] : before, inLink);
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
