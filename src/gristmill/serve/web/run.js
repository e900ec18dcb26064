// One answer being made: the request for it, the events that come, and what they say about time. No page in here.

import { ApiError, stream } from "./api.js";
import { tokensOf } from "./tokens.js";

const STORY_TOKENS = 256; // the completions interface's own default is 16
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const PENALTIES = ["repetition_penalty", "presence_penalty", "frequency_penalty"];

/** The request's fields that come from the settings; what is not set is the model's own default. */
export function sampling(settings) {
  const body = {};
  for (const name of [...NUMBERS, ...PENALTIES]) {
    if (typeof settings[name] === "number" && Number.isFinite(settings[name])) body[name] = settings[name];
  }
  const stop = (settings.stop ?? "").split("\n").filter(Boolean);
  if (stop.length) body.stop = stop.map((text) => text.replaceAll("\\n", "\n"));
  return body;
}

function thinking(choice) {
  if (choice === "on" || choice === "off") return { chat_template_kwargs: { enable_thinking: choice === "on" } };
  return choice ? { reasoning_effort: choice } : {};
}

function chatBody(path, system, settings) {
  const messages = system.trim() ? [{ role: "system", content: system }] : [];
  for (const node of path) {
    // An answer that failed before its first word was never said.
    if (node.role === "user" || node.text) messages.push({ role: node.role, content: node.text });
  }
  const probabilities = settings.probabilities ? { logprobs: true, top_logprobs: 5 } : {};
  return { messages, ...probabilities, ...thinking(settings.thinking) };
}

function storyBody(path, settings, context) {
  const prompt = path.map((node) => node.text).join("");
  const most = context ? Math.min(STORY_TOKENS, Math.floor(context / 2)) : STORY_TOKENS;
  return { prompt, max_tokens: most, ...(settings.probabilities ? { logprobs: 5 } : {}) };
}

export class Run {
  /** Answers the messages of `path` into `node`; `onnews` is told the new pieces, `onend` once at the end. */
  constructor({ conversation, node, path, model, context, settings, plain, onnews, onend, onplain }) {
    Object.assign(this, { conversation, node, path, model, context, settings, plain, onnews, onend, onplain });
    this.abort = new AbortController();
    this.pieces = 0;
    this.usage = null;
    this.inThoughts = false;
  }

  stop() {
    this.node.stopped = true;
    this.abort.abort();
  }

  async go() {
    const { node } = this;
    try {
      await this.attempt();
    } catch (error) {
      if (error.code === "no_chat_template" && !this.plain) {
        this.plain = true;
        this.onplain();
        return this.go();
      }
      if (error.name !== "AbortError") {
        node.error = error instanceof ApiError ? error.message : `The answer could not be read: ${error.message}`;
        node.errorStatus = error.status ?? 0;
      }
    }
    node.stats = this.stats();
    return this.onend(this);
  }

  async attempt() {
    const { settings, model, path, plain } = this;
    const asked = plain ? storyBody(path, settings, this.context) : chatBody(path, this.conversation.system, settings);
    const body = { model, ...asked, ...sampling(settings), stream: true, stream_options: { include_usage: true } };
    this.started = performance.now();
    for await (const event of stream(plain ? "v1/completions" : "v1/chat/completions", body, this.abort.signal)) {
      if (event.usage) this.usage = event.usage;
      const choice = event.choices?.[0];
      if (choice) this.take(choice);
    }
    if (!this.node.finish) throw new ApiError("The connection ended before the answer did.");
  }

  take(choice) {
    const { node } = this;
    const delta = choice.delta ?? { content: choice.text };
    const text = delta.content ?? "";
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const tokens = tokensOf(choice.logprobs);
    if (text || reasoning || tokens.length || delta.tool_calls) this.clock(text, tokens.length);
    if (reasoning || text) this.inThoughts = !text;
    for (const call of delta.tool_calls ?? []) this.takeCall(call);
    node.text += text;
    if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
    const thoughts = this.inThoughts ? tokens : [];
    const answer = this.inThoughts ? [] : tokens;
    if (thoughts.length) (node.thoughts ??= []).push(...thoughts);
    if (answer.length) (node.tokens ??= []).push(...answer);
    if (choice.finish_reason) node.finish = choice.finish_reason;
    this.onnews({ text, reasoning, tokens: answer, thoughts });
  }

  takeCall({ index = 0, function: called = {} }) {
    const calls = (this.node.calls ??= []);
    const call = (calls[index] ??= { name: "", arguments: "" });
    call.name += called.name ?? "";
    call.arguments += called.arguments ?? "";
  }

  clock(text, tokens) {
    const now = performance.now();
    this.first ??= now;
    this.last = now;
    this.pieces += tokens || 1;
    if (text && this.node.reasoning && !this.thoughtEnd) {
      this.thoughtEnd = now;
      this.node.stats = this.stats();
    }
  }

  /** {completion, prompt, cached, rate, firstMs, thoughtMs}; counts are the server's, or pieces until it tells them. */
  stats() {
    const { usage, first, last } = this;
    if (first === undefined) return {};
    const completion = usage?.completion_tokens ?? this.pieces;
    const ms = last - first;
    return {
      completion,
      estimated: !usage,
      prompt: usage?.prompt_tokens ?? null,
      cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
      rate: completion > 1 && ms > 0 ? (1000 * (completion - 1)) / ms : null,
      firstMs: first - this.started,
      thoughtMs: this.node.reasoning ? (this.thoughtEnd ?? last) - first : null,
    };
  }
}
