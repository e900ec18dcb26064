"""Which type each tensor of a GGUF gets: llama.cpp's mixtures, by GGUF's names. Reads and quantizes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gristmill.formats.qtypes import QType

CONVERT_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q6_k", "mxfp4")
FLOAT_TYPES = ("f32", "f16", "bf16")
_BASE = {
    "f32": QType.F32,
    "f16": QType.F16,
    "bf16": QType.BF16,
    "q8_0": QType.Q8_0,
    "q4_0": QType.Q4_0,
    "q4_k_m": QType.Q4_K,
    "q6_k": QType.Q6_K,
    "mxfp4": QType.MXFP4,
}
_FILE_TYPES = {  # general.file_type, llama.cpp's name for a mixture
    "f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q6_k": 18, "bf16": 32, "mxfp4": 38,
}  # fmt: skip
_SMALLER_BLOCKS = {QType.Q4_K: QType.Q5_0, QType.Q5_K: QType.Q8_0, QType.Q6_K: QType.Q8_0}
_LAYER = re.compile(r"blk\.([0-9]+)\.")
_LAYERS_OF_70B = 80


@dataclass(frozen=True, slots=True)
class Mixture:
    """What decides on a tensor's type beside itself. label: one of CONVERT_TYPES, None for types as they are."""

    label: str | None
    n_layers: int
    tied_head: bool
    has_experts: bool
    grouped_heads: bool  # fewer key-value heads than heads

    def type_of(self, name: str, shape: tuple[int, ...], source: QType) -> QType:
        """The type of the GGUF tensor `name`, whose numbers are stored as `source` now.

        Vectors, norms, biases and routers are float32. MXFP4 experts stay what they are unless float32 is asked for.
        What is quantized already stays so where the type asked for has no more bits: it would only lose.
        """
        if is_always_float32(name, shape):
            return QType.F32
        stored = QType.MXFP4 if source is QType.MXFP4_SPLIT else source
        if self.label is None:
            return _as_it_is(stored, shape[-1])
        if stored is QType.MXFP4 and self.label in ("f16", "bf16"):
            return stored
        wanted = self.wanted(name, shape[-1])
        keeps = not stored.is_float and not stored.scales_apart and not wanted.is_float
        return stored if keeps and _bits(stored) <= _bits(wanted) else wanted

    def wanted(self, name: str, cols: int) -> QType:
        """What a float matrix of that name becomes. Where label is not None."""
        return _fitting(self.asked(name), cols)

    def asked(self, name: str) -> QType:
        """The same whatever the length of its rows."""
        assert self.label is not None
        base = _BASE[self.label]
        if base.is_float or base is QType.Q8_0:
            return base
        if self.label == "mxfp4":
            return self._wanted_mxfp4(name)
        if name == "output.weight" or (self.tied_head and name == "token_embd.weight"):
            return QType.Q6_K
        return self._wanted_q4_k_m(name) if self.label == "q4_k_m" else base

    def _wanted_mxfp4(self, name: str) -> QType:
        """Experts alone where there are some; otherwise all layers. The rest is Q8_0."""
        is_wanted = "_exps." in name if self.has_experts else name.startswith("blk.")
        return QType.MXFP4 if is_wanted else QType.Q8_0

    def _wanted_q4_k_m(self, name: str) -> QType:
        match = _LAYER.match(name)
        if match is None:
            return QType.Q4_K
        is_v, is_down = "attn_v" in name, "ffn_down" in name
        if (is_v or is_down) and _has_more_bits(int(match[1]), self.n_layers):
            return QType.Q6_K
        if is_v and self.n_layers == _LAYERS_OF_70B and self.grouped_heads:
            return QType.Q5_K
        return QType.Q4_K

    def file_type(self) -> int | None:
        return None if self.label is None else _FILE_TYPES[self.label]


def is_always_float32(name: str, shape: tuple[int, ...]) -> bool:
    """What llama.cpp takes as float32 alone."""
    return len(shape) < 2 or not name.endswith(".weight") or "_norm." in name or "ffn_gate_inp." in name


def _has_more_bits(layer: int, n_layers: int) -> bool:
    """The first and the last eighth of the layers, and every third one between."""
    eighth = n_layers // 8
    return layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2


def _fitting(wanted: QType, cols: int) -> QType:
    """The type for rows that are no multiple of its block: one with blocks of 32, or float16."""
    if cols % wanted.block_size:
        wanted = _SMALLER_BLOCKS.get(wanted, QType.F16)
    return QType.F16 if cols % wanted.block_size else wanted


def _as_it_is(stored: QType, cols: int) -> QType:
    """A type that GGUF has, with as little lost as possible."""
    if stored is QType.FP8_GROUPS:
        return QType.BF16
    return _fitting(QType.Q8_0, cols) if stored.scales_apart else stored


def _bits(qtype: QType) -> float:
    return 8 * qtype.block_bytes / qtype.block_size
