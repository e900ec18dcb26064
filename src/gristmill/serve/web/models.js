// Which models the server has, and the dialog that asks for its key. It waits for a server that is loading or away.

import { hasKey, listModels, setKey } from "./api.js";
import { h } from "./dom.js";

const RETRY_MS = 3000;
const $ = (id) => document.getElementById(id);

export class Models {
  /** `chosen()` is the name the settings hold; `onfound` is called after each look, `banner` with what went wrong. */
  constructor({ chosen, choose, onfound, banner }) {
    Object.assign(this, { chosen, onfound, banner });
    this.list = [];
    $("model").addEventListener("change", (event) => choose(event.target.value));
    $("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.giveKey();
    });
  }

  get current() {
    return this.list.find((model) => model.id === this.chosen()) ?? this.list[0] ?? null;
  }

  async find() {
    clearTimeout(this.retry);
    try {
      this.list = await listModels();
      this.banner(this.list.length ? "" : "The server lists no model.");
    } catch (error) {
      this.failed(error);
    }
    this.draw();
    this.onfound();
  }

  failed(error) {
    if (error.status === 401) {
      this.askKey();
      return;
    }
    this.banner(error.message);
    this.retry = setTimeout(() => this.find(), RETRY_MS);
  }

  draw() {
    const select = $("model");
    const option = (model) => h("option", { value: model.id, ".selected": model === this.current }, model.id);
    select.replaceChildren(...this.list.map(option));
    select.disabled = this.list.length < 2;
    select.hidden = !this.list.length;
  }

  /** Asks for a key; `then` is done once the server takes one. */
  askKey(then = null) {
    this.afterKey = then;
    $("key-wrong").hidden = !hasKey();
    $("key-input").value = "";
    if (!$("key-dialog").open) $("key-dialog").showModal();
  }

  async giveKey() {
    setKey($("key-input").value.trim());
    $("key-dialog").close();
    const then = this.afterKey;
    await this.find();
    if ($("key-dialog").open) this.afterKey = then;
    else then?.();
  }
}
