"""One conversion: where it comes from, where it goes, and how tensors are read while someone watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.convert.parts import Part
from gristmill.formats.checkpoint import Checkpoint, Weight
from gristmill.formats.qtypes import QType
from gristmill.formats.quantize_rows import RowQuantizer
from gristmill.formats.write_gguf import NewTensor
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.types import ModelConfig

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Job:
    """What the writers of all formats share.

    vocabulary  what the new files are to hold; None to copy what the old ones do, or where there is none
    total       bytes of all tensors as they are stored, for progress
    types       bytes written by type
    """

    checkpoint: Checkpoint
    config: ModelConfig
    out: Path
    name: str
    quantizer: RowQuantizer
    vocabulary: Vocabulary | None
    progress: Progress | None
    total: int
    done: int = 0
    types: Counter[str] = field(default_factory=Counter)

    @property
    def dense_width(self) -> int:
        """How wide layers without experts would be, which files also say of models that have none."""
        c, said = self.config, self.checkpoint.metadata
        width = said.get("intermediate_size", said.get(f"{c.arch}.feed_forward_length"))
        return width if isinstance(width, int) else c.d_ff

    def tensor(self, part: Part, qtype: QType) -> NewTensor:
        """`part` as it is to be written; its bytes are made when they are asked for."""
        return NewTensor(part.name, qtype, part.shape, lambda: self.pieces(part, qtype))

    def pieces(self, part: Part, qtype: QType, group: int = 0) -> Iterator[Any]:
        """The bytes of `part`, which is one weight, as `qtype`, as Q8_GROUPS where group is not 0."""
        (weight,) = part.get()
        chunks = (
            self.quantizer.encode_groups(weight, group, self.leave)
            if group
            else self.quantizer.encode(weight, qtype, self.leave)
        )
        for chunk in chunks:
            self.types[QType.Q8_GROUPS.label if group else qtype.label] += chunk.nbytes
            yield chunk

    def leave(self, stored: Weight) -> None:
        """What was stored there has been read for the last time."""
        self.checkpoint.release(stored)
        self.done = min(self.total, self.done + stored.data.nbytes)
        if self.progress:
            self.progress(self.done, self.total)
