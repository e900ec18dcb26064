"""/v1/completions: a request that was checked -> its answers, whole or in pieces. It knows no HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gristmill.dialogue.types import ContentDelta
from gristmill.outputs import TextReader
from gristmill.serve.errors import ApiError, refuse
from gristmill.serve.host import Host
from gristmill.serve.inbox import TooManyError
from gristmill.serve.metrics import Meter
from gristmill.serve.protocol import CompletionRequest
from gristmill.serve.service import Answering
from gristmill.serve.shapes import Places, RunningUsage, completion_logprobs, new_id, usage_of
from gristmill.serve.sse import DONE, Chunks, data
from gristmill.serve.turn import Reading, Step, TextTurn, Usage, copies
from gristmill.types import Request, SamplingParams, Wants

_SMALL: Final = 4096
"""Characters, or ids, that are encoded within some 0.2 ms, whatever they are."""

_TEXT: Final = b'{"index":%d,"text":%s,"logprobs":null,"finish_reason":null}'

Given = tuple[str, list[int]]
"""A prompt's text and ids."""


@dataclass(slots=True)
class CompletionCall:
    """Completions that are being computed, n for each prompt in order. `close` it in any case."""

    host: Host
    request: CompletionRequest
    prompts: list[Given]
    answering: Answering
    turns: list[TextTurn]
    places: list[Places]
    usage: Usage
    meter: Meter
    reading: Reading
    name: str
    created: int
    chunks: Chunks = field(init=False)
    running: RunningUsage | None = field(init=False)

    def __post_init__(self) -> None:
        n_prompt = [len(ids) for _, ids in self.prompts for _ in range(self.request.n)]
        self.running = RunningUsage(n_prompt) if self.request.continuous_usage else None
        self.chunks = Chunks(self._head(), self.request.include_usage)

    def close(self) -> None:
        self.answering.close()
        self.meter.close()

    async def whole(self) -> dict[str, Any]:
        """The response's body."""
        texts = [self._echo(i) for i in range(len(self.turns))]
        logprobs: list[dict[str, Any] | None] = [None] * len(self.turns)
        while not self.reading.ended:
            for step in await self.reading.next():
                text, found = self._part(step)
                texts[step.index] += text
                logprobs[step.index] = _extend(logprobs[step.index], found)
        choices = [_choice(i, text, logprobs[i], self.turns[i].finish) for i, text in enumerate(texts)]
        return {**self._head(), "choices": choices, "usage": usage_of(self.usage)}

    def begin(self) -> bytes:
        n_echoed = len(self.turns) if self.request.echo else 0
        return b"".join(self._chunk(_choice(i, self._echo(i), None, None)) for i in range(n_echoed))

    def more(self, steps: list[Step]) -> bytes:
        found = list[bytes]()
        for step in steps:
            text, logprobs = self._part(step)
            if self.running is not None:
                self.running.add(step)
            if text and logprobs is None and step.finish is None and self.running is None:
                found.append(self.chunks.text(_TEXT, step.index, text))
            elif text or logprobs or step.finish:
                found.append(self._chunk(_choice(step.index, text, logprobs, step.finish)))
        return b"".join(found)

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return self.chunks.chunk(choice, None if self.running is None else self.running.of(choice["index"]))

    def end(self) -> bytes:
        if not self.request.include_usage:
            return DONE
        return data({**self._head(), "choices": [], "usage": usage_of(self.usage)}) + DONE

    def failed(self, error: ApiError) -> bytes:
        return data(error.body())

    def _echo(self, index: int) -> str:
        return self.prompts[index // self.request.n][0] if self.request.echo else ""

    def _part(self, step: Step) -> tuple[str, dict[str, Any] | None]:
        text = "".join(delta.text for delta in step.deltas if isinstance(delta, ContentDelta))
        n_top, index = self.request.logprobs, step.index
        places = self.places[index]
        if n_top is None or not (step.prompt or step.events or not places.begun):
            return text, None
        first = self.prompts[index // self.request.n][1][0] if self.request.echo and not places.begun else None
        before = [] if first is None else [places.of_prompt(first)]
        offsets = [places.of_prompt(e.token_id) for e in step.prompt] + [
            places.of_answer(e.token_id) for e in step.events
        ]
        events = [*step.prompt, *step.events]
        return text, completion_logprobs(self.host.texts.tokenizer, events, n_top, before + offsets, first)

    def _head(self) -> dict[str, Any]:
        return {"id": self.name, "object": "text_completion", "created": self.created, "model": self.host.name}


def _choice(index: int, text: str, logprobs: dict[str, Any] | None, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


async def start_completion(host: Host, request: CompletionRequest) -> CompletionCall:
    """Check, tokenize and submit: all that can be refused is refused here."""
    host.check_model(request.model)
    guided, scores = request.guided(), request.max_tokens == 0
    if scores and not request.echo:
        raise refuse("max_tokens", "0 is for echo: true, where it gives the prompt alone")
    texts = host.texts
    prompts = await _encode_all(host, request.prompts)
    for _, ids in prompts:
        texts.check_length(len(ids), request.max_tokens, "prompt")
    of_prompt = request.logprobs if request.echo else None
    if scores:
        params, wants = SamplingParams(prompt_logprobs=of_prompt or 0), Wants.LOGPROBS
    else:
        params = request.params(host.defaults.text, request.max_tokens, request.logprobs, guided, of_prompt)
        wants = Wants.TOKENS
    submitted = [
        copy
        for _, ids in prompts
        for copy in copies(Request(tuple(ids), params, request.priority, request.cache_salt, wants), request.n)
    ]
    read = replace(params, stop=request.stops)
    turns = [TextTurn(TextReader(texts.tokenizer, read), scores) for _ in submitted]
    meter = Meter(host.metrics, len(turns))
    try:
        answering = await host.service.start(submitted)
    except TooManyError as error:
        raise TooManyError(error.n, error.capacity, "n" if request.n > 1 else "prompt") from None
    except ApiError as error:
        raise request.as_asked(error) from None
    for _, ids in prompts:
        meter.prompt(len(ids))
    usage, created = Usage(sum(len(ids) for _, ids in prompts)), int(time.time())
    echoed = [prompts[i // request.n][0] if request.echo else "" for i in range(len(turns))]
    places = [Places(texts.tokenizer, text, skip_special=request.skip_special_tokens) for text in echoed]
    reading, name = Reading(answering, turns, usage, meter, request.n), new_id("cmpl-")
    return CompletionCall(host, request, prompts, answering, turns, places, usage, meter, reading, name, created)


async def _encode_all(host: Host, prompts: Sequence[str | list[int]]) -> list[Given]:
    """Short ones here, as handing them to another thread would take longer."""
    if sum(map(len, prompts)) <= _SMALL:
        return [_encode(host, prompt) for prompt in prompts]
    return await host.texts.run(lambda: [_encode(host, prompt) for prompt in prompts])


def _encode(host: Host, prompt: str | list[int]) -> Given:
    texts = host.texts
    if isinstance(prompt, str):
        return prompt, texts.encode(prompt)
    vocab_size = texts.tokenizer.vocab_size
    bad = next((i for i in prompt if i >= vocab_size), None)
    if bad is not None:
        raise refuse("prompt", f"token id {bad} is outside the vocabulary of {vocab_size}")
    return texts.tokenizer.decode(prompt), prompt


def _extend(before: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    if before is None or more is None:
        return before or more
    for name, values in before.items():
        if values is not None:
            values += more[name]
    return before
