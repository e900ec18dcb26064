"""The logits of a row do not depend on how a step is cut: chunks, neighbours, block order, threads, when weights are
packed. Bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from engine_models import checkpoint
from instruction_sets import isas
from numpy.typing import NDArray

from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import quantize_type
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.build import build as build_decoder
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import SamplingParams

N_BLOCKS = 40
N_TOKENS = 100
SIMPLE = ("Q8_0", "Q4_0", "Q4_1", "Q5_1", "IQ4_NL", "Q1_0")
SUPER = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S", "IQ2_XS", "IQ1_M")
MODELS = {
    "llama-wide": ("F32", "F16", "BF16", *SIMPLE, *SUPER),
    "qwen3-wide": ("Q8_0", "Q4_K"),
    "qwen3-moe-wide": ("Q4_K", "BF16"),
    "gpt-oss-wide": ("MXFP4", "Q8_0"),
    "llama2c-wide": ("Q8_GROUPS",),
}
CASES = [(model, qtype, "f16") for model, qtypes in MODELS.items() for qtype in qtypes]
CASES += [
    ("llama-wide", "F16>int8", "f16"),
    ("llama-wide", "BF16>q8_0", "f16"),
    ("llama-wide", "F32>q4_0", "f16"),
]  # quantized at load
CASES += [("llama-wide", "F16", "f32"), ("gpt-oss-wide", "Q8_0", "q8_0"), ("qwen3-wide", "Q8_0", "q8_0")]


class Machine:
    """A model on a backend, with sequences whose blocks are dealt in random order."""

    def __init__(
        self,
        path: Path,
        threads: int,
        isa: str,
        kv_type: str,
        seed: int,
        quantize: str | None = None,
        lazy: bool = False,
    ) -> None:
        self.ops = CpuOps(threads, isa, lazy=lazy)
        decoder = build_decoder(open_checkpoint(path), self.ops, quantize=quantize_type(quantize))
        assert decoder.layers[0].qkv.is_packed is not lazy
        self.vocab_size = decoder.config.vocab_size
        self.n_groups = len(windows_of(decoder.config))
        n_blocks = [N_BLOCKS] * self.n_groups
        self.runner = Runner(decoder, self.ops, allocate(self.ops, decoder.config, n_blocks, kv_type))
        self._free = [int(b) for b in np.random.default_rng(seed).permutation(N_BLOCKS)]

    def sequence(self, tokens: list[int]) -> Sequence:
        blocks = [self._free.pop() for _ in range(-(-len(tokens) // BLOCK_SIZE))]
        return Sequence(0, tokens, len(tokens), SamplingParams(), 0, frozenset(), 1, block_ids=[blocks] * self.n_groups)

    def step(self, work: list[tuple[Sequence, int]]) -> list[NDArray[np.float32]]:
        """Logits of all tokens of each part."""
        logits = self.runner.forward(build([Part(s, n, n) for s, n in work], self.ops))
        for s, n in work:
            s.n_computed += n
        return np.split(logits, np.cumsum([n for _, n in work])[:-1])

    def run(self, tokens: list[int], cuts: list[int]) -> NDArray[np.float32]:
        sequence = self.sequence(tokens)
        return np.concatenate([self.step([(sequence, n)])[0] for n in cuts])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize(("model", "qtype", "kv_type"), CASES, ids=["-".join(case) for case in CASES])
@pytest.mark.parametrize("isa", isas())
def test_any_cut_any_neighbours_any_threads(folder: Path, model: str, qtype: str, kv_type: str, isa: str) -> None:
    stored, _, target = qtype.partition(">")
    path = checkpoint(folder, model, stored)
    machine = partial(Machine, path, isa=isa, kv_type=kv_type, quantize=target or None)
    rng = np.random.default_rng(0)
    first = machine(threads=2, seed=0)
    texts = [rng.integers(first.vocab_size, size=n).tolist() for n in (N_TOKENS, 61, 90)]
    alone = [first.run(text, [len(text)]) for text in texts]

    other = machine(threads=1, seed=1, lazy=True)
    cuts = np.diff([0, *sorted(rng.choice(np.arange(1, N_TOKENS), 11, replace=False).tolist()), N_TOKENS]).tolist()
    np.testing.assert_array_equal(other.run(texts[0], cuts), alone[0])
    np.testing.assert_array_equal(other.run(texts[1], [40] + [1] * 21), alone[1])

    crowd = machine(threads=3, seed=2, lazy=True)
    sequences = [crowd.sequence(text) for text in texts]
    seen: list[list[NDArray[np.float32]]] = [[], [], []]
    while any(s.n_computed < len(s.tokens) for s in sequences):
        work = [
            (s, min(int(rng.choice([1, 1, 2, 17, 33])), len(s.tokens) - s.n_computed))
            for s in rng.permutation(np.array(sequences, dtype=object))
            if s.n_computed < len(s.tokens)
        ]
        for (s, _), logits in zip(work, crowd.step(work), strict=True):
            seen[sequences.index(s)].append(logits)
    for chunks, expected in zip(seen, alone, strict=True):
        np.testing.assert_array_equal(np.concatenate(chunks), expected)


def test_the_comparison_can_fail(folder: Path) -> None:
    """Another token early on changes what follows."""
    machine = Machine(checkpoint(folder, "llama-wide", "Q8_0"), 1, "auto", "f16", 0)
    text = np.random.default_rng(0).integers(machine.vocab_size, size=40).tolist()
    a, b = machine.run(text, [40]), machine.run([(text[0] + 1) % machine.vocab_size, *text[1:]], [40])
    assert (a != b).any(axis=-1).all()
