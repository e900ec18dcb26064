"""The answers of one call: events -> deltas, with what they cost. It knows no API's fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart
from gristmill.outputs import TextReader
from gristmill.serve.inbox import Indexed
from gristmill.serve.metrics import Meter
from gristmill.serve.service import Answering
from gristmill.types import Event, Finish, PromptLogprobs, Request, SamplingParams, TokenEvent


class Turn(Protocol):
    """One answer being read.

    finish            why it ended, in OpenAI's words; None while it goes on
    ends_with_prompt  nothing is generated: it ends with the last of the prompt's log-probabilities
    """

    finish: str | None
    ends_with_prompt: bool

    def take(self, event: TokenEvent) -> list[Delta]: ...


class ChatTurn:
    """An answer with thoughts and calls.

    stop_ids     end it without a text of their own
    n_reasoning  tokens that showed a thought
    stop_string  what ended it, if one did
    """

    def __init__(self, reader: DialogueReader, stop_ids: frozenset[int] = frozenset()) -> None:
        self._reader = reader
        self._stop_ids = stop_ids
        self._calls = False
        self.n_reasoning = 0
        self.finish: str | None = None
        self.ends_with_prompt = False

    @property
    def stop_string(self) -> str | None:
        return self._reader.stopped_by

    def take(self, event: TokenEvent) -> list[Delta]:
        is_stop = event.finish is Finish.STOP and event.token_id in self._stop_ids
        deltas = [] if is_stop else self._reader.push(event.token_id)
        if not self._reader.stopped and event.finish is not None:
            deltas += self._reader.finish()
            self.finish = event.finish.value
        if self._reader.stopped:
            self.finish = "stop"
        self.n_reasoning += any(isinstance(delta, ReasoningDelta) for delta in deltas)
        self._calls = self._calls or any(isinstance(delta, ToolCallStart) for delta in deltas)
        if self._calls and self.finish == "stop":
            self.finish = "tool_calls"
        return deltas


class TextTurn:
    """A plain continuation."""

    def __init__(self, reader: TextReader, ends_with_prompt: bool = False) -> None:
        self._reader = reader
        self.finish: str | None = None
        self.ends_with_prompt = ends_with_prompt

    def take(self, event: TokenEvent) -> list[Delta]:
        piece = self._reader.push(event)
        self.finish = piece.finish.value if piece.finish else None
        return [ContentDelta(piece.text)] if piece.text else []


@dataclass(slots=True)
class Step:
    """What came of one answer at once, of one kind but for what one token began. Neighbouring deltas of a kind are one.

    prompt  log-probabilities of it
    events  the tokens that these deltas are of, and those after them that gave none
    """

    index: int
    prompt: tuple[TokenEvent, ...] = ()
    deltas: list[Delta] = field(default_factory=list)
    events: list[TokenEvent] = field(default_factory=list)
    finish: str | None = None


@dataclass(slots=True)
class Usage:
    n_prompt: int
    n_cached: int = 0
    n_output: int = 0


class Reading:
    """What comes of a call, until all its answers have ended. What an answer has after its end is left out.

    n  answers for each prompt
    """

    def __init__(self, answering: Answering, turns: Sequence[Turn], usage: Usage, meter: Meter, n: int) -> None:
        self.answering = answering
        self._turns = turns
        self._usage = usage
        self._meter = meter
        self._n = n
        self._n_open = len(turns)
        self._started: set[int] = set()

    @property
    def ended(self) -> bool:
        return self._n_open == 0

    async def next(self) -> list[Step]:
        """What came since the last call. ApiError where a request failed."""
        return self.steps(await self.answering.events())

    def now(self) -> list[Step]:
        """The same without waiting for it, for who is told when there is something."""
        return self.steps(self.answering.take())

    def steps(self, events: list[Indexed]) -> list[Step]:
        batch: dict[int, list[Step]] = {}
        for index, event in events:
            if self._turns[index].finish is None:
                if index not in batch:
                    batch[index] = [Step(index)]
                _take(batch[index], self._turns[index], event)
        found = [step for steps in batch.values() for step in steps]
        for step in found:
            if step.events and step.index not in self._started:
                self._start(step.index, step.events[0])
            self._usage.n_output += len(step.events)
            self._meter.tokens(step.index, len(step.events), step.finish)
            if step.finish is not None:
                self._n_open -= 1
                self.answering.cancel(step.index)  # it may not know: a stop string ends an answer here
        return found

    def _start(self, index: int, first: TokenEvent) -> None:
        self._started.add(index)
        if index % self._n == 0:
            self._usage.n_cached += first.n_cached
            self._meter.cached(first.n_cached)


def _take(steps: list[Step], turn: Turn, event: Event) -> None:
    step = steps[-1]
    if isinstance(event, TokenEvent):
        deltas = turn.take(event)
        if deltas and step.deltas and type(deltas[0]) is not type(step.deltas[-1]):
            step = Step(step.index)
            steps.append(step)
        _join(step.deltas, deltas)
        step.events.append(event)
    elif isinstance(event, PromptLogprobs):
        step.prompt += event.tokens
        if event.last and turn.ends_with_prompt:
            turn.finish = "length"
    step.finish = turn.finish


def copies(request: Request, n: int) -> list[Request]:
    """n of a request: seeds that are given count up, so that answers differ."""
    params = request.params
    seeds = [None if params.seed is None else (params.seed + i) % 2**64 for i in range(n)]
    return [request if i == 0 else replace(request, params=_seeded(params, seed)) for i, seed in enumerate(seeds)]


def _seeded(params: SamplingParams, seed: int | None) -> SamplingParams:
    return params if seed is None else replace(params, seed=seed)


def _join(deltas: list[Delta], more: list[Delta]) -> None:
    for delta in more:
        last = deltas[-1] if deltas else None
        if isinstance(last, ContentDelta) and isinstance(delta, ContentDelta):
            deltas[-1] = ContentDelta(last.text + delta.text)
        elif isinstance(last, ReasoningDelta) and isinstance(delta, ReasoningDelta):
            deltas[-1] = ReasoningDelta(last.text + delta.text)
        elif isinstance(last, ToolCallArguments) and isinstance(delta, ToolCallArguments) and last.index == delta.index:
            deltas[-1] = ToolCallArguments(delta.index, last.piece + delta.piece)
        else:
            deltas.append(delta)
