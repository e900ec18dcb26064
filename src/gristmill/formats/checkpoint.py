"""What every model file looks like once opened: metadata, names, and weights that still hold the file's own bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.qtypes import QType


class ModelFormatError(ValueError):
    """A model file is not what it claims to be; the message names the file, the field or tensor, and the remedy."""


_BLOCK_SIZE = 32  # of all types that weights are quantized to at load
_LFS_POINTER = b"version https://git-lfs"
DAMAGED = "the file is damaged or incomplete: download or convert it again"


def bad_file(path: Path, where: str, problem: str, remedy: str = DAMAGED) -> ModelFormatError:
    """The error for `path`: where (field or tensor, already `shown`), what is wrong with which value, what to do."""
    return ModelFormatError(f"{shown_path(path)}: {where}: {problem}; {remedy}")


def refuse_pointer(path: Path, start: bytes) -> None:
    """ModelFormatError for what git leaves in the place of a large file that it was not told to fetch."""
    if start.startswith(_LFS_POINTER):
        raise bad_file(path, "file", "is a Git LFS pointer, not the model", "run `git lfs pull` in its folder")


def shown(value: object) -> str:
    """`value` as an error may show it: on one line, control characters escaped, cut when long."""
    lines = repr(value[:100] if isinstance(value, str | bytes) else value).splitlines()  # an array has several
    text = " ".join(line.strip() for line in lines)
    return text if len(text) <= 120 else f"{text[:117]}..."


def shown_path(path: Path) -> str:
    """`path` without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor as its file stores it.

    name         the tensor's name in the file, for errors
    data         uint8 [n_bytes], C-contiguous, usually a read-only view of the file's memory map
    qtype        how `data` encodes numbers
    shape        logical shape, outermost first: (n,), (rows, cols) or (n_experts, rows, cols); cols are contiguous
    scales       the second array of types that keep scales apart: uint8 (E8M0) for MXFP4_SPLIT, otherwise float32
    row_order    int32 [rows]: logical row r is stored as row `row_order[r]`; None when they are the same
    quantize_to  what a backend should keep these floats as, None for what they are
    """

    name: str
    data: NDArray[np.uint8]
    qtype: QType
    shape: tuple[int, ...]
    scales: NDArray[Any] | None = None
    row_order: NDArray[np.int32] | None = None
    quantize_to: QType | None = None

    @property
    def n_elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def take_rows(self, order: NDArray[np.int32]) -> Weight:
        """The same bytes seen with rows in another order (or with fewer rows): row r becomes row `order[r]`.

        A vector's rows are its elements; a stack of experts has every expert's rows taken alike.
        """
        order = order.astype(np.int32)
        if self.row_order is not None:
            order = self.row_order[order]
        shape = (*self.shape[:-2], len(order), self.shape[-1]) if len(self.shape) > 1 else (len(order),)
        return dataclasses.replace(self, shape=shape, row_order=order)

    def quantized_to(self, target: QType) -> Weight:
        """The same to be kept as `target` (INT8_ROWS, Q8_0, Q4_0 or MXFP4) by a backend, which quantizes it as
        `quantize.quantize` does. Itself where that is not possible: it is quantized already, or its rows are not a
        multiple of 32 long."""
        if not self.qtype.kept_as_float or self.shape[-1] % _BLOCK_SIZE:
            return self
        return dataclasses.replace(self, quantize_to=target)


class Checkpoint(Protocol):
    """An opened model: a file, a set of split files, or a folder. Reading never runs code and never trusts a count."""

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> str:
        """'gguf', 'safetensors' (Hugging Face layout), 'gpt-oss' (OpenAI's original layout) or 'llama2c'."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """GGUF key-values; or config.json as parsed; or the llama2.c header's fields by name."""
        ...

    def names(self) -> Iterable[str]: ...

    def get(self, name: str) -> Weight:
        """The tensor `name`; KeyError when the file has none."""
        ...

    def release(self, weight: Weight) -> None:
        """Tell the system that the pages behind `weight` are not needed soon (they stay readable)."""
        ...

    def release_all(self) -> None:
        """The same of all that was read, the vocabulary too."""
        ...
