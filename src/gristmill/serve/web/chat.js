// The open conversation: what is on the page, and what sending, stopping, editing and asking again do to it.

import { eachFrame, h } from "./dom.js";
import { AnswerView, PersonView } from "./message.js";
import { Run } from "./run.js";

const SAVE_MS = 1500; // how much of a running answer a reload may lose
const NEAR_PX = 60; // this close to the end the view follows the answer

export class Chat {
  /** `settings()` and `model()` are read at each request; `events` are told what the rest of the page must know. */
  constructor({ store, list, scroller, settings, model, events }) {
    Object.assign(this, { store, list, scroller, settings, model, events });
    this.conversation = null;
    this.views = [];
    this.run = null;
    this.waiting = { text: "", reasoning: "", tokens: [], thoughts: [] };
    this.paint = eachFrame(() => this.drawNews());
    this.follows = true;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    addEventListener("pagehide", () => this.run && this.saveRunning());
  }

  get busy() {
    return this.run !== null;
  }

  get plain() {
    const model = this.model();
    const last = this.conversation?.path().findLast((node) => node.role === "assistant" && node.model === model?.id);
    return Boolean(model?.plain || last?.plain);
  }

  show(conversation) {
    this.conversation = conversation;
    this.store.currentId = conversation.id;
    this.views = [];
    this.list.replaceChildren();
    this.draw();
    this.toEnd();
  }

  /** Draws the answers again, as after a change of how they look. A person's text stays: it may be being edited. */
  redraw() {
    const path = this.conversation.path();
    for (const [i, old] of this.views.entries()) {
      const node = path[i];
      if (old.node.id !== node?.id) break;
      if (old instanceof PersonView && old.siblings.length === this.conversation.siblings(node).length) {
        old.node = node;
      } else {
        this.views[i] = this.viewOf(node);
        old.element.replaceWith(this.views[i].element);
      }
    }
    this.draw();
  }

  /** Brings the page to the chosen branch; messages that are already there stay as they are. */
  draw() {
    const path = this.conversation.path();
    let same = 0;
    while (same < path.length && this.views[same]?.node === path[same]) same += 1;
    for (const view of this.views.splice(same)) view.element.remove();
    for (const node of path.slice(same)) {
      const view = this.viewOf(node);
      this.views.push(view);
      this.list.append(view.element);
    }
    this.events.changed();
  }

  viewOf(node) {
    const siblings = this.conversation.siblings(node);
    const go = (other) => {
      this.conversation.choose(other);
      this.store.save(this.conversation, false);
      this.draw();
    };
    if (node.role === "user") {
      const edit = (old, text) => this.edit(old, text);
      return new PersonView(node, siblings, { go, edit, left: () => this.events.left() });
    }
    const live = this.run?.node === node;
    if (live) this.waiting = { text: "", reasoning: "", tokens: [], thoughts: [] };
    const { probabilities = false } = this.settings();
    const plain = node.plain ?? this.plain;
    return new AnswerView(node, siblings, { go, again: (old) => this.again(old) }, { plain, probabilities, live });
  }

  /** False when nothing was sent, so that the text stays where it was typed. */
  send(text) {
    if (this.busy) return false;
    const last = this.conversation.path().at(-1) ?? null;
    if (!text.trim()) {
      if (!this.plain || !last) return false;
      this.answer(last);
      return true;
    }
    this.answer(this.conversation.add(last, "user", text));
    return true;
  }

  edit(node, text) {
    if (this.busy) return;
    this.answer(this.conversation.add(this.conversation.parentOf(node), "user", text));
  }

  again(node = this.conversation.path().at(-1)) {
    if (this.busy || !node) return;
    if (node.role === "user") {
      this.answer(node);
      return;
    }
    const parent = this.conversation.parentOf(node);
    const isFollowed = this.conversation.nodes.some((other) => other.parent === node.id);
    if (node.error && !node.text && !node.reasoning && !isFollowed) {
      this.conversation.nodes = this.conversation.nodes.filter((other) => other !== node);
    }
    this.answer(parent);
  }

  editLast() {
    const view = this.views.findLast((each) => each.node.role === "user");
    if (!view || this.busy) return;
    view.element.scrollIntoView({ block: "nearest" });
    view.edit();
  }

  stop() {
    this.run?.stop();
  }

  answer(parent) {
    const { conversation, plain } = this;
    const node = conversation.add(parent, "assistant", "");
    const model = this.model();
    node.model = model?.id ?? null;
    node.plain = plain;
    node.probed = Boolean(this.settings().probabilities);
    this.run = new Run({
      conversation,
      node,
      path: conversation.path().slice(0, -1),
      model: model?.id,
      context: model?.context,
      settings: this.settings(),
      plain,
      onnews: (news) => this.news(news),
      onend: () => this.ended(),
      onplain: () => this.turnedPlain(node),
    });
    this.store.save(conversation);
    this.saved = performance.now();
    this.draw();
    this.toEnd();
    if (document.activeElement === document.body) this.events.left(); // the button that was pressed has gone
    this.run.go();
  }

  turnedPlain(node) {
    node.plain = true;
    this.events.plain();
    this.redraw();
  }

  news({ text, reasoning, tokens, thoughts }) {
    const { waiting } = this;
    waiting.text += text;
    waiting.reasoning += reasoning;
    waiting.tokens.push(...tokens);
    waiting.thoughts.push(...thoughts);
    this.paint();
  }

  drawNews() {
    if (!this.run) return;
    const view = this.views.find((each) => each.node === this.run.node);
    if (view) {
      view.add(this.waiting);
      this.waiting = { text: "", reasoning: "", tokens: [], thoughts: [] };
      if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    }
    if (performance.now() - this.saved > SAVE_MS) {
      this.saved = performance.now();
      this.saveRunning();
    }
    this.events.progress(this.run);
  }

  /** Unless it was deleted meanwhile. */
  saveRunning() {
    const { conversation } = this.run;
    if (this.store.conversations.has(conversation.id)) this.store.save(conversation);
  }

  ended() {
    this.drawNews();
    const { run } = this;
    this.saveRunning();
    this.run = null;
    this.views.find((each) => each.node === run.node)?.finish();
    if (this.follows) this.toEnd();
    this.events.changed();
    this.events.ended(run);
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    this.events.follows(this.follows);
  }

  toEnd() {
    this.follows = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.events.follows(true);
  }

  /** Tokens that the conversation takes up as far as is known: {used, estimated}. */
  contextUsed() {
    const running = this.run?.conversation === this.conversation ? this.run : null;
    const known = this.conversation.path().filter((node) => node.stats?.prompt && node !== running?.node);
    const { prompt = 0, completion = 0 } = known.at(-1)?.stats ?? {};
    if (!running) return { used: prompt + completion, estimated: false };
    const now = running.stats();
    if (now.prompt) return { used: now.prompt + now.completion, estimated: false };
    return { used: prompt + completion + (now.completion ?? 0), estimated: true };
  }
}

export function emptyState(plain, examples, use) {
  const words = plain
    ? ["Begin a story", "This model has no chat template: it continues whatever you write, in your own words."]
    : ["What shall we grind?", "The model runs on the machine that serves this page. What you write stays there."];
  const buttons = examples.map((text) => h("button", { type: "button", class: "example", onclick: () => use(text) }, text));
  return [h("h2", {}, words[0]), h("p", {}, words[1]), h("div", { class: "examples" }, ...buttons)];
}
