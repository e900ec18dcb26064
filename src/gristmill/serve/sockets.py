"""The sockets of a server, which are its own before a model is loaded, and nobody else's."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gristmill.serve.server import Listen

_ANYBODY_WRITES = 0o666


@contextmanager
def bound(listen: Listen) -> Iterator[list[socket.socket]]:
    """Those of a place, for `Server.run`; until then nobody is connected. Nothing is left of them. OSError says what is
    in the way."""
    try:
        sockets = [_at_path(Path(listen.uds))] if listen.uds is not None else _at_port(listen.host, listen.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"a program listens at {listen.url} already: end it, or name another place") from None
        raise OSError(f"cannot listen at {listen.url}: {error.strerror or error}") from None
    made = os.stat(listen.uds) if listen.uds is not None else None
    try:
        yield sockets
    finally:
        if made is not None and listen.uds is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(made, os.stat(listen.uds)):
                    os.unlink(listen.uds)
        for each in sockets:
            each.close()


def free_port() -> int:
    """A port that nobody listened at a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _at_port(host: str, port: int) -> list[socket.socket]:
    """One of each address of the host. Families that this machine lacks are left out where there are others."""
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(places):
        try:
            sockets.append(_at_address(family, address))
        except OSError as error:
            if failure is None or error.errno == errno.EADDRINUSE:
                failure = error
    if failure is not None and (failure.errno == errno.EADDRINUSE or not sockets):
        for each in sockets:
            each.close()
        raise failure
    return sockets


def _at_path(path: Path) -> socket.socket:
    """In the place, and with the permissions, of a socket that a server left behind, but not of one that is alive."""
    mode = _ANYBODY_WRITES
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as client, suppress(ConnectionRefusedError):
            client.connect(str(path))
            raise OSError(errno.EADDRINUSE, "a server is there")
        mode = path.stat().st_mode & 0o777
        path.unlink()
    one = _at_address(socket.AF_UNIX, str(path))
    os.chmod(path, mode)
    return one


def _at_address(family: int, address: Any) -> socket.socket:
    one = socket.socket(family)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one
