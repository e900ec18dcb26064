"""Files that appear whole or not at all: written under a temporary name beside their place, synced, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class WriteError(OSError):
    """A file could not be written; the message names it and says why. Nothing of it was left behind."""


@contextmanager
def new_file(path: Path, n_bytes: int) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error, and goes otherwise.

    n_bytes  what will be written; WriteError at once where the disk has not that much left
    A link stays, and what it leads to is replaced. WriteError for a device, a pipe or another thing that is no file.
    """
    place = _place_of(path)
    if os.path.lexists(place) and not place.is_file():
        raise WriteError(f"{path}: is there already and not a regular file; give another name")
    _check_space(path, place, n_bytes)
    part = _part_of(place)
    with _named_errors(path, part):
        try:  # a signal may come between the file and the next line
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
            _sync_folder(place.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, n_bytes: int) -> Iterator[Path]:
    """The same for a folder, which must not be there yet or be empty: gives the temporary one."""
    place = _place_of(path)
    if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
        raise WriteError(f"{path}: is there already and not an empty folder; remove it or give another name")
    if os.path.ismount(place):
        raise WriteError(f"{path}: is where a disk is mounted, which no folder can replace; give the name of one in it")
    _check_space(path, place, n_bytes)
    part = _part_of(place)
    with _named_errors(path, part):
        try:
            part.mkdir()
            yield part
            for file in sorted(part.rglob("*")):
                _sync_folder(file)
            part.replace(place)
            _sync_folder(place.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def write_whole(path: Path, data: bytes) -> None:
    """A small file of its own, as `new_file` has it; but a pipe or a device is given the data. WriteError names it."""
    if not path.exists() or path.is_file():
        with new_file(path, len(data)) as file:
            file.write(data)
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_all(file: BinaryIO, data: Any) -> int:
    """Bytes or a contiguous array; how many bytes."""
    view = memoryview(data).cast("B")
    file.write(view)
    return view.nbytes


def _place_of(path: Path) -> Path:
    """Where links lead to in the end, be something there or not."""
    return Path(os.path.realpath(path))


def _part_of(place: Path) -> Path:
    """A name that no other writer has, be it of this process or of one elsewhere that shares the folder."""
    return place.with_name(f".{place.name}.{os.urandom(8).hex()}.part")


def _check_space(path: Path, place: Path, n_bytes: int) -> None:
    if not place.parent.is_dir():
        raise WriteError(f"{path}: the folder {place.parent} is not there; make it first")
    free = shutil.disk_usage(place.parent).free
    if n_bytes > free:
        raise WriteError(f"{path}: needs {n_bytes} bytes, its disk has {free} left; free some or write elsewhere")


@contextmanager
def _named_errors(path: Path, part: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        if error.filename is not None and Path(error.filename).name != part.name:
            raise
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}; nothing of it was kept") from error


def _sync_folder(path: Path) -> None:
    """What was renamed or written there is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
