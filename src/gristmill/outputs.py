"""What `LLM` returns, in vLLM's names; and how it comes together from the engine's events. It knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.stream import StopStrings, StreamDecoder
from gristmill.types import Answer, Event, Failure, Finish, PromptLogprobs, SamplingParams, TokenEvent

if TYPE_CHECKING:
    from gristmill.dialogue.reader import DialogueReader


@dataclass(frozen=True, slots=True)
class Logprob:
    """rank: 1 for the likeliest token. decoded_token: its text, U+FFFD for a part of a character."""

    logprob: float
    rank: int | None
    decoded_token: str | None


Logprobs = dict[int, Logprob]
"""Of one position, by id: the token that is there and the best alternatives."""


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer.

    logprobs     for each token, where they were asked for; cumulative_logprob is the sum of these tokens' own
    stop_reason  the stop string that ended it, or the one of stop_token_ids; None for the model's own end token too
    message      of a chat, see `LLM.chat`
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[Logprobs] | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    cumulative_logprob: float | None = None
    message: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A prompt and its answers.

    prompt_logprobs    for each token of the prompt, None for the first; None where they were not asked for
    num_cached_tokens  tokens of the prompt that the cache had already
    """

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[Logprobs | None] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a generation: a token, and the text that it completes (empty while a character is incomplete)."""

    event: TokenEvent
    text: str
    finish: Finish | None


@dataclass(frozen=True, slots=True)
class Timed:
    """A piece of an answer.

    at         time.perf_counter() when the engine had its token: a small model has many before one is read
    packing_s  `LLM.packing_s` by then
    """

    piece: Piece
    at: float
    packing_s: float


class TextReader:
    """Turns a request's tokens into pieces of text; what of `stop` and `stop_token_ids` ends the answer is left out of
    it, unless include_stop_str_in_output. A stop string that the first min_tokens tokens complete is text. A token that
    is also the model's own end of answers ends it as that.

    stopped_by  what of them has ended it
    """

    def __init__(self, tokenizer: Tokenizer | None, params: SamplingParams) -> None:
        if tokenizer is None and params.stop:
            raise ValueError("stop strings need a vocabulary, and this model has none")
        self._decoder = None
        if tokenizer is not None:
            self._decoder = StreamDecoder(tokenizer, skip_special=params.skip_special_tokens)
        self._shows_stop = params.include_stop_str_in_output
        self._stops = StopStrings(params.stop, shows_stop=self._shows_stop)
        self._n_free = params.min_tokens
        ends = () if tokenizer is None or params.ignore_eos else tokenizer.eos_ids
        self._stop_ids = frozenset(params.stop_token_ids).difference(ends)
        self._stop_id: int | None = None

    @property
    def stopped_by(self) -> int | str | None:
        return self._stops.stopped_by if self._stop_id is None else self._stop_id

    def push(self, event: TokenEvent) -> Piece:
        if event.finish is Finish.STOP and event.token_id in self._stop_ids:
            self._stop_id = event.token_id
        if self._decoder is None:
            return Piece(event, "", event.finish)
        free = self._n_free > 0
        self._n_free -= 1
        is_shown = event.finish is not Finish.STOP or self._shows_stop
        decoded = self._decoder.push(event.token_id) if is_shown else ""
        text = self._stops.push(decoded, free=free)
        if self._stops.stopped:
            return Piece(event, text, Finish.STOP)
        if event.finish is not None:
            text += self._stops.push(self._decoder.flush(), free=free) + self._stops.flush()
        return Piece(event, text, event.finish)


class Collector:
    """The sink of one answer that is read when it is complete; on_end is called then, or when it fails.

    The text is made afterwards, on the thread that reads it, unless a stop has to be looked for on the way.

    dialogue  reads a chat's answer, whose content alone its stop strings end; params have none then, and the text goes
              on after it: see `up_to_stop`
    whole     whether the answer is to be told at once: nothing of it is needed before
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        params: SamplingParams,
        on_end: Callable[[], None],
        dialogue: DialogueReader | None = None,
    ) -> None:
        self._dialogue = dialogue
        self._tokenizer = tokenizer
        self._params = params
        self._reader = TextReader(tokenizer, params)
        self._looks_for_stops = bool(params.stop) or dialogue is not None
        self.whole = not self._looks_for_stops and params.logprobs is None
        self._events: list[TokenEvent] = []
        self._answer: Answer | None = None
        self._texts: list[str] = []
        self._finish: Finish | None = None
        self._prompt: list[TokenEvent] = []
        self._on_end = on_end
        self.n_cached = 0
        self.error: BaseException | None = None

    def __call__(self, event: Event) -> bool:
        if isinstance(event, TokenEvent):
            self._events.append(event)
            self._finish = event.finish
            self.n_cached = event.n_cached
            if self._looks_for_stops:
                piece = self._reader.push(event)
                self._texts.append(piece.text)
                self._finish = piece.finish
            if self._dialogue is not None:
                if self._reader.stopped_by is None:
                    self._dialogue.push(event.token_id)
                if event.finish is not None:
                    self._dialogue.finish()
                if self._dialogue.stopped:
                    self._finish = Finish.STOP
            if self._finish is None:
                return False
        elif isinstance(event, Answer):
            self._answer = event
            self._finish, self.n_cached = event.finish, event.n_cached
        elif isinstance(event, Failure):
            self.error = event.error
        else:
            self._prompt += event.tokens if isinstance(event, PromptLogprobs) else ()
            return False
        self._on_end()
        return True

    def output(self, index: int) -> CompletionOutput:
        if self._answer is not None:
            *before, last = self._answer.token_ids
            self._events = [*(TokenEvent(token_id, None) for token_id in before), TokenEvent(last, self._finish)]
        if not self._looks_for_stops:
            self._texts = [self._reader.push(event).text for event in self._events]
        stop_string = self._dialogue.stopped_by if self._dialogue is not None else None
        logprobs = None if self._params.logprobs is None else [logprobs_of(e, self._tokenizer) for e in self._events]
        return CompletionOutput(
            index=index,
            text="".join(self._texts),
            token_ids=[event.token_id for event in self._events],
            logprobs=logprobs,
            finish_reason=self._finish.value if self._finish else None,
            stop_reason=self._reader.stopped_by if stop_string is None else stop_string,
            cumulative_logprob=None if logprobs is None else sum(event.logprob or 0.0 for event in self._events),
        )

    def prompt_logprobs(self) -> list[Logprobs | None] | None:
        if self._params.prompt_logprobs is None:
            return None
        return [None, *(logprobs_of(event, self._tokenizer) for event in self._prompt)]


def up_to_stop(text: str, message: Mapping[str, Any], stop: str, *, shows_stop: bool = False) -> str:
    """A chat's text up to the stop string that has ended its message's content; without it, if that is."""
    thought, content = message.get("reasoning_content", ""), message["content"] or ""
    at = text.find(content if shows_stop else content + stop, text.find(thought) + len(thought))
    if at >= 0:
        return text[: at + len(content)]
    before, found, _ = text.rpartition(stop)  # the content stands around calls, say
    return before + (found if shows_stop else "") if found else text


def logprobs_of(event: TokenEvent, tokenizer: Tokenizer | None) -> Logprobs:
    """Of the token and of its alternatives."""
    assert event.logprob is not None

    def text(token_id: int) -> str | None:
        known = tokenizer is not None and token_id < tokenizer.vocab_size
        return tokenizer.token_text(token_id) if tokenizer is not None and known else None

    ranked = {i: Logprob(logprob, rank, text(i)) for rank, (i, logprob) in enumerate(event.top_logprobs, 1)}
    return {event.token_id: Logprob(event.logprob, event.rank, text(event.token_id)), **ranked}
