"""Reads safetensors models: a file, or a folder with config.json, one or many files, and perhaps an index.

The only model knowledge here is how weights of few bits are stored: gpt-oss's experts as a tensor of 4-bit blocks
beside one of scales, and FP8 beside its scales (`formats/safetensors_fp8.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gristmill.formats.checkpoint import DAMAGED, Weight, bad_file, shown
from gristmill.formats.mapped import MappedFile, release_weight
from gristmill.formats.qtypes import QType
from gristmill.formats.safetensors_fp8 import Fp8
from gristmill.formats.safetensors_header import StoredTensor, read_header, read_json_file

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
MAX_CONFIG_BYTES = 4 << 20
MAX_INDEX_BYTES = 32 << 20
MAX_FILE_NAME_BYTES = 255

_QTYPES = {"F32": QType.F32, "F16": QType.F16, "BF16": QType.BF16}
_PAIR_SUFFIXES = (("_blocks", "_scales"), (".blocks", ".scales"))  # Hugging Face's layout, OpenAI's original one
_BLOCK_BYTES = QType.MXFP4_SPLIT.block_bytes
_BLOCK_SIZE = QType.MXFP4_SPLIT.block_size
_ORIGINAL_GPT_OSS_NAMES = ("embedding.weight", "unembedding.weight", "block.0.attn.qkv.weight")
_COMPLETE = "download every file of the model into the folder"


class SafetensorsCheckpoint:
    """A safetensors file or folder. metadata is config.json as parsed; a lone file without one has none.

    Experts stored as `NAME_blocks` and `NAME_scales` (or `NAME.blocks`, `NAME.scales`) appear as one MXFP4_SPLIT weight
    NAME of shape (n_experts, rows, cols); FP8 has its scales with it. `format` is 'gpt-oss' for OpenAI's original
    layout, else 'safetensors'.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path if path.is_dir() else path.parent
        config = folder / CONFIG_NAME
        if path.is_dir() and not config.exists():
            raise bad_file(config, "file", "is missing", _COMPLETE)
        self.metadata: Mapping[str, Any] = read_json_file(config, MAX_CONFIG_BYTES) if config.exists() else {}
        stored = _read_folder(path) if path.is_dir() else _read_file(path)
        self._files = list({tensor.file.path: tensor.file for tensor in stored.values()}.values())
        self._pairs = _find_pairs(stored)
        self._fp8 = Fp8(stored, self.metadata)
        parts = {half.name for pair in self._pairs.values() for half in pair} | self._fp8.beside
        self._tensors = {name: tensor for name, tensor in stored.items() if name not in parts}
        self.format = "gpt-oss" if all(name in stored for name in _ORIGINAL_GPT_OSS_NAMES) else "safetensors"

    def names(self) -> Iterable[str]:
        return [*self._tensors, *self._pairs]

    def get(self, name: str) -> Weight:
        """The tensor `name`. KeyError when there is none, ModelFormatError when its dtype is none of F32, F16, BF16 and
        F8_E4M3."""
        if name in self._pairs:
            return _join_pair(name, *self._pairs[name])
        tensor = self._tensors[name]
        if tensor.dtype == "F8_E4M3":
            return self._fp8.join(tensor)
        qtype = _QTYPES.get(tensor.dtype)
        if qtype is None:
            problem = f"has dtype {tensor.dtype}, which gristmill does not compute"
            remedy = (
                "save the model as F32, F16, BF16 or FP8 (F8_E4M3); 4-bit experts need both blocks and scales as U8"
            )
            raise bad_file(tensor.file.path, f"tensor {shown(name)}", problem, remedy)
        data = tensor.file.view(tensor.offset, tensor.n_bytes, qtype.alignment)
        return Weight(name, data, qtype, tensor.shape)

    def release(self, weight: Weight) -> None:
        release_weight(self._files, weight)

    def release_all(self) -> None:
        for file in self._files:
            file.release_all()


def is_safetensors_folder(folder: Path) -> bool:
    return (folder / INDEX_NAME).exists() or any(folder.glob("*.safetensors"))


def _read_folder(folder: Path) -> dict[str, StoredTensor]:
    """The tensors that the index lists; without one those of model.safetensors; without that those of every file."""
    single = folder / SINGLE_NAME
    if (folder / INDEX_NAME).exists() and not (single.exists() and _is_left_over(folder / INDEX_NAME)):
        return _read_indexed(folder)
    paths = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
    stored: dict[str, StoredTensor] = {}
    for path in paths:
        for name, tensor in read_header(MappedFile(path)).items():
            if name in stored:
                problem = f"is also in {shown(stored[name].file.path.name)}"
                raise bad_file(path, f"tensor {shown(name)}", problem, "keep one model in a folder")
            stored[name] = tensor
    return stored


