"""Parsers that go through an answer's text step by step. It knows no format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gristmill.dialogue.output import Answer
from gristmill.dialogue.types import Delta

Step = Callable[[str, int], int]
"""Reads on from text[at] and says up to where; without moving and without another step, it waits for more text."""


class SteppingParser:
    """What parsers of text share: `_step`, the step to go on with, and `_rest`, what was held back of the text.

    constrained  the answer keeps to `answer_grammar`: it begins with a call, or it is content to its end
    """

    def __init__(self, answer: Answer, first: Step, *, constrained: bool) -> None:
        self._answer: Final = answer
        self._constrained: Final = constrained
        self._step = first
        self._rest = ""

    def push(self, token_id: int, text: str) -> list[Delta]:
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            before, step = at, self._step
            at = self._step(text, at)
            if at == before and step == self._step:
                break  # it waits for more
        self._rest = text[at:]
        return self._answer.take()

    def _verbatim(self, text: str, at: int) -> int:
        """Content to the end."""
        self._answer.content.push(text[at:])
        return len(text)

    def _nothing(self, text: str, at: int) -> int:
        """After a call that an answer of no call's form began with: it is neither content nor arguments."""
        return len(text)
