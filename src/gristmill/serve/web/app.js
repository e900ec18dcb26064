// Brings the page to life: finds the models, wires the parts together, and owns keys, banners and dialogs.

import { Chat, emptyState } from "./chat.js";
import { h } from "./dom.js";
import { count, rate } from "./message.js";
import { Models } from "./models.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Conversation, SETTINGS, Store } from "./store.js";
import { ofTab } from "./tab.js";

const DRAFT = "gristmill:draft";
const EXAMPLES = ["Explain how a water mill works, in three sentences.", "Write a haiku about patience.", "Show a Python function that merges two sorted lists."];
const BEGINNINGS = ["Once upon a time, there was a little mill by the river.", "The door had been closed for a hundred years. Then,"];

const $ = (id) => document.getElementById(id);
const wide = matchMedia("(min-width: 60rem)");
const touch = matchMedia("(hover: none) and (pointer: coarse)");
const mac = /^(Mac|iP)/.test(navigator.platform);

/** Whether Alt and a letter write a character here: on a Mac it is Option, and writes '@' with a German L. */
function writes(event) {
  return mac && event.target.matches("input, textarea") && event.key.toUpperCase() !== event.code.slice("Key".length);
}

class App {
  constructor() {
    this.store = new Store(() => this.toast("The browser's storage is full: export and delete some conversations.", null, null, 15_000));
    this.input = $("input");
    this.settings = new Settings({
      store: this.store,
      form: $("settings-form"),
      onsystem: (text) => this.setSystem(text),
      onchange: (name) => this.settingChanged(name),
    });
    this.sidebar = new Sidebar({
      store: this.store,
      list: $("conversations"),
      toast: (...words) => this.toast(...words),
      events: { open: (one) => this.open(one), renamed: () => this.changed(), removed: (one) => this.removed(one) },
    });
    this.models = new Models({
      chosen: () => this.settings.values.model,
      choose: (id) => this.settings.set("model", id),
      onfound: () => this.modelChanged(),
      banner: (words) => this.banner(words),
    });
    this.chat = new Chat({
      store: this.store,
      list: $("messages"),
      scroller: $("scroller"),
      settings: () => this.settings.values,
      model: () => this.models.current,
      events: {
        changed: () => this.changed(),
        progress: (run) => this.progress(run),
        ended: (run) => this.ended(run),
        plain: () => this.models.current && (this.models.current.plain = true),
        left: () => touch.matches || this.input.focus(),
        follows: (follows) => ($("latest").hidden = follows),
      },
    });
  }

  start() {
    this.wireButtons();
    this.wireComposer();
    this.wireKeys();
    this.showProbabilities();
    this.showTheme();
    document.body.classList.toggle("with-sidebar", wide.matches && this.settings.values.sidebar !== false);
    this.open(this.store.conversations.get(this.store.currentId) ?? this.store.newestFirst()[0] ?? new Conversation());
    addEventListener("storage", (event) => this.changedElsewhere(event.key));
    this.models.find();
    if (!this.store.keeps) this.toast("The browser keeps nothing for this page: conversations end with it.", null, null, 15_000);
  }

  // --- conversations ---

  open(conversation) {
    this.chat.show(conversation);
    this.settings.showSystem(conversation.system);
    if (!wide.matches) this.toggleSidebar(false);
    if (!touch.matches) this.input.focus();
  }

  startNew() {
    const { conversation } = this.chat;
    if (conversation.nodes.length) this.open(new Conversation({ system: conversation.system }));
    else this.open(conversation);
  }

  removed(conversation) {
    if (this.chat.run?.conversation === conversation) this.chat.stop();
    if (conversation.id === this.chat.conversation.id) this.open(this.store.newestFirst()[0] ?? new Conversation());
    else this.changed();
  }

  changedElsewhere(key) {
    if (key === SETTINGS) this.settings.takeOver();
    const id = Store.idOfKey(key);
    if (!id || this.chat.run?.conversation.id === id) return;
    const conversation = this.store.load(id);
    if (conversation && id === this.chat.conversation.id) {
      this.chat.conversation = conversation;
      this.chat.redraw();
    }
    this.changed();
  }

  setSystem(text) {
    const { conversation } = this.chat;
    conversation.system = text;
    this.settings.system = text;
    if (conversation.nodes.length) this.store.save(conversation, false);
  }

  // --- what the page shows ---

  changed() {
    const { conversation, busy, plain } = this.chat;
    if (!conversation) return;
    const empty = conversation.nodes.length === 0;
    $("title").textContent = conversation.name;
    document.title = empty ? "gristmill" : `${conversation.name} – gristmill`;
    this.sidebar.draw(conversation.id);
    $("welcome").hidden = !empty;
    if (empty) $("welcome").replaceChildren(...emptyState(plain, plain ? BEGINNINGS : EXAMPLES, (text) => this.use(text)));
    $("send").hidden = busy;
    $("stop").hidden = !busy;
    $("send").setAttribute("aria-label", plain ? "Continue" : "Send");
    this.input.placeholder = plain ? "Write a beginning; the model continues it" : "Write a message";
    $("plain-note").hidden = !plain;
    $("status").textContent = busy ? "The model is answering." : "";
    this.drawContext();
  }

  progress(run) {
    const now = performance.now();
    if (now - (this.drawn ?? 0) < 200) return;
    this.drawn = now;
    const stats = run.stats();
    $("live").textContent = stats.rate ? `${rate(stats.rate)} tok/s · ${count(stats.completion)} tokens` : "";
    this.drawContext();
  }

