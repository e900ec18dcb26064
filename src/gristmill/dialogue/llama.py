"""Llama 3.x's calls: {"name": ..., "parameters": {...}} as the answer, or at the beginning of a line of it.

Source: Meta's prompt formats for Llama 3.1 to 3.3, github.com/meta-llama/llama-models, and their chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any, Final

from gristmill.dialogue.calls import Call, State
from gristmill.dialogue.output import SPACE, Answer, Marks, skip_space
from gristmill.dialogue.steps import SteppingParser
from gristmill.dialogue.types import Delta
from gristmill.tokenizer.interface import without_halves

PYTHON: Final = "<|python_tag|>"
_FENCE: Final = "```"
_BUILTIN: Final = re.compile(r"([^\s(]+)\.call\(\s*+")
_ARGUMENT: Final = re.compile(r"""(\w++)\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^\s"',()=]++)\s*+(,\s*+|(?=\)))""", re.DOTALL)


class LlamaParser(SteppingParser):
    """See `Parser`. An object is a call where it begins a line outside fenced code, or follows `<|python_tag|>` or
    another call (and perhaps a semicolon), and has a name that may be called before its parameters, or after them.

    After `<|python_tag|>`, `name.call(key="value")` is a call of a tool of that name; other code is content.
    """

    def __init__(self, answer: Answer, *, constrained: bool = False) -> None:
        super().__init__(answer, self._line, constrained=constrained)
        self._n_ticks = 0
        self._in_fence = False
        self._raw: list[str] = []  # before an object, and gone with it if it is a call
        self._call: Call | None = None
        self._stops = Marks(PYTHON, "\n")
        self._separators = Marks(PYTHON, ";")
        self._builtins = Marks(*(f"{name}.call(" for name in answer.names), PYTHON)

    @property
    def marks(self) -> Set[str]:
        return frozenset([PYTHON])

    def finish(self) -> list[Delta]:
        content = self._answer.content
        if self._step == self._builtin:
            self._end_builtin()
        elif self._step == self._between:
            self._raw.clear()
        content.push("".join(self._raw) + (self._call.held if self._call else "") + self._rest)
        content.flush()
        self._raw.clear()
        self._rest = ""
        return self._answer.take()

    def _line(self, text: str, at: int) -> int:
        """At the beginning of a line, but for white space."""
        end = skip_space(text, at)
        if end > at:
            self._answer.content.push(text[at:end])
            if "\n" in text[at:end]:
                self._n_ticks = 0
            return end
        if text[at] == "{" and not self._in_fence and not self._n_ticks and self._answer.names:
            return self._open(at)
        if self._constrained:
            self._step = self._verbatim
            return at
        if text[at] == "`":
            self._n_ticks += 1
            self._answer.content.push("`")
            if self._n_ticks == len(_FENCE):
                self._in_fence = not self._in_fence
                self._leave_line()
            return at + 1
        self._leave_line()
        return at

    def _leave_line(self) -> None:
        self._n_ticks = 0
        self._step = self._text

    def _open(self, at: int) -> int:
        self._call = Call(self._answer, known_keys=True)
        self._step = self._object
        return at

    def _text(self, text: str, at: int) -> int:
        """In a line."""
        end, mark = self._stops.find(text, at)
        self._answer.content.push(text[at:end])
        if mark == "\n":
            self._answer.content.push(mark)
            self._step = self._line
        elif mark:
            self._step = self._python
        return end + len(mark)

    def _object(self, text: str, at: int) -> int:
        assert self._call is not None
        state, at = self._call.push(text, at)
        if self._call.begun:
            self._raw.clear()
        if state is State.READING:
            return at
        held, begun = "".join(self._raw) + self._call.held, self._call.begun
        self._raw.clear()
        self._call = None
        if state is State.DONE:
            self._step = self._between
        elif self._constrained:
            self._answer.content.push(held)
            self._step = self._nothing if begun else self._verbatim
        else:
            self._answer.content.push(held)
            last_line = held.rpartition("\n")
            self._step = self._line if last_line[1] and not last_line[2].strip(SPACE) else self._text
        return at

    def _between(self, text: str, at: int) -> int:
        """After a call. What is between two calls goes."""
        end = skip_space(text, at)
        self._raw.append(text[at:end])
        mark = self._separators.at(text, end)
        if end == len(text) or self._separators.may_begin(text, end):
            return end
        if mark == ";" and mark not in self._raw:
            self._raw.append(mark)
        elif mark == PYTHON:
            self._raw.clear()
            self._step = self._python
        elif text[end] == "{" and self._answer.names:
            return self._open(end)
        else:
            self._push_raw()
            self._step = self._line
            return end
        return end + len(mark)

    def _push_raw(self) -> None:
        self._answer.content.push("".join(self._raw))
        self._raw.clear()

    def _python(self, text: str, at: int) -> int:
        """After `<|python_tag|>`."""
        end = skip_space(text, at)
        self._raw.append(text[at:end])
        if end == len(text):
            return end
        if text[end] == "{" and self._answer.names:
            return self._open(end)
        if self._builtins.at(text, end) not in ("", PYTHON):
            self._raw.append(text[end:])
            self._step = self._builtin
            return len(text)
        if self._builtins.may_begin(text, end):
            return end
        self._push_raw()
        self._step = self._text
        return end

    def _builtin(self, text: str, at: int) -> int:
        self._raw.append(text[at:])
        return len(text)

    def _end_builtin(self) -> None:
        code = "".join(self._raw).strip(SPACE)
        match = _BUILTIN.match(code)
        arguments = _read_keywords(code, match.end()) if match is not None else None
        if match is not None and arguments is not None and match[1] in self._answer.names:
            self._answer.call(match[1])
            self._answer.arguments(without_halves(json.dumps(arguments, ensure_ascii=False)))
            self._raw.clear()


def _read_keywords(code: str, at: int) -> dict[str, Any] | None:
    """The arguments of a call whose parenthesis has opened before code[at] and closes at the end; None for others."""
    found = {}
    while match := _ARGUMENT.match(code, at):
        found[match[1]] = _read_value(match[2])
        at = match.end()
    return found if code[at:] == ")" else None


def _read_value(text: str) -> Any:
    """JSON's value, and of what has none the text itself."""
    try:
        value = json.loads(text, strict=False, parse_constant=str)
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinite
    except (ValueError, RecursionError):
        return text.strip('"')
    return value
