// The settings panel: the system prompt of this conversation and the sampling of all. An empty field is the model's default.

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const SAMPLING = [...NUMBERS, "stop", "thinking"];
const THEMES = ["auto", "light", "dark"];

export class Settings {
  /** `onsystem` is told the system prompt when it changes, `onchange` the name of any other setting that did. */
  constructor({ store, form, onsystem, onchange }) {
    Object.assign(this, { store, form, onsystem, onchange });
    this.values = store.settings();
    for (const name of SAMPLING) this.form.elements[name].value = this.values[name] ?? "";
    form.addEventListener("input", (event) => this.edited(event.target));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => queueMicrotask(() => this.reset()));
  }

  edited(field) {
    if (field.name === "system") {
      this.onsystem(field.value);
      return;
    }
    field.removeAttribute("aria-invalid");
    if (!NUMBERS.includes(field.name)) this.set(field.name, field.value);
    else if (field.value === "" && !field.validity.badInput) this.set(field.name, undefined);
    else if (field.validity.valid) this.set(field.name, field.valueAsNumber);
    else field.setAttribute("aria-invalid", "true"); // the last good value stays
  }

  set(name, value) {
    this.values = { ...this.store.settings(), [name]: value }; // another tab may have changed the others
    this.store.saveSettings(this.values);
    this.onchange(name);
  }

  /** Another tab has changed something. */
  takeOver() {
    const old = this.values;
    this.values = this.store.settings();
    for (const name of new Set([...Object.keys(old), ...Object.keys(this.values)])) {
      if (old[name] === this.values[name]) continue;
      if (SAMPLING.includes(name)) this.form.elements[name].value = this.values[name] ?? "";
      this.onchange(name);
    }
  }

  reset() {
    this.values = this.store.settings();
    for (const name of SAMPLING) delete this.values[name];
    for (const field of this.form.elements) field.removeAttribute("aria-invalid");
    this.form.elements.system.value = this.system;
    this.store.saveSettings(this.values);
  }

  /** What an empty field stands for, as far as the server says it. */
  showDefaults(defaults) {
    for (const name of NUMBERS) {
      if (name !== "seed") this.form.elements[name].placeholder = Number.isFinite(defaults[name]) ? String(defaults[name]) : "default";
    }
  }

  showSystem(text) {
    this.system = text;
    this.form.elements.system.value = text;
  }

  /** auto, light, dark, and round again. */
  nextTheme() {
    const theme = THEMES[(THEMES.indexOf(this.values.theme ?? "auto") + 1) % THEMES.length];
    this.set("theme", theme);
  }

  showTheme() {
    const { theme = "auto" } = this.values;
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }
}
