// Token probabilities: answers as a row of tinted tokens, and the card that shows the alternatives of one of them.

import { h } from "./dom.js";

const LEVELS = [0.8, 0.5, 0.25, 0.1, 0.03]; // a token less likely than the n-th is tinted n + 1 deep

/** The tokens of a stream's event as {text, logprob, top: [[text, logprob]]}, for both interfaces. */
export function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map(({ token, logprob, top_logprobs: top }) => ({
      text: token,
      logprob,
      top: (top ?? []).map((other) => [other.token, other.logprob]),
    }));
  }
  return (logprobs.tokens ?? []).map((text, i) => ({
    text,
    logprob: logprobs.token_logprobs?.[i] ?? 0,
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {}),
  }));
}

export function percent(logprob) {
  const value = 100 * Math.exp(logprob);
  if (value >= 99.95) return "100 %";
  if (value >= 10) return `${value.toFixed(1)} %`;
  return value >= 0.01 ? `${value.toFixed(2)} %` : "< 0.01 %";
}

/** White space made visible. */
function visible(text) {
  return text === "" ? "(nothing)" : text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/ /g, "␣").slice(0, 40);
}

function level(logprob) {
  const probability = Math.exp(logprob);
  return LEVELS.filter((limit) => probability < limit).length;
}

/** e to the mean surprise: how many tokens the model was choosing between, so to speak. */
export function perplexity(tokens) {
  return Math.exp(-tokens.reduce((sum, token) => sum + token.logprob, 0) / tokens.length);
}

class Card {
  constructor() {
    this.element = h("div", { class: "card", id: "token-card", role: "status", hidden: true });
    document.body.append(this.element);
    addEventListener("scroll", () => this.hide(), { capture: true, passive: true });
  }

  show(span, token) {
    const top = token.top.some(([text]) => text === token.text) ? token.top : [...token.top, [token.text, token.logprob]];
    const rows = [...top].sort((a, b) => b[1] - a[1]).map(([text, logprob]) => this.row(text, logprob, text === token.text));
    const title = h("p", {}, h("code", {}, visible(token.text)), h("strong", {}, percent(token.logprob)));
    this.element.replaceChildren(title, h("ol", {}, ...rows));
    this.element.hidden = false;
    this.place(span.getClientRects()[0] ?? span.getBoundingClientRect());
  }

  row(text, logprob, chosen) {
    const bar = h("span", { class: "bar" });
    bar.style.inlineSize = `${100 * Math.exp(logprob)}%`;
    return h(
      "li",
      { class: chosen ? "chosen" : null },
      h("code", {}, visible(text)),
      h("span", { class: "track" }, bar),
      h("span", { class: "number" }, percent(logprob)),
    );
  }

  place(box) {
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.max(8, Math.min(box.left, innerWidth - width - 8));
    const below = box.bottom + 6;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${below + height > innerHeight - 8 ? Math.max(8, box.top - height - 6) : below}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}

let card = null;
const theCard = () => (card ??= new Card());

/** One answer's tokens. They can be walked with the arrow keys. */
export class TokenView {
  constructor(label) {
    this.tokens = [];
    this.at = -1;
    this.element = h("div", {
      class: "tokens",
      tabindex: "0",
      role: "group",
      "aria-label": `${label}: ${"probability of each token. The arrow keys go from token to token."}`,
      onpointerover: (event) => this.show(this.indexOf(event.target)),
      onpointerleave: () => this.show(-1),
      onclick: (event) => this.show(this.indexOf(event.target)),
      onblur: () => this.show(-1),
      onkeydown: (event) => this.key(event),
    });
  }

  add(tokens) {
    const spans = tokens.map((token) => {
      const breaks = token.text.includes("\n");
      return h("span", { class: `token surprise-${level(token.logprob)}${breaks ? " breaks" : ""}` }, token.text);
    });
    this.tokens.push(...tokens);
    this.element.append(...spans);
  }

  indexOf(target) {
    return target === this.element ? -1 : Array.prototype.indexOf.call(this.element.children, target);
  }

  show(index) {
    this.element.children[this.at]?.classList.remove("at");
    this.at = index;
    const span = this.element.children[index];
    if (!span) return theCard().hide();
    span.classList.add("at");
    return theCard().show(span, this.tokens[index]);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(this.tokens.length - 1, this.at + step)));
  }
}
