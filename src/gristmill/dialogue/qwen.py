"""Hermes' calls, as Qwen2.5 and Qwen3 write them: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

Source: the chat templates of these models, github.com/NousResearch/Hermes-Function-Calling."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from gristmill.dialogue.calls import Call, State
from gristmill.dialogue.output import Answer, Marks, skip_space

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"


class HermesSyntax:
    """See `Syntax`. Several objects may stand in one pair of tags, and the closing tag may be missing."""

    openings = (OPEN,)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._close = Marks(CLOSE)
        self._raw: list[str] = []
        self._call: Call | None = None
        self._called = False  # the tags hold a call already

    @property
    def tags(self) -> Set[str]:
        return frozenset([OPEN, CLOSE])

    @property
    def held(self) -> str:
        return "".join(self._raw) + (self._call.held if self._call else "")

    def begin(self, opening: str) -> None:
        self._raw = [opening]
        self._call = None
        self._called = False

    def push(self, text: str, at: int) -> tuple[State, int]:
        while True:
            if self._call is None:
                state, at = self._between(text, at)
                if self._call is None:
                    return state, at
            state, at = self._call.push(text, at)
            if self._call.begun:
                self._raw.clear()
            if state is not State.DONE:
                return state, at
            self._call = None
            self._called = True

    def _between(self, text: str, at: int) -> tuple[State, int]:
        """Before an object, or after one."""
        start = at
        at = skip_space(text, at)
        if not self._called:
            self._raw.append(text[start:at])
        if at == len(text):
            return State.READING, at
        if text[at] == "{" and self._answer.names:
            self._call = Call(self._answer, known_keys=False)
            return State.READING, at
        if not self._called:
            return State.FAILED, at
        if mark := self._close.at(text, at):
            return State.DONE, at + len(mark)
        return (State.READING if self._close.may_begin(text, at) else State.DONE), at
