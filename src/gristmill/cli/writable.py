"""Whether what a command is to write can be written: asked before long work begins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

_MOST_SOCKET_BYTES = 107 if sys.platform == "linux" else 103  # of sun_path, which a zero ends


def check_file(flag: str, path: Path) -> None:
    """UsageError that says why there can be no such file. flag: the option that names it."""
    if path.is_dir():
        raise click.UsageError(f"{flag} {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise click.UsageError(f"{flag} {path}: there is no folder {path.parent}; make it, or name another")
    if path.exists():
        _check_access(flag, path, path)
    if path.is_file() or not path.exists():  # it is written beside its place
        _check_access(flag, path, path.resolve().parent)


def check_socket(flag: str, path: Path) -> None:
    """The same of a Unix socket, which takes the place of another one."""
    n_bytes = len(os.fsencode(path))
    if n_bytes > _MOST_SOCKET_BYTES:
        raise click.UsageError(f"{flag} {path}: has {n_bytes} bytes, a socket's path {_MOST_SOCKET_BYTES} at most")
    check_file(flag, path)
    if path.exists() and not path.is_socket():
        raise click.UsageError(f"{flag} {path}: is there already and no socket; name another place")


def check_folder(flag: str, path: Path) -> None:
    """The same of a folder that is there or is to be made, with those above it."""
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise click.UsageError(f"{flag} {path}: {there} is a file; name a folder")
    _check_access(flag, path, there)


def _check_access(flag: str, path: Path, there: Path) -> None:
    if not os.access(there, os.W_OK):
        raise click.UsageError(f"{flag} {path}: {there} may not be written to; change that, or name another place")
