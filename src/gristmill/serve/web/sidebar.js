// The list of conversations: open, rename, export, delete. It changes the store and tells the page which one to show.

import { download, h, iconButton } from "./dom.js";

const fileName = (name) => `${name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 50) || "conversation"}.json`;

function exported(conversations) {
  return JSON.stringify({ format: "gristmill conversations", version: 1, conversations }, null, 2);
}

export class Sidebar {
  constructor({ store, list, toast, events }) {
    Object.assign(this, { store, list, toast, events });
  }

  draw(currentId) {
    this.currentId = currentId;
    if (this.list.querySelector(".rename")) return; // not under the fingers of who is typing
    const focused = this.focused();
    this.list.replaceChildren(...this.store.newestFirst().map((conversation) => this.row(conversation)));
    if (focused) this.focus(focused);
  }

  /** The button that the keyboard is at: {id, row, button}, its conversation and its place. */
  focused() {
    const rows = [...this.list.children];
    const row = rows.findIndex((each) => each.contains(document.activeElement));
    if (row < 0) return null;
    return { id: rows[row].dataset.id, row, button: [...rows[row].querySelectorAll("button")].indexOf(document.activeElement) };
  }

  /** Where the conversation has gone, the one in its place is focused. */
  focus({ id, row = 0, button = 0 }) {
    const rows = [...this.list.children];
    const found = rows.find((each) => each.dataset.id === id) ?? rows[Math.min(row, rows.length - 1)];
    found?.querySelectorAll("button")[button]?.focus();
  }

  row(conversation) {
    const current = conversation.id === this.currentId;
    const open = h(
      "button",
      { type: "button", class: "open", "aria-current": current ? "true" : null, title: conversation.name, onclick: () => this.events.open(conversation) },
      conversation.name,
    );
    const item = h("li", { class: current ? "current" : null, "data-id": conversation.id }, open);
    open.addEventListener("dblclick", () => this.rename(item, conversation));
    open.addEventListener("keydown", (event) => {
      if (event.key === "F2") this.rename(item, conversation);
      else if (event.key === "Delete") this.remove(conversation);
    });
    item.append(
      h(
        "span",
        { class: "row-actions" },
        iconButton("pencil", `Rename “${conversation.name}”`, () => this.rename(item, conversation)),
        iconButton("down", `Export “${conversation.name}” as JSON`, () => download(fileName(conversation.name), exported([conversation]))),
        iconButton("bin", `Delete “${conversation.name}”`, () => this.remove(conversation)),
      ),
    );
    return item;
  }

  rename(item, conversation) {
    const input = h("input", { class: "rename", "aria-label": "Name of the conversation", ".value": conversation.name });
    let done = false;
    const finish = (keep) => {
      if (done) return;
      done = true;
      input.remove();
      if (keep) {
        conversation.title = input.value.trim().slice(0, 200);
        this.store.save(conversation, false);
      }
      this.events.renamed();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      finish(event.key === "Enter");
      this.focus({ id: conversation.id });
    });
    input.addEventListener("blur", () => finish(true));
    item.replaceChildren(input);
    input.focus();
    input.select();
  }

  remove(conversation) {
    this.store.remove(conversation.id);
    this.events.removed(conversation);
    this.toast(`Deleted “${conversation.name.slice(0, 40)}”.`, "Undo", () => {
      this.store.save(conversation, false);
      this.events.open(conversation);
    });
  }

  exportAll() {
    const all = this.store.newestFirst();
    if (all.length) download("gristmill-conversations.json", exported(all));
    else this.toast("There is nothing to export yet.");
  }
}
