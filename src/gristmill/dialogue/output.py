"""What parsers share on the way out: deltas, white space beside marks, the calls so far. It knows no format."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Set
from functools import partial
from typing import Final

from gristmill.dialogue.types import ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart

SPACE: Final = " \t\r\n"
LINE_ENDS: Final = "\r\n"
_SPACES: Final = re.compile(r"[ \t\r\n]*")


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def skip_space(text: str, at: int) -> int:
    """Where white space that begins at text[at] ends."""
    match = _SPACES.match(text, at)
    assert match is not None
    return match.end()


class Deltas:
    """Deltas as they come; what follows another of the same kind is joined to it."""

    def __init__(self) -> None:
        self._done: list[Delta] = []
        self._make: Callable[[str], Delta] | None = None
        self._texts: list[str] = []

    def add(self, make: Callable[[str], Delta], text: str) -> None:
        if make != self._make:
            self._close()
            self._make = make
        self._texts.append(text)

    def start(self, delta: ToolCallStart) -> None:
        self._close()
        self._done.append(delta)

    def take(self) -> list[Delta]:
        """The deltas since the last `take`."""
        self._close()
        deltas, self._done = self._done, []
        return deltas

    def _close(self) -> None:
        if self._make is not None:
            self._done.append(self._make("".join(self._texts)))
            self._texts.clear()
            self._make = None


class Prose:
    """Text on its way out. White space at its end is held back until more text shows that it belongs to it.

    kind   ReasoningDelta or ContentDelta
    holds  False: a mark beside which white space goes never comes, so that there is nothing to wait for
    """

    def __init__(self, kind: type[ReasoningDelta] | type[ContentDelta], out: Deltas, *, holds: bool = True) -> None:
        self._kind = kind
        self._out = out
        self._holds = holds
        self._strip = ""
        self._held: list[str] = []
        self._written = False

    def push(self, text: str) -> None:
        if self._strip:
            text = text.lstrip(self._strip)
            if not text:
                return
            self._strip = ""
        body = text.rstrip(SPACE) if self._holds else text
        if body:
            self._write("".join(self._held) + body)
            self._held.clear()
        if len(body) < len(text):
            self._held.append(text[len(body) :])

    def cut(self, strip: str, *, inside: bool = False) -> None:
        """A mark is here: white space before it goes, and what `strip` names after it.

        inside  the white space before it stays between text before the mark and text after it, if there are both
        """
        if not (inside and self._written):
            self._held.clear()
        self._strip = strip

    def flush(self) -> None:
        """The text ends: white space at its end is part of it, unless a mark follows that."""
        if self._held and not self._strip:
            self._write("".join(self._held))
        self._held.clear()

    def _write(self, text: str) -> None:
        self._written = True
        self._out.add(self._kind, text)


class Answer:
    """The deltas of one answer, and which calls it may make.

    names     of functions that may be called
    parallel  whether there may be more than one call
    beside    calls stand in the content, which has no white space beside them
    new_id    makes the calls' ids
    """

    def __init__(
        self, names: Set[str], *, parallel: bool = True, beside: bool = True, new_id: Callable[[], str] = new_call_id
    ) -> None:
        self._names = names
        self._parallel = parallel
        self._new_id = new_id
        self._n_calls = 0
        self._deltas = Deltas()
        self._arguments: Callable[[str], Delta] | None = None
        self.content = Prose(ContentDelta, self._deltas, holds=beside and bool(names))
        self.reasoning = Prose(ReasoningDelta, self._deltas)

    @property
    def names(self) -> Set[str]:
        """Functions that may be called now."""
        return self._names if self._parallel or not self._n_calls else frozenset()

    def call(self, name: str) -> None:
        """A call begins; white space around it is content only between texts."""
        assert name in self.names
        self.content.cut(SPACE, inside=True)
        self._deltas.start(ToolCallStart(self._n_calls, self._new_id(), name))
        self._arguments = partial(ToolCallArguments, self._n_calls)
        self._n_calls += 1

    def arguments(self, piece: str) -> None:
        """More arguments of the call that began last."""
        assert self._arguments is not None
        if piece:
            self._deltas.add(self._arguments, piece)

    def take(self) -> list[Delta]:
        """The deltas since the last `take`."""
        return self._deltas.take()


class Marks:
    """Finds the first of several texts in a text, and what at its end may be the beginning of one."""

    def __init__(self, *marks: str) -> None:
        self._marks = marks
        self._pattern = re.compile("|".join(map(re.escape, marks)))
        self._firsts = frozenset(mark[0] for mark in marks)
        self._longest = max(map(len, marks))

    def find(self, text: str, at: int) -> tuple[int, str]:
        """Where text[at:] has the first mark, and which; (where the text surely has none up to, "") without one."""
        match = self._pattern.search(text, at)
        if match is not None:
            return match.start(), match.group()
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts and self.may_begin(text, start):
                return start, ""
        return len(text), ""

    def may_begin(self, text: str, at: int) -> bool:
        """Whether text[at:] is the beginning of a mark, and not all of it."""
        n = len(text) - at
        return n < self._longest and any(n < len(mark) and mark.startswith(text[at:]) for mark in self._marks)

    def at(self, text: str, at: int) -> str:
        """The mark that stands at text[at], or ""."""
        match = self._pattern.match(text, at)
        return match.group() if match is not None else ""
