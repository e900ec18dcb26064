"""`gristmill serve` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import psutil
from served import wait_until

from gristmill.serve.sockets import free_port


@contextmanager
def started(
    model: Path, *args: str, prepare: Callable[[], None] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, which may not answer yet."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "gristmill", "serve", "-m", str(model), "--threads", "1", *args]
    env = {**os.environ, "GRISTMILL_PORT": str(port)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=prepare) as process:
        try:
            yield process, url
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stderr is not None
    return process.stderr


def engine_of(process: subprocess.Popen[str], but: psutil.Process | None = None) -> psutil.Process:
    """The process that computes, as soon as it is there."""
    found = list[psutil.Process]()

    def look() -> bool:
        found[:] = [child for child in psutil.Process(process.pid).children() if child != but]
        return bool(found)

    wait_until(look)
    return found[0]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
