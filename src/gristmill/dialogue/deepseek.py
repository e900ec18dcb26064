"""DeepSeek-R1's calls: <｜tool▁call▁begin｜>function<｜tool▁sep｜>name, then its arguments as fenced JSON.

Source: the chat template of DeepSeek-R1-Distill-Qwen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set
from typing import Final

from gristmill.dialogue.calls import Arguments, State
from gristmill.dialogue.output import Answer, Marks, skip_space

CALLS: Final = "<｜tool▁calls▁begin｜>"
CALL: Final = "<｜tool▁call▁begin｜>"
SEP: Final = "<｜tool▁sep｜>"
END_CALL: Final = "<｜tool▁call▁end｜>"
END_CALLS: Final = "<｜tool▁calls▁end｜>"
FENCE: Final = "```"


class DeepSeekSyntax:
    """See `Syntax`. White space does not matter; the fence and the marks around all calls may be missing."""

    openings = (CALLS, CALL)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._names = {
            f"{start}function{SEP}{name}{fence}": name
            for start in (CALL, CALLS + CALL)
            for name in answer.names
            for fence in ("", FENCE, FENCE + "json")
        }
        self._heads = sorted(self._names)
        self._after = Marks(CALL, END_CALL, END_CALLS, FENCE)
        self._raw: list[str] = []
        self._head = ""  # what stands before the arguments, without white space
        self._arguments: Arguments | None = None
        self._called = False

    @property
    def tags(self) -> Set[str]:
        return frozenset([CALLS, CALL, SEP, END_CALL, END_CALLS])

    @property
    def held(self) -> str:
        return "".join(self._raw)

    def begin(self, opening: str) -> None:
        self._raw = [opening]
        self._head = opening
        self._arguments = None
        self._called = False

    def push(self, text: str, at: int) -> tuple[State, int]:
        state = State.READING
        while at < len(text) and state is State.READING:
            before = at
            if self._arguments is not None:
                state, at = self._arguments.push(text, at)
                if state is State.DONE:
                    self._arguments, self._called, state = None, True, State.READING
            elif self._called:
                state, at = self._end(text, at)
                if at == before:
                    break
            else:
                state, at = self._begin(text, at)
        return state, at

    def _begin(self, text: str, at: int) -> tuple[State, int]:
        """One more character of what stands before the arguments: after the first that is wrong a call may begin."""
        if text[at] != "{":
            self._raw.append(text[at])
            self._head += text[at].strip()
            following = bisect_left(self._heads, self._head)
            may_become = self._heads[following : following + 1]
            return (State.READING if may_become and may_become[0].startswith(self._head) else State.FAILED), at + 1
        name = self._names.get(self._head)
        if name not in self._answer.names or name is None:
            return State.FAILED, at
        self._answer.call(name)
        self._raw.clear()
        self._arguments = Arguments(self._answer)
        return State.READING, at

    def _end(self, text: str, at: int) -> tuple[State, int]:
        """After the arguments."""
        at = skip_space(text, at)
        mark = self._after.at(text, at)
        if mark == CALL:
            self.begin(CALL)
        elif mark == END_CALLS or not (mark or at == len(text) or self._after.may_begin(text, at)):
            return State.DONE, at + len(mark)
        return State.READING, at + len(mark)
