"""The engine's own process: loads a model, runs what comes over its socket and sends what comes of it. It ends with the
process that started it. `python -m gristmill.serve.engine_process FD` is how serve/engine_child.py starts one."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from gristmill.engine.engine import Engine
from gristmill.engine.telling import Share
from gristmill.llm import LLM
from gristmill.serve import engine_wire
from gristmill.serve.engine_sender import Sender
from gristmill.serve.engine_wire import EngineOptions, Kind, Messages, say
from gristmill.types import Request

_RECEIVE_BYTES = 1 << 18


def main() -> None:
    """Returns when the model cannot be loaded; otherwise it runs until the other side is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the server, which says when this is to end
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    channel = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(channel,), name="gristmill watch", daemon=True).start()
    messages, first = Messages(), list[tuple[Kind, bytes]]()
    while not first:
        first = messages.feed(channel.recv(_RECEIVE_BYTES))
    options = engine_wire.read_options(first[0][1])
    sender = Sender(channel)
    try:
        llm = _load(options, sender)
    except (ValueError, OSError, MemoryError) as error:
        sender.send(say(Kind.FAILED, engine_wire.error_fields(error)))
        while sender.is_behind:
            time.sleep(0.01)
        return
    sender.engine = llm.engine
    sender.send(engine_wire.message(Kind.READY))
    calls = Calls(llm.engine, sender)
    while True:
        for kind, payload in messages.feed(channel.recv(_RECEIVE_BYTES)):
            if kind is Kind.SUBMIT:
                calls.submit(*engine_wire.read_submit(payload))
            elif kind is Kind.CANCEL:
                calls.cancel(engine_wire.read_cancel(payload))


def _load(options: EngineOptions, sender: Sender) -> LLM:
    def report(kind: Kind) -> Callable[[int, int], None]:
        return lambda done, total: sender.send(say(kind, [done, total]))

    return LLM(**asdict(options), progress=report(Kind.PROGRESS), warming=report(Kind.WARMING))


def _end_with(channel: socket.socket) -> None:
    """Nobody is left to answer when the other side has closed its end, which it also has when it was killed."""
    watch = select.poll()
    watch.register(channel, 0)  # says when it is hung up, and nothing else
    watch.poll()
    os._exit(0)


class Calls:
    """Requests by the numbers that the other side gave them, until it cancels them: it does so in any case."""

    def __init__(self, engine: Engine, sender: Sender) -> None:
        self._engine = engine
        self._sender = sender
        self._entries: dict[int, _Entry] = {}
        self._threads = ThreadPoolExecutor(4, "gristmill submit")

    def submit(self, first: int, requests: Sequence[Request]) -> None:
        entries = [_Entry() for _ in requests]
        self._entries.update(enumerate(entries, first))
        if any(request.params.structured_outputs is not None for request in requests):  # its grammar takes long
            self._threads.submit(self._run, first, requests, entries)
        else:
            self._run(first, requests, entries)

    def cancel(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is None:  # it was cancelled before, alone
                continue
            entry.cancelled = True
            if entry.request_id is not None:
                self._engine.cancel(entry.request_id)

    def _run(self, first: int, requests: Sequence[Request], entries: Sequence[_Entry]) -> None:
        refusal: Exception | None = None
        try:
            for number, (request, entry) in enumerate(zip(requests, entries, strict=True), first):
                if entry.cancelled:
                    continue
                entry.request_id = self._engine.submit(request, Share(self._sender, number))
                if entry.cancelled:  # meanwhile, by another thread
                    self._engine.cancel(entry.request_id)
        except Exception as error:
            refusal = error
        self._sender.send(engine_wire.submitted_message(first, refusal))


class _Entry:
    """A request here. request_id: the engine's, once it was submitted."""

    __slots__ = ("cancelled", "request_id")

    def __init__(self) -> None:
        self.cancelled = False
        self.request_id: int | None = None


if __name__ == "__main__":
    main()
