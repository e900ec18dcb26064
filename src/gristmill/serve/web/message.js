// How one message looks: a person's text with its editor, an answer with reasoning, probabilities, figures and errors.
// It draws a node of a conversation and calls the actions it is given; it neither sends nor stores anything.

import { copyButton, h, iconButton } from "./dom.js";
import { Markdown } from "./markdown.js";
import { perplexity, TokenView } from "./tokens.js";

const seconds = (ms) => `${(ms / 1000).toFixed(ms < 1000 ? 2 : ms < 10_000 ? 1 : 0)} s`;
export const count = (n) => n.toLocaleString("en-US");
export const rate = (perSecond) => (perSecond < 100 ? perSecond.toFixed(1) : count(Math.round(perSecond)));

function quiet(label, title, onclick) {
  return h("button", { type: "button", class: "quiet", title, onclick }, label);
}

/** "‹ 2 / 3 ›" where a message has other versions. */
function versions(siblings, node, go) {
  if (siblings.length < 2) return "";
  const at = siblings.indexOf(node);
  return h(
    "span",
    { class: "versions", role: "group", "aria-label": "Versions" },
    iconButton("left", "Earlier version", () => go(siblings[at - 1]), { disabled: at === 0 }),
    h("span", {}, `${at + 1} / ${siblings.length}`),
    iconButton("right", "Later version", () => go(siblings[at + 1]), { disabled: at === siblings.length - 1 }),
  );
}

export class PersonView {
  constructor(node, siblings, actions) {
    Object.assign(this, { node, siblings, actions });
    this.text = h("div", { class: "said" }, node.text);
    this.footer = h(
      "footer",
      {},
      versions(siblings, node, actions.go),
      quiet("Edit", "Change this message and ask again (Up)", () => this.edit()),
      copyButton(() => node.text),
    );
    this.element = h("article", { class: "person", "aria-label": "You" }, this.text, this.footer);
  }

