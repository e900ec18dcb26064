"""What a chat asks of whoever answers: a model in this process, or a server. It knows neither, and no terminal."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from gristmill.cli.chat_session import Conversation
from gristmill.cli.timed import tokens_per_s
from gristmill.dialogue.types import ContentDelta, ReasoningDelta

ChatDelta = ReasoningDelta | ContentDelta


class ContextFullError(ValueError):
    """The conversation leaves no room for an answer.

    limit  what max_tokens was: it may be that alone which has no room. None where it played no part
    """

    def __init__(self, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(slots=True)
class Tally:
    """Counts and times of one answer, as far as it has come; mutable, so that they are there when it is interrupted.

    n_prompt, n_cached      tokens of the prompt, and those that needed no computing; None where nobody says
    prompt_ids, output_ids  empty where they are not known
    n_output                tokens of the answer; of a server that does not count them, pieces
    n_told                  pieces that came one after another
    finish                  why it ended, as in the OpenAI API; None while it goes on
    packing_s               seconds that tokens after the first one waited for weights to be packed
    least_s                 pieces that came within less say nothing of how fast they were made
    """

    n_prompt: int | None = None
    n_cached: int | None = None
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    n_output: int = 0
    n_told: int = 0
    finish: str | None = None
    started: float = field(default_factory=time.perf_counter)
    first: float | None = None
    last: float = 0.0
    packing_s: float = 0.0
    least_s: float = 0.0
    _packed_before: float = 0.0

    def count(self, packing_s: float = 0.0, at: float | None = None) -> None:
        """A token has come, at this time or now. packing_s: `LLM.packing_s` by then."""
        self.last = time.perf_counter() if at is None else at
        if self.first is None:
            self.first, self._packed_before = self.last, packing_s
        self.packing_s = packing_s - self._packed_before
        self.n_output += 1
        self.n_told += 1

    @property
    def n_used(self) -> int | None:
        """Tokens of the context that are taken after the answer."""
        return None if self.n_prompt is None else self.n_prompt + self.n_output

    @property
    def tokens_per_s(self) -> float | None:
        """From the first piece on, without the packing of weights; None where too little came after it."""
        taken = 0.0 if self.first is None else self.last - self.first - self.packing_s
        if taken < self.least_s or self.n_told < 3:
            return None
        return tokens_per_s(self.n_output * (self.n_told - 1) / self.n_told, taken)


class Backend(Protocol):
    """Answers conversations, one at a time."""

    @property
    def name(self) -> str:
        """What the model is called."""
        ...

    @property
    def context(self) -> int | None:
        """Tokens of prompt and answer together; None where nobody says."""
        ...

    @property
    def notice(self) -> str | None:
        """What a user should know before the first message."""
        ...

    @property
    def tally(self) -> Tally | None:
        """Of the latest answer."""
        ...

    def answer(self, conversation: Conversation) -> Generator[ChatDelta, None, None]:
        """The answer to the last message. Closing the iterator ends it.

        ContextFullError where there is no room for one; ValueError for what the template, the settings or the server
        refuse; OSError where a server cannot be reached.
        """
        ...

    def defaults(self, conversation: Conversation) -> Mapping[str, tuple[Any, str]]:
        """How tokens are chosen where nothing is set, each with who says it; without what nobody says."""
        ...

    def check(self, conversation: Conversation) -> None:
        """ValueError for a system message or a wish about thinking that this model has no place for."""
        ...

    def token_text(self, token_id: int) -> str: ...

    def idle(self) -> AbstractContextManager[None]:
        """Entered while a person is typing."""
        ...

    def close(self) -> None: ...
