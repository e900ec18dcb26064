// Small helpers to build elements. Text goes in as text nodes only: nothing in this page parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = new URL("icons.svg", import.meta.url).href;

/** An element with attributes (or `onclick`-style listeners, or properties by `.name`) and children (nodes or strings). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) element[name.slice(1)] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `${ICONS}#${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, onclick, attributes = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

/** Puts text on the clipboard; pages that are not on localhost or https have only the old way. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // refused: try the old way
    }
  }
  const area = h("textarea", { class: "off-screen", ".value": text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

export function copyButton(read, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet" }, label);
  button.addEventListener("click", async () => {
    button.textContent = (await copyText(read())) ? "Copied" : "Could not copy";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** Calls `task` once before the next picture, however often it is asked; a hidden tab draws none, so it gets a timer. */
export function eachFrame(task) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    const go = () => {
      waiting = false;
      task();
    };
    if (document.hidden) setTimeout(go, 200);
    else requestAnimationFrame(go);
  };
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
