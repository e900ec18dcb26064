"""Weights in FP8 as Hugging Face's models have them: codes, and what they are multiplied by in a tensor beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import DAMAGED, Weight, bad_file, shown
from gristmill.formats.qtypes import QType
from gristmill.formats.safetensors_header import StoredTensor

_SCALES = ("_scale_inv", "_scale")  # Qwen, DeepSeek and transformers; compressed-tensors and ModelOpt. Both multiply
_OF_ACTIVATIONS = (".input_scale", ".k_scale", ".v_scale")  # of what is not rounded to FP8 here
_BLOCK = (128, 128)
_FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_REMEDY = "save the model as BF16, or take a GGUF file of it"


class Fp8:
    """The FP8 weights among `stored`: `X.weight` beside `X.weight_scale_inv` or `X.weight_scale`.

    metadata  config.json, whose quantization_config says how large blocks are that share a scale
    beside    names of the tensors that belong to them
    """

    def __init__(self, stored: Mapping[str, StoredTensor], metadata: Mapping[str, Any]) -> None:
        self._stored = stored
        said = metadata.get("quantization_config")
        self._block = said.get("weight_block_size") if isinstance(said, Mapping) else None
        names = [name for name, tensor in stored.items() if tensor.dtype == "F8_E4M3"]
        self._scales = {name: scales for name in names if (scales := self._scales_of(name)) is not None}
        self.beside = {scales.name for scales in self._scales.values()}
        if names:
            self.beside |= {name for name in stored if name.endswith(_OF_ACTIVATIONS)}

    def join(self, codes: StoredTensor) -> Weight:
        """ModelFormatError for a tensor without scales, or whose scales are not one for all, for each row or block."""
        scales = self._scales.get(codes.name)
        if scales is None:
            names = " nor ".join(shown(codes.name + end) for end in _SCALES)
            raise bad_file(
                codes.file.path, f"tensor {shown(codes.name)}", f"is FP8 and has no {names} beside it", _REMEDY
            )
        if len(codes.shape) != 2 or 0 in codes.shape:
            problem = f"is FP8 and has shape {codes.shape}, which must be rows and columns"
            raise bad_file(codes.file.path, f"tensor {shown(codes.name)}", problem, _REMEDY)
        data = codes.file.view(codes.offset, codes.n_bytes)
        return Weight(codes.name, data, QType.FP8_GROUPS, codes.shape, self._of_rows(codes, scales))

    def _scales_of(self, name: str) -> StoredTensor | None:
        return next((self._stored[name + end] for end in _SCALES if name + end in self._stored), None)

    def _of_rows(self, codes: StoredTensor, scales: StoredTensor) -> NDArray[np.float32]:
        """float32 [rows, groups of columns]; a view of fewer where they allow that."""
        (rows, cols), values = codes.shape, _floats(scales)
        if not np.isfinite(values).all():
            raise bad_file(scales.file.path, f"tensor {shown(scales.name)}", "holds numbers that are not finite")
        if values.size == 1:
            return np.broadcast_to(values.reshape(1, 1), (rows, 1))
        if scales.shape in ((rows,), (rows, 1)):
            return values.reshape(rows, 1)
        block_rows, block_cols = self._block_size(codes)
        if scales.shape != (math.ceil(rows / block_rows), math.ceil(cols / block_cols)):
            problem = f"has shape {scales.shape}, for {codes.shape} numbers in blocks of {(block_rows, block_cols)}"
            raise bad_file(scales.file.path, f"tensor {shown(scales.name)}", problem, DAMAGED)
        if cols % block_cols:  # the last block is narrower: groups that divide it, too
            group = math.gcd(cols, block_cols)
            values = np.repeat(values, block_cols // group, axis=1)[:, : cols // group]
        of_blocks = np.broadcast_to(values[:, None], (len(values), block_rows, values.shape[1]))
        return of_blocks if rows % block_rows == 0 else of_blocks.reshape(-1, values.shape[1])[:rows]

    def _block_size(self, codes: StoredTensor) -> tuple[int, int]:
        if self._block is None:
            return _BLOCK
        match self._block:
            case [int(rows), int(cols)] if 0 < rows <= 1 << 16 and 0 < cols <= 1 << 16:
                return rows, cols
        problem = f"is {shown(self._block)}, must be two numbers: rows and columns that share a scale"
        raise bad_file(codes.file.path, "config.json's weight_block_size", problem)


def _floats(tensor: StoredTensor) -> NDArray[np.float32]:
    """float32 of the tensor's shape, a copy."""
    if tensor.dtype not in _FLOATS:
        problem = f"has dtype {tensor.dtype}, must be F32, F16 or BF16"
        raise bad_file(tensor.file.path, f"tensor {shown(tensor.name)}", problem, _REMEDY)
    stored = tensor.file.view(tensor.offset, tensor.n_bytes).view(_FLOATS[tensor.dtype])
    values = (stored.astype(np.uint32) << 16).view(np.float32) if tensor.dtype == "BF16" else stored.astype(np.float32)
    return values.reshape(tensor.shape)
