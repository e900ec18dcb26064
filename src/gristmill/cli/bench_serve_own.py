"""A `gristmill serve` of our own, in a process of its own, for as long as it is measured."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

_ENDS_WITHIN_S = 15.0
_NOT_ITS = {f"GRISTMILL_{name}" for name in ("UDS", "API_KEY", "API_KEY_FILE", "SERVED_MODEL_NAME")}
"""Meant for the servers that others ask: it would listen elsewhere, ask for keys or have names of its own."""


@contextmanager
def own_server(args: Sequence[str]) -> Iterator[str]:
    """Its address, when it answers. args: of `gristmill serve`. OSError with what it said where it ends instead."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gristmill", "serve", *args, "--host", "127.0.0.1", "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if name not in _NOT_ITS}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        try:
            _wait(process, url, said)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, said: IO[bytes]) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy need not reach this machine
    while process.poll() is None:
        try:
            with direct.open(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    said.seek(0)
    text = said.read().decode(errors="replace").strip()
    raise OSError(f"the server ended with {process.returncode}: {text[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
