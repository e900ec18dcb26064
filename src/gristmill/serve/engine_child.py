"""A process with an engine as its parent sees it: started, watched, talked to, ended, and why it ended. It knows no
request."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Final, cast

from gristmill.engine.engine import Load
from gristmill.serve.engine_wire import EngineOptions, Kind, Messages, error_of, options_message, read_status
from gristmill.serve.giving_way import spare

MAX_SILENT_S: Final = 60
MAX_STEP_S: Final = 900
"""One step of the engine: 512 tokens of a prompt at half a token a second."""

_log = logging.getLogger(__name__)

_LAST_LINES: Final = 20
_MAX_LINE_BYTES: Final = 4096
_REAP_S: Final = 1.0
_RECEIVE_BYTES: Final = 1 << 18
_NOTHING: Final = Load(0, 0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told, on the event loop. take: messages about requests. progress: (bytes loaded, bytes in all). warming:
    (steps done, steps in all)."""

    take: Callable[[Kind, bytes], None]
    progress: Callable[[int, int], None]
    warming: Callable[[int, int], None]
    ready: Callable[[], None]


class EngineChild(asyncio.BufferedProtocol):
    """One process, from `start` to `ended` or `close`. For the event loop's thread.

    ready_at    when it was ready for requests, in seconds of time.monotonic; None before
    loaded      share of the model, 0 to 1
    load        of its engine, as it was told last
    load_error  why the model cannot be loaded; the process then ends by itself
    """

    def __init__(self, process: subprocess.Popen[bytes], watch: Watch) -> None:
        self.ready_at: float | None = None
        self.loaded = 0.0
        self.load = _NOTHING
        self.load_error: Exception | None = None
        self._process = process
        self._watch = watch
        self._messages = Messages()
        self._room = memoryview(bytearray(_RECEIVE_BYTES))
        self._lost = asyncio.Event()
        self._why: str | None = None
        self._n_silent = self._n_in_step = self._n_steps = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._transport: asyncio.WriteTransport | None = None
        assert process.stdout is not None
        self._words = threading.Thread(target=_forward, args=(process.stdout, self._last_lines), daemon=True)
        self._words.start()

    @classmethod
    async def start(cls, options: EngineOptions, watch: Watch) -> EngineChild:
        """A fresh interpreter: nothing of this process but its environment is there."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "gristmill.serve.engine_process"]
        with theirs:
            process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C at a terminal is for this process, which lets answers finish
            )
        spare(process.pid)
        child = cls(process, watch)
        await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=ours)
        child.send(options_message(options))
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_lines(self) -> list[str]:
        """What it wrote at last, for people."""
        return list(self._last_lines)

    def send(self, data: bytes) -> None:
        """Nothing happens where the process has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def tick(self) -> None:
        """To be called every second: ends a process that hangs, as a whole or in a step of its engine.

        Calls are counted, as a clock would also count the time in which this process was stopped with the other.
        """
        self._n_silent += 1
        self._n_in_step = self._n_in_step + 1 if self.load.n_running and self.load.n_steps == self._n_steps else 0
        self._n_steps = self.load.n_steps
        if self._n_silent > MAX_SILENT_S:
            self._kill(f"gave no sign of life for {MAX_SILENT_S} s and was ended")
        elif self._n_in_step > MAX_STEP_S:
            self._kill(f"was in one step for {MAX_STEP_S} s and was ended")

    async def ended(self) -> str:
        """Waits for its end: how it came, as in 'was ended by SIGSEGV'."""
        await self._lost.wait()
        code = await asyncio.to_thread(self._reap)
        if self._why is not None:
            return self._why
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End it: it has nothing to lose."""
        if self._transport is not None:
            self._transport.abort()
        self._process.kill()
        self._reap()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are no asyncio.WriteTransport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._n_silent = 0
        for kind, payload in self._messages.feed(self._room[:nbytes]):
            self._hear(kind, payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()

    def _hear(self, kind: Kind, payload: bytes) -> None:
        match kind:
            case Kind.ALIVE:
                pass
            case Kind.STATUS:
                self.load = read_status(payload)
            case Kind.PROGRESS:
                done, total = json.loads(payload)
                self.loaded = done / max(1, total)
                self._watch.progress(done, total)
            case Kind.WARMING:
                self._watch.warming(*json.loads(payload))
            case Kind.READY:
                self.ready_at = time.monotonic()
                self._watch.ready()
            case Kind.FAILED:
                self.load_error = error_of(json.loads(payload))
            case _:
                self._watch.take(kind, payload)

    def _kill(self, why: str) -> None:
        self._why = why
        self._process.kill()

    def _reap(self) -> int:
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:  # it let go of its socket, and stays
            self._process.kill()
            code = self._process.wait()
        self._words.join(_REAP_S)
        return code


def _forward(pipe: IO[bytes], last: deque[str]) -> None:
    """Into our own log, each line marked as the other process's. Control characters are escaped."""
    with pipe:
        for line in iter(lambda: pipe.readline(_MAX_LINE_BYTES), b""):
            text = line.decode(errors="replace").rstrip("\n")
            last.append("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))
            _log.warning("engine | %s", last[-1])


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} (the system may have run out of memory)" if name == "SIGKILL" else name
