"""/v1/chat/completions: a request that was checked -> its answer, whole or in pieces. It knows no HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from gristmill.dialogue.format import ChatPrompt
from gristmill.dialogue.message import AssistantMessage
from gristmill.dialogue.types import ChoiceMode, ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart
from gristmill.serve.chat_protocol import ChatRequest
from gristmill.serve.errors import ApiError, refuse
from gristmill.serve.host import Host
from gristmill.serve.metrics import Meter
from gristmill.serve.service import Answering
from gristmill.serve.shapes import RunningUsage, chat_logprobs, new_id, usage_of
from gristmill.serve.sse import DONE, Chunks, data
from gristmill.serve.turn import ChatTurn, Reading, Step, Usage, copies
from gristmill.types import Request, SamplingParams, StructuredOutputsParams

_FIRST: Final = {"role": "assistant", "content": ""}
_CONTENT: Final = b'{"index":%d,"delta":{"content":%s},"logprobs":null,"finish_reason":null}'


@dataclass(slots=True)
class ChatCall:
    """A chat whose answers are being computed. `close` it in any case."""

    host: Host
    request: ChatRequest
    prompt: ChatPrompt
    params: SamplingParams
    answering: Answering
    turns: list[ChatTurn]
    usage: Usage
    meter: Meter
    reading: Reading
    name: str
    created: int
    started: bool = False
    chunks: Chunks = field(init=False)
    running: RunningUsage | None = field(init=False)

    def __post_init__(self) -> None:
        is_wanted = self.request.continuous_usage
        self.running = RunningUsage([self.usage.n_prompt] * len(self.turns)) if is_wanted else None
        self.chunks = Chunks(self._head("chat.completion.chunk"), self.request.include_usage)

    def close(self) -> None:
        self.answering.close()
        self.meter.close()

    async def whole(self) -> dict[str, Any]:
        """The response's body."""
        n_top = self.request.n_top
        messages = [AssistantMessage() for _ in self.turns]
        logprobs: list[list[dict[str, Any]]] = [[] for _ in self.turns]
        while not self.reading.ended:
            for step in await self.reading.next():
                messages[step.index].add(step.deltas)
                if n_top is not None:
                    logprobs[step.index] += chat_logprobs(self.host.texts.tokenizer, step.events, n_top)
        choices = [
            {
                "index": i,
                "message": _body(message),
                "logprobs": None if n_top is None else {"content": logprobs[i], "refusal": None},
                "finish_reason": self.turns[i].finish,
            }
            for i, message in enumerate(messages)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": self._usage()}

    def begin(self) -> bytes:
        return b""  # as in OpenAI's API, whose first event tells clients when the first token came

    def more(self, steps: list[Step]) -> bytes:
        found = [] if self.started else [self._chunk(_choice(i, _FIRST)) for i in range(len(self.turns))]
        self.started = True
        return b"".join(found + [chunk for step in steps for chunk in self._chunks(step)])

    def end(self) -> bytes:
        if not self.request.include_usage:
            return DONE
        return data({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()}) + DONE

    def failed(self, error: ApiError) -> bytes:
        return data(error.body())

    def _chunks(self, step: Step) -> list[bytes]:
        if self.running is not None:
            self.running.add(step)
        elif step.finish is None and self.request.n_top is None and len(step.deltas) == 1:
            delta = step.deltas[0]
            if isinstance(delta, ContentDelta):
                return [self.chunks.text(_CONTENT, step.index, delta.text)]
        return list(map(self._chunk, self._choices(step)))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return self.chunks.chunk(choice, None if self.running is None else self.running.of(choice["index"]))

    def _choices(self, step: Step) -> list[dict[str, Any]]:
        n_top, logprobs = self.request.n_top, None
        if n_top is not None:
            logprobs = {"content": chat_logprobs(self.host.texts.tokenizer, step.events, n_top), "refusal": None}
        found = []
        for delta in [_delta(delta) for delta in step.deltas] or ([{}] if logprobs else []):
            found.append(_choice(step.index, delta, logprobs))
            logprobs = None
        if step.finish is not None:
            found.append(_choice(step.index, {}, logprobs, step.finish))
        return found

    def _usage(self) -> dict[str, Any]:
        return usage_of(self.usage, sum(turn.n_reasoning for turn in self.turns))

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.host.name}


async def start_chat(host: Host, request: ChatRequest) -> ChatCall:
    """Check, tokenize and submit: all that can be refused is refused here."""
    host.check_model(request.model)
    n_top, most = request.n_top, request.most_tokens
    guided = request.guided()
    texts, constrained, stops = host.texts, guided is not None, request.stops

    def prepare() -> tuple[ChatPrompt, StructuredOutputsParams | None]:
        prompt = texts.prompt(request)
        return prompt, texts.constrain(prompt, guided)

    prompt, wanted = await texts.run(prepare)
    texts.check_length(len(prompt.ids), most, "messages")
    if stops and prompt.tool_choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED):
        raise refuse("stop", "cannot be kept where a call is forced; leave one out")
    defaults = host.defaults.thinking if prompt.thinks else host.defaults.unthinking
    params = request.params(defaults, most, n_top, wanted)
    submitted = Request(prompt.ids, params, request.priority, request.cache_salt)
    shows_stop = request.include_stop_str_in_output
    readers = [
        texts.reader(prompt, stops, request.min_tokens, constrained=constrained, shows_stop=shows_stop)
        for _ in range(request.n)
    ]
    ends = () if request.ignore_eos else texts.tokenizer.eos_ids
    stop_ids = frozenset(() if shows_stop else params.stop_token_ids).difference(ends)
    turns = [ChatTurn(reader, stop_ids) for reader in readers]
    meter = Meter(host.metrics, request.n)
    try:
        answering = await host.service.start(copies(submitted, request.n))
    except ApiError as error:
        raise request.as_asked(texts.about_tools(error, prompt, wanted)) from None
    meter.prompt(len(prompt.ids))
    usage, created = Usage(len(prompt.ids)), int(time.time())
    reading, name = Reading(answering, turns, usage, meter, len(turns)), new_id("chatcmpl-")
    return ChatCall(host, request, prompt, params, answering, turns, usage, meter, reading, name, created)


def _body(message: AssistantMessage) -> dict[str, Any]:
    """With the fields that clients look for in any case, and a thought under both of its names."""
    body = {**message.body(), "refusal": None}
    return {**body, "reasoning": body["reasoning_content"]} if "reasoning_content" in body else body


def _choice(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text, "reasoning": text}
        case ToolCallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolCallArguments(index, piece):
            return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
