"""Tells what came of requests: to a sink each, or to a reader of many at once. It knows no step and no scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gristmill.types import Event, Failure, TokenEvent

_log = logging.getLogger(__name__)
_new = tuple.__new__  # of a NamedTuple, without its Python code

Sink = Callable[[Event], bool | None]
"""Takes a request's events, on the engine's thread: it must be quick. True after a token ends the request there."""


class Reader(Protocol):
    """Takes the events of many requests, on the engine's thread. What a step has for them costs a call or two."""

    def take(self, key: int, event: Event) -> bool | None:
        """As a Sink, of one request."""
        ...

    def take_step(self, takers: Takers, token_ids: list[int]) -> None:
        """The next token of each, after all that was taken before. While the same ones go on, takers is one object."""
        ...

    def flush(self) -> None:
        """Nothing more is taken in this step."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """A Sink: what a reader takes of one request, which it knows by a key."""

    reader: Reader
    key: int

    def __call__(self, event: Event) -> bool | None:
        return self.reader.take(self.key, event)


@dataclass(frozen=True, slots=True, eq=False)
class Takers:
    """Requests of one reader that go on together.

    rows      theirs of a step's
    n_cached  of each, as in TokenEvent
    """

    reader: Reader
    rows: Sequence[int]
    keys: Sequence[int]
    n_cached: Sequence[int]


class Teller:
    """Tells single events, and notes which readers are to be flushed. What goes wrong in a sink is logged, and is the
    request's failure."""

    def __init__(self) -> None:
        self._due: dict[Reader, None] = {}

    def tell(self, sink: Sink, event: Event) -> bool:
        """Whether the request is to end here: its sink says so, or cannot take events."""
        if isinstance(sink, Share):
            self._due[sink.reader] = None
        try:
            return bool(sink(event))
        except Exception as error:
            _log.exception("what takes a request's events raised an error; the request ends")
            if not isinstance(event, Failure):
                _fail(sink, error)
            return True

    def flush(self) -> None:
        """To be called where the engine turns to something else."""
        while self._due:
            reader, _ = self._due.popitem()
            try:
                reader.flush()
            except Exception:
                _log.exception("what takes the events of requests raised an error")


class Followers:
    """Who is told each token of sequences that go on together.

    told  (row, sink, n_cached) of those, by rows
    """

    def __init__(self, told: Iterable[tuple[int, Sink, int]]) -> None:
        self._alone = list[tuple[int, Sink, int]]()
        groups: dict[Reader, list[tuple[int, int, int]]] = {}
        for row, sink, n_cached in told:
            if isinstance(sink, Share):
                groups.setdefault(sink.reader, []).append((row, sink.key, n_cached))
            else:
                self._alone.append((row, sink, n_cached))
        self._takers = [Takers(reader, *zip(*members, strict=True)) for reader, members in groups.items()]

    def tell(self, ids: list[int]) -> list[int]:
        """A token each, which ends nothing. Returns the rows whose requests are to end here."""
        ended = list[int]()
        for row, sink, n_cached in self._alone:
            try:
                if sink(_new(TokenEvent, (ids[row], None, None, None, (), n_cached))):
                    ended.append(row)
            except Exception as error:
                _log.exception("what takes a request's events raised an error; the request ends")
                _fail(sink, error)
                ended.append(row)
        for takers in self._takers:
            try:
                takers.reader.take_step(takers, ids if len(takers.rows) == len(ids) else [ids[i] for i in takers.rows])
            except Exception as error:
                _log.exception("what takes the events of requests raised an error; the requests end")
                for key in takers.keys:
                    _fail(Share(takers.reader, key), error)
                ended += takers.rows
        return ended


def _fail(sink: Sink, error: Exception) -> None:
    """Whoever waits for a request that its sink has broken is not to wait forever."""
    try:
        sink(Failure(error))
    except Exception:
        _log.exception("what takes a request's events cannot take its failure either")
