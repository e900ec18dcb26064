"""Rows whose logits nobody wants leave the last layer with their keys and values, and the others do not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from engine_models import checkpoint
from numpy.typing import NDArray

from gristmill.engine.batch import build as build_batch
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import SamplingParams

LENGTHS = (37, 20)


class Counting:
    """`ops`, and how many rows each matrix was multiplied with."""

    def __init__(self, ops: CpuOps) -> None:
        self._ops = ops
        self.rows: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def linear(self, x: Any, w: Any) -> Any:
        y = self._ops.linear(x, w)
        self.rows[id(w)] = len(y)
        return y


@pytest.mark.parametrize(("model", "qtype"), [("qwen3-tiny", "Q8_0"), ("gpt-oss-tiny", "MXFP4")])
@pytest.mark.parametrize("wanted", [(1, 1), (0, 2), (0, 0)])
def test_only_wanted_rows_pass_the_last_layer(tmp_path: Path, model: str, qtype: str, wanted: tuple[int, int]) -> None:
    ops = CpuOps(2)
    decoder = build(open_checkpoint(checkpoint(tmp_path, model, qtype)), ops)
    everything = forward(decoder, cast(Ops, ops), LENGTHS)
    counting = Counting(ops)
    some = forward(decoder, cast(Ops, counting), wanted)
    rows = [end - n + i for end, n in zip(np.cumsum(LENGTHS), wanted, strict=True) for i in range(n)]
    np.testing.assert_array_equal(some.view(np.uint32), everything[rows].view(np.uint32))
    first, last = decoder.layers[0], decoder.layers[-1]
    assert counting.rows[id(first.o)] == counting.rows[id(last.qkv)] == sum(LENGTHS)
    assert counting.rows[id(last.o)] == counting.rows[id(decoder.head)] == sum(wanted)


def forward(decoder: Decoder, ops: Ops, wanted: tuple[int, int]) -> NDArray[np.float32]:
    """Logits of so many last tokens of each of two prompts."""
    config = decoder.config
    n_groups, n_blocks = len(windows_of(config)), -(-max(LENGTHS) // BLOCK_SIZE)
    kv = allocate(ops, config, [len(LENGTHS) * n_blocks] * n_groups, "f32")
    parts = []
    for s, (length, n) in enumerate(zip(LENGTHS, wanted, strict=True)):
        tokens = np.random.default_rng(s).integers(0, config.vocab_size, length).tolist()
        blocks = [list(range(s * n_blocks, (s + 1) * n_blocks)) for _ in range(n_groups)]
        sequence = Sequence(s, tokens, length, SamplingParams(temperature=0), s, frozenset(), 1, block_ids=blocks)
        parts.append(Part(sequence, length, n))
    logits: NDArray[np.float32] = ops.get(decoder.forward(ops, build_batch(parts, ops), kv))
    return np.array(logits)
