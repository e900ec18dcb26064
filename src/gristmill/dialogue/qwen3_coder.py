"""Calls as Qwen3-Coder and Qwen3.5 write them, each parameter a text of its own:

    <tool_call>
    <function=name>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Source: the chat templates of these models."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from typing import Final

from gristmill.dialogue.calls import State
from gristmill.dialogue.output import Answer, Marks, skip_space
from gristmill.dialogue.parameters import is_text, json_of, quote, schema_of, types_of
from gristmill.dialogue.qwen import CLOSE, OPEN
from gristmill.dialogue.types import Tool

FUNCTION: Final = "<function="
END_FUNCTION: Final = "</function>"
PARAMETER: Final = "<parameter="
END_PARAMETER: Final = "</parameter>"
LINE: Final = "\n"
_GAP: Final = re.compile(r"[ \t\r\n]{0,64}")
_QUOTES: Final = re.compile(r'\\.|\\|"', re.DOTALL)

_Read = tuple[State | None, int]
"""None: another step goes on."""


class Qwen3CoderSyntax:
    """See `Syntax`. The outer tags may be missing, and a parameter's closing tag where the call ends after it.

    A line end after a parameter's opening tag and one before its closing tag are not its own. A closing tag ends it
    only where what can follow does: in a text that speaks of such tags they are text. So is one in a string of a list
    or an object, where no line can end.
    """

    openings = (OPEN, FUNCTION)

    def __init__(self, answer: Answer, tools: Sequence[Tool]) -> None:
        self._answer = answer
        self._parameters = {tool.name: tool.parameters for tool in tools}
        self._heads = Marks(*(f"{name}>" for name in self._parameters)) if self._parameters else None
        self._begins = Marks(FUNCTION)
        self._next = Marks(PARAMETER, END_FUNCTION, CLOSE)
        self._last = Marks(CLOSE)
        self._after = Marks(FUNCTION, CLOSE)
        self._ends = Marks(*(line + mark for line in (LINE, "") for mark in (END_PARAMETER, END_FUNCTION)))
        self._step: Callable[[str, int], _Read] = self._open
        self._raw: list[str] = []
        self._name = ""
        self._in_call = False  # its arguments have begun and not ended
        self._pending = ""  # text within a call that may be a mark
        self._key = ""
        self._n_keys = 0
        self._types: frozenset[str] = frozenset()
        self._value: list[str] = []
        self._bracket = ""  # the value's first character
        self._in_string = False
        self._escape = ""  # a backslash at the end of the value

    @property
    def tags(self) -> Set[str]:
        return frozenset([OPEN, CLOSE])

    @property
    def held(self) -> str:
        return "".join(self._raw)

    def begin(self, opening: str) -> None:
        self._raw = [opening]
        self._step = self._open if opening == OPEN else self._head
        self._in_call = False
        self._pending = ""

    def push(self, text: str, at: int) -> tuple[State, int]:
        shift = at - len(self._pending)
        text, at, self._pending = self._pending + text[at:], 0, ""
        state: State | None = None
        while state is None:
            state, at = self._step(text, at)
        if state is State.READING and self._in_call:
            self._pending, at = text[at:], len(text)
        return state, at + shift

    def _open(self, text: str, at: int) -> _Read:
        """Before a function, in the outer tags."""
        at = self._skip(text, at)
        if mark := self._begins.at(text, at):
            return self._to(self._head, mark, at)
        return (State.READING if self._begins.may_begin(text, at) else State.FAILED), at

    def _head(self, text: str, at: int) -> _Read:
        heads = self._heads if self._answer.names else None
        mark = heads.at(text, at) if heads else ""
        if mark[:-1] in self._answer.names:
            self._name = mark[:-1]
            return self._to(self._first, mark, at)
        return (State.READING if heads and not mark and heads.may_begin(text, at) else State.FAILED), at

    def _first(self, text: str, at: int) -> _Read:
        """After a function's name. The call begins with its first parameter, or with its end."""
        at = self._skip(text, at)
        mark = self._next.at(text, at)
        if mark in (PARAMETER, END_FUNCTION):
            self._answer.call(self._name)
            self._raw.clear()
            self._in_call, self._n_keys = True, 0
            return None, self._go_on(mark, at)
        return (State.READING if not mark and self._next.may_begin(text, at) else State.FAILED), at

    def _go_on(self, mark: str, at: int) -> int:
        """In a call, at a mark: where it ends."""
        if mark == PARAMETER:
            self._key = ""
            self._step = self._read_key
        else:
            self._answer.arguments("}" if self._n_keys else "{}")
            self._in_call = False
            self._step = self._between
        return at if mark == CLOSE else at + len(mark)

    def _read_key(self, text: str, at: int) -> _Read:
        end = text.find(">", at)
        self._key += text[at:] if end < 0 else text[at:end]
        if end < 0:
            return State.READING, len(text)
        key, parameters = self._key, self._parameters[self._name]
        self._types = types_of(schema_of(parameters, key), parameters)
        opening = '"' if is_text(self._types) else ""
        self._answer.arguments(f"{', ' if self._n_keys else '{'}{quote(key)}: {opening}")
        self._n_keys += 1
        self._value.clear()
        self._bracket, self._in_string, self._escape = "", False, ""
        self._step = self._begin_value
        return None, end + 1

    def _begin_value(self, text: str, at: int) -> _Read:
        if at == len(text):
            return State.READING, at
        self._step = self._read_value
        return None, at + text.startswith(LINE, at)

    def _read_value(self, text: str, at: int) -> _Read:
        while True:
            end, mark = self._ends.find(text, at)
            self._add(text[at:end])
            if not mark:
                return State.READING, end
            if self._in_string and not mark.startswith(LINE):
                self._add(mark)
                at = end + len(mark)
                continue
            gap = _GAP.match(text, end + len(mark))
            assert gap is not None
            after = self._next if mark.endswith(END_PARAMETER) else self._last
            if following := after.at(text, gap.end()):
                break
            if gap.end() == len(text) or after.may_begin(text, gap.end()):
                return State.READING, end
            self._add(mark)
            at = end + len(mark)
        self._answer.arguments('"' if is_text(self._types) else json_of("".join(self._value), self._types))
        return None, self._go_on(following, gap.end())

    def _add(self, text: str) -> None:
        """More of a parameter's value."""
        if is_text(self._types):
            self._answer.arguments(quote(text)[1:-1])
            return
        self._value.append(text)
        self._bracket = self._bracket or text.lstrip()[:1]
        if self._bracket in ("[", "{"):
            marks = _QUOTES.findall(self._escape + text)
            self._in_string ^= bool(marks.count('"') % 2)
            self._escape = "\\" if marks[-1:] == ["\\"] else ""

    def _between(self, text: str, at: int) -> _Read:
        """After a call."""
        at = skip_space(text, at)
        mark = self._after.at(text, at)
        if mark == FUNCTION and self._answer.names:
            return self._to(self._head, mark, at)
        if mark == CLOSE:
            return State.DONE, at + len(mark)
        return (State.READING if at == len(text) or self._after.may_begin(text, at) else State.DONE), at

    def _skip(self, text: str, at: int) -> int:
        end = skip_space(text, at)
        self._raw.append(text[at:end])
        return end

    def _to(self, step: Callable[[str, int], _Read], mark: str, at: int) -> _Read:
        """After a mark that is held, as the call may be none."""
        self._raw.append(mark)
        self._step = step
        return None, at + len(mark)
