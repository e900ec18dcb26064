// Conversations and settings in localStorage. A conversation is a tree: editing or asking again adds a branch beside the
// old one, so no text is ever lost. It knows nothing of the page.

import { ofTab } from "./tab.js";

const PREFIX = "gristmill:conversation:";
export const SETTINGS = "gristmill:settings";
const CURRENT = "gristmill:current";
const ROOT = "root";

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, "0")).join("");

export class Conversation {
  constructor({ id = newId(), title = "", system = "", updated = Date.now(), nodes = [], chosen = {} } = {}) {
    Object.assign(this, { id, title, system, updated, nodes, chosen });
  }

  get name() {
    const first = this.nodes.find((node) => node.role === "user" && node.text.trim());
    return this.title || first?.text.trim().split("\n")[0].slice(0, 80) || "New conversation";
  }

  /** A node {id, parent, role, text} at the end of `parent` (a node, or null for the start); it becomes the chosen branch. */
  add(parent, role, text) {
    const node = { id: newId(), parent: parent?.id ?? ROOT, role, text };
    this.nodes.push(node);
    this.choose(node);
    return node;
  }

  choose(node) {
    this.chosen[node.parent] = node.id;
  }

  siblings(node) {
    return this.nodes.filter((other) => other.parent === node.parent);
  }

  parentOf(node) {
    return this.nodes.find((other) => other.id === node.parent) ?? null;
  }

  /** The chosen branch, from the first message to the last. */
  path() {
    const byId = new Map(this.nodes.map((node) => [node.id, node]));
    const path = [];
    let node = byId.get(this.chosen[ROOT]);
    while (node && path.length <= this.nodes.length) {
      path.push(node);
      node = byId.get(this.chosen[node.id]);
    }
    return path;
  }
}

/** What can be read back; probabilities stay in memory, they would fill the storage. */
function lean(conversation) {
  const nodes = conversation.nodes.map(({ tokens, thoughts, ...node }) => node);
  return { ...conversation, nodes };
}

export class Store {
  /** Where the browser keeps nothing for the page (`keeps`), all is in memory. */
  constructor(onfull) {
    this.onfull = onfull;
    this.conversations = new Map();
    this.unsaved = new Map(); // what could not be written, as JSON
    this.keeps = true;
    try {
      for (const key of Object.keys(localStorage)) {
        if (key.startsWith(PREFIX)) this.load(key.slice(PREFIX.length));
      }
    } catch {
      this.keeps = false;
    }
  }

  read(key) {
    try {
      return JSON.parse(this.unsaved.get(key) ?? localStorage.getItem(key));
    } catch {
      return null;
    }
  }

  /** Reads a conversation again, as another tab may have changed it. */
  load(id) {
    const data = this.read(PREFIX + id);
    if (data && Array.isArray(data.nodes)) this.conversations.set(id, new Conversation({ ...data, id }));
    else this.conversations.delete(id);
    return this.conversations.get(id) ?? null;
  }

  static idOfKey(key) {
    return key?.startsWith(PREFIX) ? key.slice(PREFIX.length) : null;
  }

  newestFirst() {
    return [...this.conversations.values()].sort((a, b) => b.updated - a.updated);
  }

  save(conversation, touched = true) {
    if (touched) conversation.updated = Date.now();
    this.conversations.set(conversation.id, conversation);
    this.write(PREFIX + conversation.id, lean(conversation));
  }

  remove(id) {
    this.conversations.delete(id);
    this.unsaved.delete(PREFIX + id);
    if (this.keeps) localStorage.removeItem(PREFIX + id);
  }

  write(key, value) {
    const json = JSON.stringify(value);
    try {
      localStorage.setItem(key, json);
      this.unsaved.delete(key);
    } catch {
      this.unsaved.set(key, json);
      if (this.keeps) this.onfull();
    }
  }

  settings() {
    return this.read(SETTINGS) ?? {};
  }

  saveSettings(settings) {
    this.write(SETTINGS, settings);
  }

  // Each tab keeps its own place.
  get currentId() {
    return ofTab.get(CURRENT);
  }

  set currentId(id) {
    ofTab.set(CURRENT, id);
  }
}