  edit() {
    if (this.editor) return;
    const area = h("textarea", { class: "editor", "aria-label": "Edit the message", ".value": this.node.text, rows: "1" });
    const leave = () => {
      this.editor.replaceWith(this.text, this.footer);
      this.editor = null;
      this.actions.left();
    };
    const send = () => {
      const text = area.value;
      if (text.trim()) this.actions.edit(this.node, text);
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.editor = h(
      "div",
      { class: "editing" },
      area,
      h("div", { class: "row" }, h("button", { type: "button", class: "plain", onclick: leave }, "Cancel"), h("button", { type: "button", class: "main", onclick: send }, "Ask again")),
    );
    this.footer.remove();
    this.text.replaceWith(this.editor);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

export class AnswerView {
  /** `plain` draws the text as it is (a story), `probabilities` its tokens where they are known. */
  constructor(node, siblings, actions, { plain, probabilities, live }) {
    Object.assign(this, { node, siblings, actions, plain, probabilities, live });
    this.thinking = null;
    this.calls = h("div", { class: "calls" });
    this.text = h("div", { class: plain ? "prose story" : "prose" });
    this.trouble = h("div", { class: "trouble" });
    this.footer = h("footer", {});
    this.element = h(
      "article",
      { class: "answer", "aria-label": "Answer", "aria-busy": live ? "true" : null },
      this.text,
      this.calls,
      this.trouble,
      this.footer,
    );
    this.asTokens = probabilities && Boolean(node.tokens?.length || (live && node.probed));
    this.body = this.asTokens ? new TokenView("Answer") : this.writer(this.text);
    if (this.asTokens) this.text.replaceChildren(this.body.element);
    this.add({ text: node.text, reasoning: node.reasoning, tokens: node.tokens, thoughts: node.thoughts });
    if (!live) this.finish();
  }

  writer(element) {
    if (!this.plain) return new Markdown(element);
    return { push: (text) => element.append(text), end: () => {} };
  }

  openThinking() {
    const body = h("div", { class: "prose thoughts" });
    this.summary = h("summary", {}, this.live ? "Thinking…" : this.thoughtLabel());
    this.thinking = h("details", { class: this.live ? "thinking going" : "thinking" }, this.summary, body);
    this.element.prepend(this.thinking);
    this.thoughtsAsTokens = this.asTokens && (this.live || Boolean(this.node.thoughts?.length));
    this.thoughts = this.thoughtsAsTokens ? new TokenView("Reasoning") : this.writer(body);
    if (this.thoughtsAsTokens) body.append(this.thoughts.element);
  }

  thoughtLabel() {
    const { thoughtMs } = this.node.stats ?? {};
    if (!thoughtMs) return "Reasoning";
    return thoughtMs < 1000 ? "Thought for a moment" : `Thought for ${seconds(thoughtMs)}`;
  }

  thought() {
    this.thinking.classList.remove("going");
    this.summary.textContent = this.thoughtLabel();
  }

  /** Draws what has come: {text, reasoning, tokens, thoughts}, each only what is new. */
  add({ text = "", reasoning = "", tokens = [], thoughts = [] }) {
    if ((reasoning || thoughts.length) && !this.thinking) this.openThinking();
    if (this.thoughtsAsTokens) this.thoughts.add(thoughts);
    else if (reasoning) this.thoughts.push(reasoning);
    if (this.asTokens) this.body.add(tokens);
    else if (text) this.body.push(text);
    if ((text || tokens.length) && this.thinking) this.thought();
  }

  /** The answer has ended, well or not. */
  finish() {
    this.live = false;
    this.element.removeAttribute("aria-busy");
    if (this.asTokens && !this.node.tokens?.length) this.withoutTokens();
    if (!this.asTokens) this.body.end();
    if (this.thinking) {
      if (!this.thoughtsAsTokens) this.thoughts.end();
      this.thought();
    }
    this.drawCalls();
    this.drawTrouble();
    this.drawFooter();
  }

  /** The server was asked for probabilities and sent none. */
  withoutTokens() {
    this.asTokens = false;
    this.text.replaceChildren();
    this.body = this.writer(this.text);
    this.body.push(this.node.text);
  }

  drawCalls() {
    const calls = this.node.calls ?? [];
    this.calls.replaceChildren(
      ...calls.map((call) => h("figure", { class: "code" }, h("figcaption", {}, h("span", {}, `calls ${call.name}`)), h("pre", { tabindex: "0" }, h("code", {}, call.arguments)))),
    );
  }

  drawTrouble() {
    const { node, actions } = this;
    const notes = [];
    if (node.error) {
      const again = h("button", { type: "button", class: "plain", onclick: () => actions.again(node) }, "Try again");
      notes.push(h("div", { class: "error", role: "alert" }, h("p", {}, node.error), again));
    }
    if (node.finish === "length") notes.push(h("p", { class: "note" }, "The answer ends here because it reached the token limit."));
    if (node.stopped) notes.push(h("p", { class: "note" }, "Stopped."));
    if (!node.error && !node.stopped && !node.text && !node.calls?.length && !node.tokens?.length) {
      notes.push(h("p", { class: "note" }, "The model ended without an answer."));
    }
    if (this.probabilities && !this.asTokens) {
      notes.push(h("p", { class: "note" }, "No probabilities were kept for this answer; regenerate it to see them."));
    }
    this.trouble.replaceChildren(...notes);
  }

  drawFooter() {
    const { node, actions } = this;
    this.footer.replaceChildren(
      versions(this.siblings, node, actions.go),
      quiet("Regenerate", "Ask again for this answer (Alt+R)", () => actions.again(node)),
      copyButton(() => node.text),
      h("span", { class: "stats" }, ...this.statistics()),
    );
  }

  statistics() {
    const { stats = {}, tokens = [] } = this.node;
    const parts = [];
    const part = (text, title) => parts.push(h("span", { title }, text));
    if (stats.rate) part(`${rate(stats.rate)} tok/s`, "Tokens a second, after the first");
    if (stats.firstMs) part(`first in ${seconds(stats.firstMs)}`, "Time to the first token");
    if (stats.completion) part(`${stats.estimated ? "about " : ""}${count(stats.completion)} ${stats.completion === 1 ? "token" : "tokens"}`, "Tokens of this answer, reasoning included");
    if (stats.prompt) {
      const cached = stats.cached ? `, ${count(stats.cached)} from cache` : "";
      part(`${count(stats.prompt)} read${cached}`, "Tokens of the prompt, and how many the cache already held");
    }
    if (this.asTokens && tokens.length) part(`perplexity ${perplexity(tokens).toFixed(2)}`, "How surprising the answer is: 1 is certain");
    return parts;
  }
}
