"""How fast single kernels are on a card, inside of CUDA graphs, beside torch's and as shares of what it can copy.

Matrices, and keys and values, are so many that they are not found in the card's cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from gpu_model import random_matrix
from gpu_report import ROUNDS, Report
from model_shapes import ModelShape

from gristmill.bench.card import DEVICE, timed
from gristmill.ops.triton.attention import attention
from gristmill.ops.triton.common import INTERPRETED
from gristmill.ops.triton.kv import kv_layer
from gristmill.ops.triton.linear import linear
from gristmill.ops.triton.logprobs import logprobs
from gristmill.ops.triton.moe import moe
from gristmill.ops.triton.quantized import Matrix
from gristmill.ops.triton.sampling import sample
from gristmill.types import Batch

FLOATS = torch.bfloat16
_CACHED = 1 if INTERPRETED else 256 << 20  # bytes, more than a card's cache holds
_ROUTERS = 1 if INTERPRETED else 8  # that choose different experts, or those of one token would be found again
_TOKENS = (1, 2, 40) if INTERPRETED else (1, 2, 16, 64, 512, 4096)
_KINDS = ("bf16", "int8", "q8_0", "mxfp4", "q4_k", "q6_k")
_CASES = (
    [(2, 40, 1), (1, 0, 40)]
    if INTERPRETED
    else [(n, depth, 1) for n in (1, 16, 64) for depth in (1024, 8192)] + [(1, 0, 512), (1, 0, 8192), (1, 7680, 512)]
)  # sequences, their depth, new tokens of each


def seconds(runs: Sequence[Callable[[], object]]) -> float:
    return statistics.median(timed(runs, ROUNDS))


def linears(shape: ModelShape, copy: float, report: Report) -> None:
    """Each dense matrix of the model in each type beside cuBLAS in bf16. copy: bytes a second."""
    matrices = {
        "qkv": ((shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim, shape.d_model),
        "o": (shape.d_model, shape.n_heads * shape.head_dim),
        "gate_up": (2 * shape.d_ff, shape.d_model),
        "down": (shape.d_model, shape.d_ff),
        "head": (shape.vocab_size, shape.d_model),
    }
    for name, (rows, cols) in matrices.items():
        n_plain = _copies(2 * rows * cols)
        plain = [torch.randn((rows, cols), device=DEVICE, dtype=FLOATS) for _ in range(n_plain)]
        kinds = [kind for kind in _KINDS if cols % 256 == 0 or kind not in ("q4_k", "q6_k")]
        ours = {kind: _matrices(kind, rows, cols) for kind in kinds}
        for tokens in _TOKENS:
            x = torch.randn((tokens, cols), device=DEVICE, dtype=FLOATS)
            peer = seconds([lambda w=w, x=x: F.linear(x, w) for w in plain])
            for kind, ws in {"cuBLAS": plain, **ours}.items():
                took = peer if kind == "cuBLAS" else seconds([lambda w=w, x=x: linear(x, w) for w in ws])
                n_bytes = 2 * rows * cols if kind == "cuBLAS" else ws[0].n_bytes
                report.say(
                    "linear",
                    matrix=name,
                    type=kind,
                    tokens=tokens,
                    us=took * 1e6,
                    of_copy=n_bytes / took / copy,
                    tflop_per_s=2.0 * rows * cols * tokens / took / 1e12,
                    of_cublas=peer / took,
                )


def experts(shape: ModelShape, kind: str, copy: float, report: Report) -> None:
    """A layer's experts with a random router, as shares of a copy of those that are read if it chooses evenly."""
    gate_up = random_matrix(kind, 2 * shape.d_ff, shape.d_model, DEVICE, shape.n_experts, True)
    down = random_matrix(kind, shape.d_model, shape.d_ff, DEVICE, shape.n_experts, True)
    for tokens in _TOKENS:
        x = torch.randn((tokens, shape.d_model), device=DEVICE, dtype=FLOATS)
        routers = [torch.randn((tokens, shape.n_experts), device=DEVICE) for _ in range(_ROUTERS)]
        took = seconds([lambda x=x, r=r: moe(x, r, gate_up, down, shape.n_active, 7.0, FLOATS) for r in routers])
        share = 1 - (1 - shape.n_active / shape.n_experts) ** tokens
        flop = 6.0 * tokens * shape.n_active * shape.d_ff * shape.d_model
        of_copy = share * (gate_up.n_bytes + down.n_bytes) / took / copy
        report.say("experts", type=kind, tokens=tokens, us=took * 1e6, of_copy=of_copy, tflop_per_s=flop / took / 1e12)


