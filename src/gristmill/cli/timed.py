"""One answer, token by token, with the times at which the engine had them. It knows no command."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from gristmill.outputs import Piece, TextReader
from gristmill.tokenizer.interface import MissingTokenizerError, Tokenizer
from gristmill.types import Event, Failure, Request, SamplingParams, TokenEvent

if TYPE_CHECKING:  # see cli/loading.py
    from gristmill.llm import LLM

_LEAST: Final = 2


@dataclass(frozen=True, slots=True)
class Timed:
    """A piece of the answer.

    at         time.perf_counter() when the engine had its token: a small model has many before one is read here
    packing_s  `LLM.packing_s` by then
    """

    piece: Piece
    at: float
    packing_s: float


def timed_pieces(llm: LLM, prompt_ids: list[int], params: SamplingParams) -> Generator[Timed, None, None]:
    """As `LLM.pieces`. Closing the generator ends the request."""
    reader = TextReader(_vocabulary(llm), params)
    told: SimpleQueue[tuple[Event, float, float]] = SimpleQueue()

    def tell(event: Event) -> None:
        told.put((event, time.perf_counter(), llm.packing_s))

    engine = llm.engine
    request_id = engine.submit(Request(tuple(prompt_ids), params), tell)
    try:
        while True:
            event, at, packing_s = told.get()
            if isinstance(event, Failure):
                raise event.error
            if isinstance(event, TokenEvent):
                piece = reader.push(event)
                yield Timed(piece, at, packing_s)
                if piece.finish is not None:
                    return
    finally:
        engine.cancel(request_id)


def tokens_per_s(n_tokens: float, seconds: float) -> float | None:
    """Speed of the tokens after an answer's first one; None of so few that it would mean nothing."""
    return n_tokens / seconds if n_tokens >= _LEAST and seconds > 0 else None


def _vocabulary(llm: LLM) -> Tokenizer | None:
    try:
        return llm.tokenizer
    except MissingTokenizerError:
        return None
