"""The standard streams: those that are closed, a keyboard that is waited for, a stdout that takes no more, and errors
as they are told there."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from typing import IO, Any

import click

from gristmill.printable import printable


class ReaderGoneError(Exception):
    """Nobody reads stdout any more. It is no OSError: rich would make an exit code of its own of a BrokenPipeError."""


class StdoutError(Exception):
    """It takes no more, and why. It is no OSError either: a chat would take it for one of whoever answers."""


class _Stdout(io.FileIO):
    """Where stdout goes. Its errors name it, as those of other files do."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            raise StdoutError(f"stdout: {error.strerror}") from error


def prepare() -> None:
    """Once, at the start. Where a stream is closed nothing is read, and what is written goes nowhere.

    What the encoding of stdout lacks is escaped, as Python has it for stderr.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = _naming(sys.stdout)


def drop_stdout() -> None:
    """What could not be written is forgotten: the interpreter would try again at its end, and complain."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def one_line(error: Exception) -> str:
    """What a person is told of it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{printable(str(error.filename))}: {error.strerror}"
    return printable(str(error)) or type(error).__name__  # servers and files may be quoted in it


def say_if_typed(stream: IO[bytes]) -> None:
    """Nobody is to wait at a terminal without a word."""
    if stream.isatty():
        print("reading the text from the keyboard; Ctrl-D on a line of its own ends it", file=sys.stderr)


def read_text() -> str:
    """All of stdin but for the line end that echo, an editor or a keyboard puts after a text."""
    text = decoded_input(sys.stdin.buffer)
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def decoded_input(stream: IO[bytes]) -> str:
    """All of it, as it stands. UsageError for what is not UTF-8."""
    say_if_typed(stream)
    data = stream.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the input is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None


def write(text: str) -> None:
    """To stdout, at once. A terminal gets nothing that could steer it."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """A line of it to stdout, with texts for numbers that JSON lacks: nan, inf and -inf. It is ASCII where the encoding
    of stdout lacks what it holds, or that could steer a terminal."""
    finite = _finite(value)
    text = json.dumps(finite, ensure_ascii=False)
    try:
        as_it_is = bool(text.encode(sys.stdout.encoding)) and printable(text) == text
    except UnicodeEncodeError:
        as_it_is = False
    click.echo(text if as_it_is else json.dumps(finite))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _naming(stream: io.TextIOWrapper[Any]) -> io.TextIOWrapper[Any]:
    """The same stream, with errors that name it, and none for characters."""
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Stdout(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        "backslashreplace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
