"""Whether a card computes what the processor does, and which bits depend on neighbours."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from gpu_report import Report
from model_shapes import SHAPES
from numpy.typing import NDArray

from gristmill import LLM, SamplingParams
from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.kv.cache import allocate, windows_of
from gristmill.models.decoder import Decoder
from gristmill.ops.cuda import CudaOps
from gristmill.ops.interface import BLOCK_SIZE

BF16_TOLERANCE = 0.05
"""Of the largest logit: what 8 bits of significance leave after some dozens of layers."""


def tokens(name: str, n_tokens: int, report: Report) -> bool:
    """Greedy texts of a random float32 model, with float32 keys and values, on the processor and on the card."""
    with tempfile.TemporaryDirectory() as folder:
        path = _random_file(name, "f32", Path(folder))
        rng = np.random.default_rng(0)
        prompts = [rng.integers(SHAPES[name].vocab_size, size=n).tolist() for n in (3, 21, 1)]
        params = SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True)
        texts = []
        for device in ("cpu", "cuda"):
            with LLM(path, device=device, kv_type="f32", max_context=128, max_sequences=2) as llm:
                texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, params)])
    same = [ours == theirs for ours, theirs in zip(*texts, strict=True)]
    report.say("tokens", model=name, texts=len(same), equal=sum(same))
    return all(same)


def logits(name: str, kind: str, n_tokens: int, report: Report) -> bool:
    """Of a random text, float32 keys and values on the processor, f16 on the card."""
    with tempfile.TemporaryDirectory() as folder:
        path = _random_file(name, kind, Path(folder))
        ids = np.random.default_rng(0).integers(SHAPES[name].vocab_size, size=n_tokens).tolist()
        found = []
        for device, kv_type in (("cpu", "f32"), ("cuda", "f16")):
            with LLM(path, device=device, kv_type=kv_type, max_context=n_tokens, max_sequences=1) as llm:
                found.append(llm.logits(ids).astype(np.float64))
    exact, actual = found
    worst = float(np.abs(actual - exact).max() / np.abs(exact).max())
    report.say(
        "logits",
        model=name,
        type=kind,
        worst=worst,
        root_mean_square=float(np.sqrt(((actual - exact) ** 2).mean()) / exact.std()),
        kl=_divergence(exact, actual),
        same_top_1=float((exact.argmax(1) == actual.argmax(1)).mean()),
    )
    return worst < BF16_TOLERANCE


def invariance(decoder: Decoder, ops: CudaOps, batches: list[int], n_prompt: int, report: Report) -> None:
    """Whether the logits of one sequence have the same bits with other sequences beside it, and of a prompt in pieces.

    The step of a token is done again and again from the same keys and values.
    """
    n = max(batches)
    per_sequence = -(-(n_prompt + 1) // BLOCK_SIZE)
    n_groups = len(windows_of(decoder.config))
    runner = Runner(decoder, ops, allocate(ops, decoder.config, [n * per_sequence] * n_groups, "f16"))
    rng = np.random.default_rng(0)
    texts = rng.integers(decoder.config.vocab_size, size=(n, n_prompt + 1)).tolist()

    def part(i: int, n_before: int, n_new: int) -> Part:
        text, n_known = texts[i][: n_before + n_new], n_before + n_new
        blocks = [list(range(i * per_sequence, (i + 1) * per_sequence))] * n_groups
        params = SamplingParams(temperature=0)
        sequence = Sequence(i, text, n_known, params, 0, frozenset(), 1, n_computed=n_before, block_ids=blocks)
        return Part(sequence, n_new, 1)

    def last(*parts: Part) -> NDArray[np.float32]:
        """Of the first sequence."""
        return runner.forward(build(list(parts), ops))[0]

    whole = last(part(0, 0, n_prompt))
    piece = n_prompt // 2
    last(part(0, 0, piece))
    _say("prompt in halves", last(part(0, piece, n_prompt - piece)), whole, report)
    for i in range(1, n):
        last(part(i, 0, n_prompt))
    _say("prompt again", last(part(0, 0, n_prompt)), whole, report)
    if n > 1:
        _say("prompt beside one", last(part(0, 0, n_prompt), part(1, n_prompt, 1)), whole, report)
    first: NDArray[np.float32] | None = None
    for size in sorted(batches):
        found = last(*(part(i, n_prompt, 1) for i in range(size)))
        first = found if first is None else first
        _say(f"token beside {size - 1}", found, first, report)
        if size == 1:
            first = None  # a token alone takes another kernel


def _say(what: str, found: NDArray[np.float32], expected: NDArray[np.float32], report: Report) -> None:
    same = bool((found.view(np.uint32) == expected.view(np.uint32)).all())
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    report.say("bits", of=what, same=same, worst=worst)


def _random_file(name: str, kind: str, folder: Path) -> Path:
    import random_model  # needs gguf, which nothing else here does

    path = folder / f"{name}-{kind}.gguf"
    random_model.write_gguf(SHAPES[name], kind, path, None, 0, lambda line: None)
    return path


def _divergence(exact: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    """Mean Kullback-Leibler divergence of what rows of logits expect."""

    def logs(x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = x - x.max(axis=1, keepdims=True)
        shifted: NDArray[np.float64] = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return shifted

    p, q = logs(exact), logs(actual)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())
