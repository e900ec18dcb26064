"""Checkpoints: folders that every command reads (config.json, model.safetensors, the tokenizer) and that training goes
on from (optimizer.safetensors, state.json). No pickle. A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gristmill.formats.checkpoint import bad_file
from gristmill.formats.dequantize import dequantize
from gristmill.formats.qtypes import QType
from gristmill.formats.safetensors import SafetensorsCheckpoint
from gristmill.formats.write_file import WriteError
from gristmill.formats.write_gguf import NewTensor
from gristmill.formats.write_safetensors import write_safetensors
from gristmill.train.data import BESIDE_TOKENIZER
from gristmill.train.model import Model
from gristmill.train.settings import STATE, Settings, State, write_state

LAST, BEST = "last", "best"
OPTIMIZER = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer.bin", "*.tiktoken", "*.tiktoken.gz")


def save(
    folder: Path, model: Model, optimizer: torch.optim.Optimizer, state: State, settings: Settings, tokenizer: Path
) -> None:
    """Write the checkpoint `folder`; one that is there already is replaced once the new one is complete."""
    moments = {
        f"{name}.{moment}": optimizer.state[parameter][moment]
        for name, parameter in model.by_name.items()
        for moment in _MOMENTS
        if optimizer.state.get(parameter)
    }
    with _replacing(folder) as new:
        _write(new / "config.json", json.dumps(model.hf_config, indent=1).encode())
        _write_tensors(new / "model.safetensors", model.tensors())
        _write_tensors(new / OPTIMIZER, moments)
        _write(new / STATE, write_state(state, settings))
        _copy_tokenizer(tokenizer, new)


def link(source: Path, target: Path) -> None:
    """Make `target` the same checkpoint as `source`; on most file systems without more space."""
    with _replacing(target) as new:
        for path in source.iterdir():
            try:
                os.link(path, new / path.name)
            except OSError:
                shutil.copy2(path, new / path.name)


def find(folder: Path) -> Path:
    """The checkpoint to resume from: the run's last one, or the folder itself. ValueError where there is none.

    Where a crash came while the last one was replaced, the one before takes its place again.
    """
    _recover(folder / LAST)
    for candidate in (folder / LAST, folder):
        if (candidate / STATE).is_file():
            return candidate
    raise ValueError(f"{folder}: holds no checkpoint to resume from ({LAST}/{STATE}); start again without --resume")


def mend_best(folder: Path, state: State, settings: Settings) -> None:
    """Make the run's last checkpoint its best where that is what it says, and a crash came between the two.

    state, settings: those of the last checkpoint. One process alone may do this.
    """
    last, best = folder / LAST, folder / BEST
    _recover(best)
    is_best = state.best is not None and state.n_worse == 0 and settings.evaluates_after(state.step)
    if is_best and last.is_dir() and not _same(last / STATE, best / STATE):
        link(last, best)


def load_optimizer(folder: Path, model: Model, optimizer: torch.optim.Optimizer, n_steps: int) -> None:
    """Give `optimizer` the moments that `save` wrote after n_steps. ValueError where they do not fit the model."""
    stored = SafetensorsCheckpoint(folder / OPTIMIZER)
    there = set(stored.names())
    for name, parameter in model.by_name.items():
        moments = dict[str, Tensor]()
        for moment in _MOMENTS:
            key = f"{name}.{moment}"
            if key not in there or stored.get(key).shape != tuple(parameter.shape):
                raise bad_file(folder / OPTIMIZER, f"tensor {key!r}", "is missing or of another shape")
            moments[moment] = torch.tensor(dequantize(stored.get(key)), device=parameter.device)
        step = torch.tensor(float(n_steps), device=parameter.device)
        optimizer.state[parameter] = {"step": step, **moments}


def find_tokenizer(path: Path) -> Path:
    """The tokenizer file at `path`, a file or a folder with one."""
    if path.is_dir():
        for name in _TOKENIZER_FILES:
            for found in sorted(path.glob(name)):
                return found
    if not path.is_file():
        raise ValueError(f"--tokenizer {path}: no such file, nor a folder with one of {', '.join(_TOKENIZER_FILES)}")
    return path


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _copy_tokenizer(source: Path, folder: Path) -> None:
    """Under the name by which its kind is found in a model's folder."""
    named = {".json": "tokenizer.json", ".model": "tokenizer.model", ".bin": "tokenizer.bin"}
    _write(folder / named.get(source.suffix, source.name), source.read_bytes())
    for name in BESIDE_TOKENIZER:
        if (source.parent / name).is_file():
            _write(folder / name, (source.parent / name).read_bytes())


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """As float32."""

    def pieces(tensor: Tensor) -> list[memoryview]:
        return [np.ascontiguousarray(tensor.detach().float().cpu().numpy(), "<f4").data]

    new = [NewTensor(name, QType.F32, tuple(t.shape), partial(pieces, t)) for name, t in tensors.items()]
    write_safetensors(path, new)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new folder, which takes the place of `folder` when the block ends without an error, and goes otherwise."""
    temporary = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _replace(temporary, folder)
    except OSError as error:
        if error.filename is not None:
            raise
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error}; nothing of it was kept") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(temporary: Path, folder: Path) -> None:
    """A folder cannot take another's place in one go: for a moment only the old one, renamed, is there."""
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    parent = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _recover(folder: Path) -> None:
    """After a crash at that moment."""
    if not folder.exists():
        with suppress(FileNotFoundError):  # as there was none, or another process of the group was faster
            folder.with_name(f".{folder.name}.old").rename(folder)
