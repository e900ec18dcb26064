"""How a model's maker would have its tokens chosen: what its files say of sampling, by the names of SamplingParams.

GGUF says it under `general.sampling.`, as llama.cpp has it, a folder in generation_config.json, as transformers has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from gristmill.formats.checkpoint import Checkpoint, bad_file, shown
from gristmill.formats.open import open_checkpoint
from gristmill.models.hyperparameters import read_config
from gristmill.types import RECOMMENDED, SamplingParams

logger = logging.getLogger(__name__)

FILE_NAME: Final = "generation_config.json"
_MAX_BYTES: Final = 4 << 20
_REMEDY: Final = "correct it, or leave it aside: --generation-config none"
_GGUF: Final[Mapping[str, str]] = {
    name: f"general.sampling.{key}"
    for name, key in zip(RECOMMENDED, ("temp", "top_k", "top_p", "min_p", "penalty_repeat"), strict=True)
}

_NOT_THERE: Final[Mapping[str, tuple[Any, ...]]] = {
    "general.sampling.sequence": (),
    "general.sampling.xtc_probability": (0,),
    "general.sampling.mirostat": (0,),
    "general.sampling.penalty_last_n": (-1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "typical_p": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "penalty_alpha": (0,),
    "num_beams": (1,),
    "bad_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({}, []),
}
"""What would change answers and is nothing that gristmill does, with the values that ask for nothing."""

_QWEN3: Final[Mapping[str, Any]] = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
_QWEN3_UNTHINKING: Final[Mapping[str, Any]] = {"temperature": 0.7, "top_k": 20, "top_p": 0.8}


@dataclass(frozen=True, slots=True)
class Recommended:
    """What a model's files say; what they do not is left out. A family's are of its makers, where files are silent."""

    said: Mapping[str, Any] = field(default_factory=dict)
    is_qwen3: bool = False

    def in_chat(self, thinks: bool) -> Mapping[str, Any]:
        """Of an answer. thinks: a thought is expected of it; Qwen3's files speak of such answers alone."""
        if not self.is_qwen3 or self.said not in ({}, _QWEN3):
            return self.said
        return _QWEN3 if thinks else _QWEN3_UNTHINKING


@dataclass(frozen=True, slots=True)
class Advice:
    """Where a model's files speak of sampling. It is read when it is asked for: it may be wrong, or not wanted.

    path    the file that says it
    fields  what a GGUF file says; None where `path` is a JSON file of its own, which need not be there
    """

    path: Path
    fields: Mapping[str, Any] | None
    is_qwen3: bool

    @staticmethod
    def of(checkpoint: Checkpoint) -> Advice:
        is_qwen3 = read_config(checkpoint).arch in ("qwen3", "qwen3moe")
        if checkpoint.format == "gguf":
            keys = (*_GGUF.values(), *_NOT_THERE)
            said = {key: checkpoint.metadata[key] for key in keys if key in checkpoint.metadata}
            return Advice(checkpoint.path, said, is_qwen3)
        if checkpoint.format == "llama2c":
            return Advice(checkpoint.path, {}, is_qwen3)
        folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
        return Advice(folder / FILE_NAME, None, is_qwen3)

    def read(self) -> Recommended:
        """ModelFormatError naming what is out of range. Logs what is said and cannot be done."""
        if self.fields is not None:
            return Recommended(_check(self.path, self.fields, _GGUF), self.is_qwen3)
        from gristmill.formats.safetensors_header import read_json_file

        said = read_json_file(self.path, _MAX_BYTES) if self.path.is_file() else {}
        return Recommended(_check(self.path, said, {name: name for name in RECOMMENDED}), self.is_qwen3)


def read_recommended(path: Path) -> Recommended:
    """Of the model at `path`. ModelFormatError naming what is out of range. Logs what is said and cannot be done."""
    return Advice.of(open_checkpoint(path)).read()


def said_by(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The same of an open model, without what its family does."""
    return Advice.of(checkpoint).read().said


def gguf_keys(said: Mapping[str, Any]) -> dict[str, Any]:
    """The key-values of a GGUF file that say the same, in llama.cpp's types."""
    return {_GGUF[name]: np.int32(value) if name == "top_k" else float(value) for name, value in said.items()}


def _check(path: Path, fields: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value = fields.get(key)
        if value is not None:
            found[name] = _number(path, name, key, value)
    for key, neutral in _NOT_THERE.items():
        value = fields.get(key)
        if value is not None and not (isinstance(value, int | float | list | dict) and value in neutral):
            logger.warning("%s: %s is %s, which is not supported and left aside", path.name, key, shown(value))
    return found


def _number(path: Path, name: str, key: str, value: Any) -> Any:
    try:
        if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
            raise ValueError(f"{name} must be a {'whole ' if name == 'top_k' else ''}number")
        number: Any = max(0, value) if name == "top_k" else float(f"{value:.7g}")  # -1 keeps all; 0.95 in 32 bits
        SamplingParams(**{name: number})
    except (ValueError, OverflowError) as error:
        raise bad_file(path, f"key {key!r}", f"is {shown(value)}: {error}", _REMEDY) from None
    return number
