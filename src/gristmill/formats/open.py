"""Finds the reader for a path by its content, and refuses what would run code when opened."""

from __future__ import annotations

from pathlib import Path

from gristmill.formats.checkpoint import Checkpoint, ModelFormatError, bad_file, refuse_pointer, shown
from gristmill.formats.gguf import GgufCheckpoint
from gristmill.formats.gguf_header import MAGIC

_READABLE = (
    "gristmill reads .gguf files, llama2.c .bin files, .safetensors files, "
    "and folders with config.json and *.safetensors"
)
_CONVERT_PICKLE = (
    "convert it where you trust it: transformers' save_pretrained(folder, safe_serialization=True) writes safetensors, "
    "llama2.c's export.py writes .bin"
)
_PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".pkl"})
_ZIP = b"PK\x03\x04"
_START_BYTES = 64  # no reader wants more to know its own format


def open_checkpoint(path: Path) -> Checkpoint:
    """The model at `path`, a file or a folder. Only headers are read; weights stay on disk until asked for.

    Raises FileNotFoundError when there is nothing, ModelFormatError (a ValueError) when it is not a sound model.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; {_READABLE}")
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise bad_file(path, "path", "is neither a regular file nor a folder", _READABLE)
    return _open_file(path)


def _open_file(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    return GgufCheckpoint(path) if start[:4] == MAGIC else _open_other(path, start)


def _open_other(path: Path, start: bytes) -> Checkpoint:
    from gristmill.formats import llama2c  # these readers take a while to import
    from gristmill.formats.llama2c import Llama2cCheckpoint
    from gristmill.formats.safetensors import SafetensorsCheckpoint
    from gristmill.formats.safetensors_header import looks_like_safetensors

    suffix = path.suffix.lower()
    if start[:4] == llama2c.MAGIC:
        return Llama2cCheckpoint(path)
    if _is_pickle(start) or suffix in _PICKLE_SUFFIXES:
        raise _refuse_pickle(path)
    refuse_pointer(path, start)
    if looks_like_safetensors(start) or suffix == ".safetensors":
        return SafetensorsCheckpoint(path)
    if suffix == ".gguf":
        return GgufCheckpoint(path)
    if llama2c.is_plausible_v0(start) or suffix == ".bin":
        return Llama2cCheckpoint(path)
    raise bad_file(path, "first bytes", f"{shown(start[:8])} belong to no known model format", _READABLE)


def _open_folder(folder: Path) -> Checkpoint:
    from gristmill.formats.safetensors import SafetensorsCheckpoint, is_safetensors_folder

    if is_safetensors_folder(folder):
        return SafetensorsCheckpoint(folder)
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        suffix = Path(name).suffix.lower()
        if suffix in _PICKLE_SUFFIXES or (name.startswith("pytorch_model") and suffix == ".bin"):
            raise _refuse_pickle(folder / name)
    models = [name for name in names if name.endswith((".gguf", ".bin"))]
    remedy = f"open one of its files: {shown(models[0])}" if models else _READABLE
    raise bad_file(folder, "folder", "holds no *.safetensors", remedy)


def _is_pickle(start: bytes) -> bool:
    """PyTorch's zip, or pickle protocol 2 to 5. A zero in third place is no opcode: then it is llama2.c v0's dim."""
    return start.startswith(_ZIP) or (len(start) > 2 and start[0] == 0x80 and 2 <= start[1] <= 5 and start[2] != 0)


def _refuse_pickle(path: Path) -> ModelFormatError:
    return bad_file(path, "file", "is a Python pickle, which can run any code when opened", _CONVERT_PICKLE)
