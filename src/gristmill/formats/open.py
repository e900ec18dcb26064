"""Finds the reader for a path by its content, and refuses what would run code when opened."""

from __future__ import annotations

from pathlib import Path

from gristmill.formats import llama2c
from gristmill.formats.checkpoint import Checkpoint, ModelFormatError, bad_file, shown
from gristmill.formats.llama2c import Llama2cCheckpoint

_READABLE = (
    "gristmill reads .gguf files, llama2.c .bin files, .safetensors files, "
    "and folders with config.json and *.safetensors"
)
_CONVERT_PICKLE = (
    "convert it where you trust it: transformers' save_pretrained(folder, safe_serialization=True) writes safetensors, "
    "llama2.c's export.py writes .bin"
)
_PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl")
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def open_checkpoint(path: Path) -> Checkpoint:
    """The model at `path`, a file or a folder. Only headers are read; weights stay on disk until asked for.

    Raises FileNotFoundError when there is nothing, ModelFormatError (a ValueError) when it is not a sound model.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; give a model file or folder. {_READABLE}")
    if path.is_file():
        return _open_file(path)
    raise bad_file(path, "path", "is not a model file", _READABLE)


def _open_file(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        start = file.read(llama2c.HEADER_BYTES_V0)
    if start.startswith(_PICKLE_STARTS) or path.suffix in _PICKLE_SUFFIXES:
        raise _refuse_pickle(path)
    if start[:4] == llama2c.MAGIC or llama2c.is_plausible_v0(start) or path.suffix == ".bin":
        return Llama2cCheckpoint(path)
    raise bad_file(path, "first bytes", f"{shown(start[:8])} belong to no known model format", _READABLE)


def _refuse_pickle(path: Path) -> ModelFormatError:
    return bad_file(path, "file", "is a Python pickle, which can run any code when opened", _CONVERT_PICKLE)