def _read_file(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, or of all its siblings when an index beside it says that it is only a shard."""
    if (path.parent / INDEX_NAME).exists() and path.name in _weight_map(path.parent / INDEX_NAME).values():
        return _read_indexed(path.parent)
    return read_header(MappedFile(path))


def _weight_map(index: Path) -> dict[str, Any]:
    weight_map = read_json_file(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict):
        raise bad_file(index, "weight_map", f"is {shown(weight_map)}, must be an object")
    return weight_map


def _is_left_over(index: Path) -> bool:
    """Whether none of its files is there: transformers deletes shards, and not their index, where it saves one file."""
    names = {name for name in _weight_map(index).values() if isinstance(name, str) and _is_plain(name)}
    return not any((index.parent / name).exists() for name in names)


def _read_indexed(folder: Path) -> dict[str, StoredTensor]:
    index = folder / INDEX_NAME
    shards: dict[str, dict[str, StoredTensor]] = {}
    stored: dict[str, StoredTensor] = {}
    for name, file_name in _weight_map(index).items():
        where = f"weight_map[{shown(name)}]"
        if not isinstance(file_name, str) or not _is_plain(file_name):
            raise bad_file(index, where, f"is {shown(file_name)}, must be the plain name of a file beside the index")
        if file_name not in shards:
            if not (folder / file_name).is_file():
                raise bad_file(index, where, f"names {shown(file_name)}, which is missing", _COMPLETE)
            shards[file_name] = read_header(MappedFile(folder / file_name))
        if name not in shards[file_name]:
            raise bad_file(folder / file_name, f"tensor {shown(name)}", f"is missing, {INDEX_NAME} says it is here")
        stored[name] = shards[file_name][name]
    return stored


def _is_plain(file_name: str) -> bool:
    """Whether it names a .safetensors file in the folder itself: no separator, no control character, no endless name.

    Links are followed, because the Hugging Face cache is made of them; who can place a link owns the folder.
    """
    plain = file_name.endswith(".safetensors") and file_name.isprintable() and not set(file_name) & set("/\\:")
    return plain and len(file_name.encode()) <= MAX_FILE_NAME_BYTES


def _find_pairs(stored: dict[str, StoredTensor]) -> dict[str, tuple[StoredTensor, StoredTensor]]:
    """Names of 4-bit weights with their (blocks, scales)."""
    pairs: dict[str, tuple[StoredTensor, StoredTensor]] = {}
    for name, blocks in stored.items():
        for blocks_suffix, scales_suffix in _PAIR_SUFFIXES:
            if not name.endswith(blocks_suffix):
                continue
            joint = name.removesuffix(blocks_suffix)
            scales = stored.get(joint + scales_suffix)
            if scales is None:
                problem = f"has no {shown(joint + scales_suffix)} beside it"
                raise bad_file(blocks.file.path, f"tensor {shown(name)}", problem, DAMAGED)
            if not joint or joint in stored or joint in pairs:
                raise bad_file(blocks.file.path, f"tensor {shown(name)}", f"leaves no free name {shown(joint)}")
            _check_pair(blocks, scales)
            pairs[joint] = (blocks, scales)
    return pairs


def _check_pair(blocks: StoredTensor, scales: StoredTensor) -> None:
    for half in (blocks, scales):
        if half.dtype != "U8":
            raise bad_file(half.file.path, f"tensor {shown(half.name)}", f"has dtype {half.dtype}, must be U8")
    if len(scales.shape) not in (2, 3) or 0 in scales.shape or blocks.shape != (*scales.shape, _BLOCK_BYTES):
        problem = f"has shape {blocks.shape}, {shown(scales.name)} {scales.shape}: must be the same and {_BLOCK_BYTES}"
        raise bad_file(blocks.file.path, f"tensor {shown(blocks.name)}", problem)


def _join_pair(name: str, blocks: StoredTensor, scales: StoredTensor) -> Weight:
    shape = (*scales.shape[:-1], scales.shape[-1] * _BLOCK_SIZE)
    assert math.prod(shape) == 2 * blocks.n_bytes
    data = blocks.file.view(blocks.offset, blocks.n_bytes)
    return Weight(name, data, QType.MXFP4_SPLIT, shape, scales.file.view(scales.offset, scales.n_bytes))
