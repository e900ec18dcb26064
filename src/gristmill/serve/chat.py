"""/v1/chat/completions: a request that was checked -> its answer, whole or in pieces. It knows no HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from gristmill.dialogue.types import ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart
from gristmill.serve.chat_protocol import ChatRequest
from gristmill.serve.errors import refuse
from gristmill.serve.host import Host
from gristmill.serve.metrics import Meter
from gristmill.serve.service import Answering
from gristmill.serve.shapes import chat_logprobs, new_id, usage_of
from gristmill.serve.sse import DONE, data
from gristmill.serve.texts import Prompt
from gristmill.serve.turn import ChatTurn, Step, Usage, copies, steps
from gristmill.types import Request


@dataclass(slots=True)
class ChatCall:
    """A chat whose answers are being computed. `close` it in any case."""

    host: Host
    request: ChatRequest
    prompt: Prompt
    answering: Answering
    turns: list[ChatTurn]
    usage: Usage
    meter: Meter
    name: str
    created: int

    def close(self) -> None:
        self.answering.close()
        self.meter.close()

    def steps(self) -> AsyncGenerator[list[Step], None]:
        return steps(self.answering, self.turns, self.usage, self.meter, len(self.turns))

    async def whole(self) -> dict[str, Any]:
        """The response's body."""
        n_top = self.request.n_top
        messages = [_Message() for _ in self.turns]
        logprobs: list[list[dict[str, Any]]] = [[] for _ in self.turns]
        async for batch in self.steps():
            for step in batch:
                messages[step.index].add(step.deltas)
                if n_top is not None:
                    logprobs[step.index] += chat_logprobs(self.host.texts.tokenizer, step.events, n_top)
        choices = [
            {
                "index": i,
                "message": message.body(),
                "logprobs": None if n_top is None else {"content": logprobs[i], "refusal": None},
                "finish_reason": self.turns[i].finish,
            }
            for i, message in enumerate(messages)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage_of(self.usage)}

    async def stream(self) -> AsyncGenerator[bytes, None]:
        for i in range(len(self.turns)):
            yield self._chunk(i, {"role": "assistant", "content": ""})
        async for batch in self.steps():
            yield b"".join(chunk for step in batch for chunk in self._chunks(step))
        if self.request.include_usage:
            yield data({**self._head("chat.completion.chunk"), "choices": [], "usage": usage_of(self.usage)})
        yield DONE

    def _chunks(self, step: Step) -> list[bytes]:
        n_top, logprobs = self.request.n_top, None
        if n_top is not None:
            logprobs = {"content": chat_logprobs(self.host.texts.tokenizer, step.events, n_top), "refusal": None}
        found = []
        for delta in [_delta(delta) for delta in step.deltas] or ([{}] if logprobs else []):
            found.append(self._chunk(step.index, delta, logprobs))
            logprobs = None
        if step.finish is not None:
            found.append(self._chunk(step.index, {}, logprobs, step.finish))
        return found

    def _chunk(
        self, index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish: str | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self.request.include_usage:
            chunk["usage"] = None
        return data(chunk)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.host.name}


async def start_chat(host: Host, request: ChatRequest) -> ChatCall:
    """Check, tokenize and submit: all that can be refused is refused here."""
    host.check_model(request.model)
    n_top, most = request.n_top, request.most_tokens
    guided = request.guided()
    texts = host.texts
    prompt = await texts.run(lambda: texts.prompt(request))
    texts.check_length(len(prompt.ids), most, "messages")
    field = "response_format" if request.response_format is not None else "structured_outputs"
    forced = texts.forced_calls(prompt)
    if guided is not None:
        texts.check_guided(prompt, field)
    if request.stops and forced is not None:
        raise refuse("stop", "cannot be kept where a call is forced; leave one out")
    params = request.params(host.defaults, most, n_top, guided or forced)
    submitted = Request(prompt.ids, params, request.priority, request.cache_salt)
    turns = [ChatTurn(texts.reader(prompt, request.stops), texts.tokenizer, request.stops) for _ in range(request.n)]
    meter = Meter(host.metrics, request.n)
    answering = await host.service.start(copies(submitted, request.n))
    meter.prompt(len(prompt.ids))
    usage, created = Usage(len(prompt.ids)), int(time.time())
    return ChatCall(host, request, prompt, answering, turns, usage, meter, new_id("chatcmpl-"), created)


class _Message:
    """An assistant's message as its deltas come."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[ToolCallStart, list[str]]] = []

    def add(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    self._content.append(text)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                case ToolCallStart():
                    self._calls.append((delta, []))
                case ToolCallArguments(index, piece):
                    self._calls[index][1].append(piece)

    def body(self) -> dict[str, Any]:
        content = "".join(self._content)
        body: dict[str, Any] = {"role": "assistant", "content": content if content or not self._calls else None}
        body["refusal"] = None
        if self._reasoning:
            body["reasoning_content"] = body["reasoning"] = "".join(self._reasoning)
        if self._calls:
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(pieces)}}
                for call, pieces in self._calls
            ]
        return body


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