  ended(run) {
    $("live").textContent = "";
    $("status").textContent = run.node.error ? "The answer failed." : "The answer is complete.";
    if (run.node.errorStatus === 401) this.models.askKey(() => this.chat.again(run.node));
    if (!run.node.error) this.banner("");
  }

  drawContext() {
    const { used, estimated } = this.chat.contextUsed();
    const total = this.models.current?.context;
    $("context").hidden = !total;
    if (!total) return;
    const left = Math.max(0, total - used);
    const about = estimated ? "about " : "";
    $("context-bar").max = total;
    $("context-bar").value = Math.min(used, total);
    $("context").classList.toggle("tight", left < total / 10);
    $("context-words").textContent = used ? `${about}${count(used)} used · ${count(left)} left` : `${count(total)} tokens of context`;
  }

  banner(words) {
    $("banner").textContent = words;
    $("banner").hidden = !words;
  }

  toast(words, action = null, act = null, ms = 7000) {
    clearTimeout(this.toastTimer);
    const toast = $("toast");
    const hide = () => toast.replaceChildren();
    const button = action ? h("button", { type: "button", onclick: () => (hide(), act()) }, action) : "";
    toast.replaceChildren(h("p", {}, words, " ", button));
    this.toastTimer = setTimeout(hide, ms);
  }

  showTheme() {
    this.settings.showTheme();
    const { theme = "auto" } = this.settings.values;
    const label = `Colours: ${theme === "auto" ? "as the system" : theme} (Alt+T)`;
    $("theme").title = label;
    $("theme").setAttribute("aria-label", label);
    $("theme").dataset.is = theme;
  }

  // --- controls ---

  settingChanged(name) {
    if (name === "probabilities") {
      this.showProbabilities();
      this.chat.redraw();
    }
    if (name === "model") {
      this.models.draw();
      this.modelChanged();
    }
    if (name === "theme") this.showTheme();
  }

  modelChanged() {
    this.settings.showDefaults(this.models.current?.defaults ?? {});
    this.changed();
  }

  showProbabilities() {
    const on = Boolean(this.settings.values.probabilities);
    $("probabilities").setAttribute("aria-pressed", String(on));
    $("legend").hidden = !on;
  }

  toggleSidebar(open = !document.body.classList.contains("with-sidebar")) {
    document.body.classList.toggle("with-sidebar", open);
    $("menu").setAttribute("aria-expanded", String(open));
    if (wide.matches) this.settings.set("sidebar", open);
  }

  toggleSettings(open = !document.body.classList.contains("with-settings")) {
    document.body.classList.toggle("with-settings", open);
    $("tune").setAttribute("aria-expanded", String(open));
    if (open) $("settings-form").elements.system.focus();
    else this.input.focus();
  }

  wireButtons() {
    const toggleProbabilities = () => this.settings.set("probabilities", !this.settings.values.probabilities);
    const actions = {
      new: () => this.startNew(),
      menu: () => this.toggleSidebar(),
      tune: () => this.toggleSettings(),
      "settings-close": () => this.toggleSettings(false),
      veil: () => (this.toggleSidebar(false), this.toggleSettings(false)),
      theme: () => this.settings.nextTheme(),
      probabilities: toggleProbabilities,
      "export-all": () => this.sidebar.exportAll(),
      "show-keys": () => $("keys").showModal(),
      "keys-close": () => $("keys").close(),
      stop: () => (this.chat.stop(), this.input.focus()),
      latest: () => this.chat.toEnd(),
    };
    for (const [id, act] of Object.entries(actions)) $(id).addEventListener("click", act);
    this.shortcuts = {
      KeyN: actions.new,
      KeyL: actions.menu,
      KeyS: actions.tune,
      KeyT: actions.theme,
      KeyP: toggleProbabilities,
      KeyR: () => this.chat.again(),
    };
  }

  use(text) {
    this.input.value = text;
    this.grow();
    this.input.focus();
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  submit() {
    if (!this.chat.send(this.input.value)) return;
    this.input.value = "";
    this.grow();
  }

  wireComposer() {
    this.use(ofTab.get(DRAFT) ?? "");
    this.input.addEventListener("input", () => this.grow());
    addEventListener("pagehide", () => ofTab.set(DRAFT, this.input.value));
    $("composer").addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    this.input.addEventListener("keydown", (event) => {
      const { key } = event;
      if (key === "Enter" && !event.shiftKey && !event.isComposing && !touch.matches) this.submit();
      else if (key === "ArrowUp" && !this.input.value) this.chat.editLast();
      else return;
      event.preventDefault();
    });
  }

  wireKeys() {
    addEventListener("keydown", (event) => {
      if (event.ctrlKey && event.code === "Slash") {
        event.preventDefault();
        if ($("keys").open) $("keys").close();
        else $("keys").showModal();
      } else if (document.querySelector("dialog[open]")) {
        // a dialog has its own keys
      } else if (event.key === "Escape") this.escape();
      else if (event.altKey && !event.ctrlKey && !event.metaKey && this.shortcuts[event.code] && !writes(event)) {
        event.preventDefault();
        this.shortcuts[event.code]();
      }
    });
  }

  escape() {
    if (this.chat.busy) this.chat.stop();
    else if (document.body.classList.contains("with-settings")) this.toggleSettings(false);
    else if (!wide.matches) this.toggleSidebar(false);
    this.input.focus();
  }
}

new App().start();