def attentions(shape: ModelShape, copy: float, report: Report) -> None:
    """New tokens over a paged cache, beside SDPA over keys and values in one piece; no windows, no sinks."""
    s = shape
    for n, depth, new in _CASES:
        batch, n_blocks = _batch(n, depth, new)
        n_bytes = 2 * FLOATS.itemsize * n * (depth + new) * s.n_kv_heads * s.head_dim
        layers = [kv_layer(n_blocks, s.n_kv_heads, s.head_dim, FLOATS, DEVICE) for _ in range(_copies(n_bytes))]
        for part in (part for layer in layers for part in layer):
            part.normal_()
        q = torch.randn((n * new, s.n_heads * s.head_dim), device=DEVICE, dtype=FLOATS)
        tables = batch.block_tables[0]
        took = seconds([lambda la=la, q=q, b=batch, t=tables: attention(q, la, b, t, 0, None) for la in layers])
        flop = 4.0 * n * s.n_heads * s.head_dim * sum(range(depth + 1, depth + new + 1))
        figures = {"us": took * 1e6, "of_copy": n_bytes / took / copy, "tflop_per_s": flop / took / 1e12}
        if new == 1 or depth == 0:  # SDPA's causal mask begins at the first key
            figures["of_sdpa"] = _sdpa_seconds(s, n, depth, new, len(layers)) / took
        report.say("attention", sequences=n, depth=depth, new=new, **figures)


def _sdpa_seconds(s: ModelShape, n: int, depth: int, new: int, n_layers: int) -> float:
    q = torch.randn((n, s.n_heads, new, s.head_dim), device=DEVICE, dtype=FLOATS)
    size = (2, n, s.n_kv_heads, depth + new, s.head_dim)
    layers = [torch.randn(size, device=DEVICE, dtype=FLOATS) for _ in range(n_layers)]
    attend = F.scaled_dot_product_attention
    return seconds([lambda kv=kv: attend(q, *kv, is_causal=new > 1, enable_gqa=True) for kv in layers])


def choices(vocab_size: int, report: Report) -> None:
    """Tokens chosen from random logits, and log-probabilities of them."""
    for n in (1, 2) if INTERPRETED else (1, 16, 64):
        logits = 3 * torch.randn((n, vocab_size), device=DEVICE)
        for temperature, top_k, top_p in (
            (0.0, 0, 1.0),
            (1.0, 0, 1.0),
            (1.0, 50, 1.0),
            (1.0, 0, 0.95),
            (1.0, 50, 0.95),
        ):
            batch = _sampling(n, temperature, top_k, top_p)
            took = seconds([lambda x=logits, b=batch: sample(x, b)])
            report.say("choice", rows=n, temperature=temperature, top_k=top_k, top_p=top_p, us=took * 1e6)
        ids = torch.zeros(n, dtype=torch.int32, device=DEVICE)
        report.say("logprobs", rows=n, n_top=20, us=seconds([lambda x=logits, i=ids: logprobs(x, i, 20)]) * 1e6)


def _matrices(kind: str, rows: int, cols: int) -> list[Matrix]:
    first = random_matrix(kind, rows, cols, DEVICE)
    return [first, *(random_matrix(kind, rows, cols, DEVICE) for _ in range(_copies(first.n_bytes) - 1))]


def _copies(n_bytes: int) -> int:
    return -(-_CACHED // n_bytes)


def _batch(n: int, before: int, new: int) -> tuple[Batch, int]:
    """Equal sequences with `new` tokens after `before` others, in blocks of no order, and how many these are."""
    width = -(-(before + new) // 16)
    tables = np.random.default_rng(0).permutation(n * width).reshape(n, width)
    starts, lengths, none = _ints([i * new for i in range(n + 1)]), _ints([before + new] * n), _ints([])
    return Batch(none, none, (none,), starts, lengths, (_ints(tables),), *[none] * 13), tables.size


def _sampling(n: int, temperature: float, top_k: int, top_p: float) -> Batch:
    def each(value: float, kind: torch.dtype) -> torch.Tensor:
        return torch.full((n,), value, dtype=kind, device=DEVICE)

    none, floats, longs = torch.empty(0, device=DEVICE), torch.float32, torch.int64
    chosen_by = each(temperature, floats), each(top_k, torch.int32), each(top_p, floats), each(0, floats)
    return Batch(none, none, (), none, none, (), none, *chosen_by, each(7, longs), each(1, longs), *[none] * 6)


def _ints(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)
