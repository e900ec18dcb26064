"""Where a chat is read and written: what a terminal and a pipe have in common, and the pipe. It knows no model."""

from __future__ import annotations

import re
import sys
from typing import Final, Protocol, TextIO

from gristmill.printable import printable

_BLOCK: Final = re.compile(r'\s*(/system\s+)?"""')


def is_open(text: str) -> bool:
    """Whether a text of several lines has begun with three quotation marks and not ended."""
    match = _BLOCK.match(text)
    return match is not None and not text[match.end() :].rstrip().endswith('"""')


def unquote(text: str) -> tuple[str, bool]:
    """A text without the quotation marks around it, and whether it had any."""
    stripped = text.strip()
    if not stripped.startswith('"""'):
        return text, False
    inner = stripped[3:]
    inner = inner[:-3] if inner.endswith('"""') else inner
    return inner.removeprefix("\n").removesuffix("\n"), True


class Screen(Protocol):
    """What a chat reads and writes. All texts may hold anything: it is the screen that makes them safe to print."""

    @property
    def interactive(self) -> bool:
        """Whether a person is there: Ctrl-C then ends an answer, and not the chat."""
        ...

    def read(self, kept: str, hint: str) -> str | None:
        """The next message or command; None when there are no more.

        kept  is in the line already
        hint  stands beside it
        ValueError for what is no text.
        """
        ...

    def reasoning(self, text: str) -> None: ...

    def content(self, text: str) -> None: ...

    def end_answer(self) -> None:
        """What comes next begins on a line of its own."""
        ...

    def show(self, text: str) -> None:
        """What a command was asked for."""
        ...

    def note(self, text: str) -> None:
        """What is worth knowing."""
        ...

    def error(self, text: str) -> None: ...


class PlainScreen:
    """Lines of stdin are messages, answers go to stdout; reasoning, notes and errors to stderr."""

    interactive = False

    def __init__(self) -> None:
        self._n_lines = 0
        self._within_line = set[TextIO]()

    def read(self, kept: str, hint: str) -> str | None:
        first = self._line()
        if first is None or not is_open(first):
            return first
        lines = [first]
        while (line := self._line()) is not None:
            lines.append(line)
            if line.rstrip().endswith('"""'):
                break
        return "\n".join(lines)

    def reasoning(self, text: str) -> None:
        self._write(text, sys.stderr)

    def content(self, text: str) -> None:
        self._end_line(sys.stderr)
        self._write(text, sys.stdout)

    def end_answer(self) -> None:
        self._end_line(sys.stderr)
        self._end_line(sys.stdout)

    def show(self, text: str) -> None:
        self._write(f"{text}\n", sys.stdout)

    def note(self, text: str) -> None:
        self._write(f"{text}\n", sys.stderr)

    def error(self, text: str) -> None:
        self._write(f"Error: {text}\n", sys.stderr)

    def _line(self) -> str | None:
        data = sys.stdin.buffer.readline()
        self._n_lines += 1
        if not data:
            return None
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"line {self._n_lines} of the input is not UTF-8: {error.reason}") from None

    def _end_line(self, file: TextIO) -> None:
        if file in self._within_line:
            self._write("\n", file)

    def _write(self, text: str, file: TextIO) -> None:
        """A terminal gets nothing that could steer it, a pipe what there is."""
        print(printable(text) if file.isatty() else text, end="", flush=True, file=file)
        (self._within_line.discard if text.endswith("\n") else self._within_line.add)(file)
