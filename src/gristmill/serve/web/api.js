// The server's OpenAI interface: the list of models and streams of events. It knows nothing of conversations or the page.

import { ofTab } from "./tab.js";

const KEY = "gristmill:key";

export class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setKey(key) {
  if (key) ofTab.set(KEY, key);
  else ofTab.remove(KEY);
}

export const hasKey = () => Boolean(ofTab.get(KEY));

function headers() {
  const key = ofTab.get(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(path, options) {
  let response;
  try {
    // Relative to the page, so that a proxy may serve it under any path.
    response = await fetch(new URL(path, document.baseURI), { cache: "no-store", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  let details = null;
  try {
    details = JSON.parse(text).error;
  } catch {
    // not JSON: a proxy's page, perhaps
  }
  const message = details?.message || text.slice(0, 300) || response.statusText || "no reason given";
  throw new ApiError(message, response.status, details?.code ?? null);
}

/** [{id, context}]: the models served; context in tokens, or null where the server does not say. */
export async function listModels() {
  const response = await request("v1/models", { headers: headers() });
  const { data = [] } = await response.json();
  const read = (model) => ({ id: String(model.id), context: model.max_model_len || null, defaults: model.default_sampling_params ?? {} });
  return data.map(read);
}

/** The data of each event until `[DONE]`. Throws ApiError for an error before or inside the stream. */
export async function* stream(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers() },
    body: JSON.stringify(body),
    signal,
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.message || String(event.error), 0, event.error.code ?? null);
    yield event;
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await read(reader);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection to the server was lost.");
  }
}
