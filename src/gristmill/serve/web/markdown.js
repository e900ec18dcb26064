// Markdown blocks, fed in pieces of any size: each line is looked at once, and only the open block is ever drawn again.
// It builds elements and text nodes, never HTML from a string. What runs inside a paragraph is inline.js's.

import { copyButton, h } from "./dom.js";
import { Inline } from "./inline.js";

const HEADING = /^(#{1,6})[ \t]+/;
const RULE = /^([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const ITEM = /^([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const FENCE = /^(`{3,}|~{3,})[ \t]*([^`]*)$/;
const TABLE_RULE = /^\|[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const UNDECIDED = /^(?:[-*+_#>|`~ \t]*|\d{1,9}[.)]?[ \t]*)$/;
const HEAD = 600; // a line's first characters, which decide what it is
const DEEPEST = 12;

function indentOf(line) {
  let width = 0;
  let at = 0;
  for (; line[at] === " " || line[at] === "\t"; at += 1) width += line[at] === "\t" ? 4 : 1;
  return [width, at];
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** What a table's second line says of each column: a class, or null. */
function alignments(line) {
  return cells(line).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
}

function row(tag, line, columns) {
  const tr = h("tr");
  const texts = cells(line);
  columns.forEach((side, i) => {
    const cell = h(tag, { class: side });
    const inline = new Inline(cell);
    inline.push(texts[i] ?? "");
    inline.flush(true);
    tr.append(cell);
  });
  return tr;
}

export class Markdown {
  constructor(root, depth = 0) {
    this.root = root;
    this.depth = depth;
    this.held = ""; // read, but not decided
    this.fresh = true; // at the start of a line, or of what stands in it after the marks of list items
    this.column = 0; // where that is
    this.items = []; // open list items, outermost first: {indent, ordered, list, item}
    this.inline = null; // the open paragraph or heading
    this.code = null; // the open fence: {mark, indent, text, empty}
    this.quote = null; // the open quotation, a Markdown of its own
    this.table = null; // {body, columns}, or {head, indent} while one line with bars is held back
    this.heading = false; // the open inline is a heading: it ends with its line
    this.sink = null; // what takes the rest of the line
  }

  push(text) {
    const all = this.held + text;
    let at = 0;
    while (at < all.length) {
      if (this.fresh) {
        const { column } = this;
        const next = this.begin(all, at);
        if (next < 0) break;
        at = next;
        this.fresh = this.column > column; // a list item: what it begins with is decided like a line
        if (this.fresh) continue;
      }
      const newline = all.indexOf("\n", at);
      const end = newline < 0 ? all.length : newline;
      if (end > at) this.sink?.push(all.slice(at, end));
      at = end;
      if (newline < 0) break;
      this.endLine();
      at += 1;
    }
    this.held = all.slice(at);
    this.inline?.flush();
  }

  /** No more will come. */
  end() {
    if (this.held || !this.fresh) this.push("\n");
    this.close();
  }

  endLine() {
    if (this.quote && this.sink === this.quote) this.quote.push("\n");
    if (this.heading) this.closeInline();
    this.sink = null;
    this.fresh = true;
    this.column = 0;
  }

  closeInline() {
    this.settleTable();
    this.inline?.flush(true);
    this.inline = null;
    this.heading = false;
  }

  close() {
    this.closeInline();
    this.quote?.end();
    this.quote = null;
    this.code = null;
    this.table = null;
  }

  get container() {
    return this.items.length ? this.items[this.items.length - 1].item : this.root;
  }

  /** Decides what the line at `at` is and opens it: where its text begins, or -1 while more must be read. */
  begin(all, at) {
    const newline = all.indexOf("\n", at);
    const whole = newline >= 0 && newline - at < HEAD; // what only a whole line can be, a longer one is not
    const line = all.slice(at, Math.min(newline >= 0 ? newline : all.length, at + HEAD));
    if (this.code) return this.beginCode(line, whole, at);
    const [width, skip] = indentOf(line);
    const indent = this.column + width;
    const rest = line.slice(skip);
    const waits = UNDECIDED.test(rest) || rest.startsWith("|") || rest.startsWith("```") || rest.startsWith("~~~");
    if (!whole && waits && line.length < HEAD && !(rest.startsWith(">") && rest.length > 1)) return -1;
    if (whole && !rest.trim() && !this.column) return this.blank(at + line.length);
    const start = at + skip;
    return (
      this.tryQuote(rest, indent, start) ??
      this.tryFence(rest, indent, start, whole) ??
      this.tryHeading(rest, indent, start) ??
      this.tryRule(rest, indent, start, whole) ??
      this.tryItem(rest, indent, start) ??
      this.tryTable(rest, indent, start, whole) ??
      this.paragraph(indent, start)
    );
  }

  blank(end) {
    this.close();
    return end;
  }

  /** Leaves the list items that a line this far to the left is not part of; returns the last one left. */
  leave(indent) {
    let left = null;
    while (this.items.length && (indent < this.items[this.items.length - 1].indent + 2 || this.items.length > DEEPEST)) {
      left = this.items.pop();
    }
    return left;
  }

  tryQuote(rest, indent, start) {
    if (!rest.startsWith(">") || this.depth >= DEEPEST) return null;
    if (!this.quote) {
      this.close();
      this.leave(indent);
      const block = h("blockquote");
      this.container.append(block);
      this.quote = new Markdown(block, this.depth + 1);
    }
    this.sink = this.quote;
    return start + (rest[1] === " " ? 2 : 1);
  }

  tryFence(rest, indent, start, whole) {
    const found = whole ? FENCE.exec(rest) : null;
    if (!found) return null;
    this.close();
    this.leave(indent);
    const text = document.createTextNode("");
    const language = found[2].trim().split(/\s/)[0].slice(0, 30);
    this.container.append(
      h(
        "figure",
        { class: "code" },
        h("figcaption", {}, h("span", {}, language || "text"), copyButton(() => text.data)),
        h("pre", { tabindex: "0" }, h("code", {}, text)),
      ),
    );
    this.code = { mark: found[1], indent, text, empty: true };
    return start + rest.length;
  }

  beginCode(line, whole, at) {
    const { code } = this;
    const [indent, skip] = indentOf(line);
    const rest = line.slice(skip).trimEnd();
    const mark = code.mark[0];
    const maybe = rest === mark.repeat(rest.length);
    if (!whole && maybe && line.length < HEAD) return -1;
    if (whole && maybe && rest.length >= code.mark.length) {
      this.code = null;
      return at + line.length;
    }
    if (!code.empty) code.text.appendData("\n");
    code.empty = false;
    this.sink = { push: (text) => code.text.appendData(text) };
    return at + Math.min(skip, code.indent, indent);
  }

  tryHeading(rest, indent, start) {
    const found = HEADING.exec(rest);
    if (!found) return null;
    this.close();
    this.leave(indent);
    // The page's own headings are h1 and h2.
    this.openInline(h(`h${Math.min(found[1].length + 2, 6)}`, { class: `level-${found[1].length}` }));
    this.heading = true;
    return start + found[0].length;
  }

  tryRule(rest, indent, start, whole) {
    if (!whole || !RULE.test(rest)) return null;
    this.close();
    this.leave(indent);
    this.container.append(h("hr"));
    return start + rest.length;
  }

  tryItem(rest, indent, start) {
    const found = this.column && this.items.length >= DEEPEST ? null : ITEM.exec(rest);
    if (!found) return null;
    this.close();
    const left = this.leave(indent);
    const number = parseInt(found[1], 10);
    const ordered = !Number.isNaN(number);
    let list = left && left.ordered === ordered ? left.list : null;
    if (!list) {
      list = ordered ? h("ol", { start: number === 1 ? null : number }) : h("ul");
      this.container.append(list);
    }
    const item = h("li");
    list.append(item);
    this.items.push({ indent, ordered, list, item });
    this.column = indent + found[1].length + (indentOf(found[0].slice(found[1].length))[0] || 1);
    return start + found[0].length;
  }

  tryTable(rest, indent, start, whole) {
    if (!whole || !rest.startsWith("|")) return null;
    if (this.table?.body) {
      this.table.body.append(row("td", rest, this.table.columns));
      return start + rest.length;
    }
    if (this.table && TABLE_RULE.test(rest)) {
      const { head } = this.table;
      const columns = alignments(rest);
      const body = h("tbody");
      this.table = null;
      this.closeInline();
      this.leave(indent);
      const table = h("table", {}, h("thead", {}, row("th", head, columns)), body);
      this.container.append(h("div", { class: "table", tabindex: "0" }, table));
      this.table = { body, columns };
      return start + rest.length;
    }
    this.settleTable();
    if (this.quote) this.close();
    this.table = { head: rest, indent };
    return start + rest.length;
  }

  /** A line with bars that no table's rule followed is text, like any other line. */
  settleTable() {
    const { head, indent } = this.table ?? {};
    this.table = null;
    if (head === undefined) return;
    this.paragraph(indent, 0);
    this.inline.push(head);
  }

  paragraph(indent, start) {
    this.settleTable();
    if (this.quote) this.close();
    if (this.inline) {
      this.inline.push("\n");
      this.sink = this.inline;
      return start;
    }
    this.leave(indent);
    this.openInline(h("p"));
    return start;
  }

  openInline(element) {
    this.container.append(element);
    this.inline = new Inline(element);
    this.sink = this.inline;
  }
}
