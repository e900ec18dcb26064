"""The definition of every operation in plain numpy: slow, float32 throughout, what each backend is tested against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.formats.dequantize import dequantize
from gristmill.formats.quantize import quantize
from gristmill.ops.interface import BLOCK_SIZE, NO_ID, STEP_TOKENS, Arrays, Begun, Stack
from gristmill.types import Batch, RopeConfig

Array = NDArray[Any]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReferenceLinear:
    """w [rows, cols] or [n_experts, rows, cols]; bias [rows] or [n_experts, rows]."""

    w: F32
    bias: F32 | None


class ReferenceOps:
    """Implements `interface.Ops`."""

    name = "reference"
    least_blocks = 1
    step_tokens = STEP_TOKENS
    prompt_tokens = STEP_TOKENS
    batch_sizes: tuple[int, ...] = ()
    runs_ahead = False
    needs_warming = False

    def finish_put(self) -> None: ...

    def put(self, weights: Sequence[Weight], bias: F32 | None = None) -> ReferenceLinear:
        return ReferenceLinear(np.concatenate([dequantize(quantize(w)) for w in weights], axis=-2), bias)

    def put_all(self, stacks: Sequence[Stack]) -> list[ReferenceLinear]:
        return [self.put(weights, bias) for weights, bias in stacks]

    def put_vector(self, values: F32) -> F32:
        return values

    def array(self, values: Array) -> Array:
        return values

    def get(self, array: Array) -> Array:
        return array

    def kv_layers(
        self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str
    ) -> list[tuple[Array, Array]]:
        """k and v [n_blocks, 16, G, D], of q8_0 as [n_blocks, 16, G, D / 32, 32] for `kv_write` to know it by."""
        shape: tuple[int, ...] = (n_blocks, BLOCK_SIZE, n_kv_heads, head_dim)
        if kv_type == "q8_0":
            shape = (*shape[:-1], head_dim // 32, 32)
        dtype = "float16" if kv_type == "f16" else "float32"
        return [(np.zeros(shape, dtype), np.zeros(shape, dtype)) for _ in range(n_layers)]

    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int:
        return BLOCK_SIZE * n_kv_heads * 2 * head_dim * (2 if kv_type == "f16" else 4)

    def write(self, array: Array, values: Array) -> None:
        array[...] = values

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        results = step()

        def again() -> None:
            for result, value in zip(results, step(), strict=True):
                result[...] = value

        return results, again

    def continuation(self, batch: Batch, ids: Array, again: Callable[[], None]) -> Callable[[Begun], list[int]]:
        def go_on(begun: Begun) -> list[int]:
            self.advance(batch, ids, begun)
            again()
            chosen: list[int] = ids.tolist()
            return chosen

        return go_on

    def requantized(self, weights: Sequence[Weight]) -> list[Weight]:
        return []

    def embed(self, table: ReferenceLinear, tokens: Array) -> F32:
        return table.w[tokens]

    def linear(self, x: F32, w: ReferenceLinear) -> F32:
        return _affine(x, w.w, w.bias)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        y: F32 = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight
        return y

    def add(self, x: F32, y: F32) -> F32:
        return x + y

    def rope_angles(self, positions: Array, rope: RopeConfig) -> tuple[F32, F32]:
        angles = positions[:, None].astype(np.float32) * np.asarray(rope.inv_freq, np.float32)
        scale = np.float32(rope.scale)
        return np.cos(angles) * scale, np.sin(angles) * scale

    def rope(self, x: F32, angles: tuple[F32, F32]) -> F32:
        """Turn the pairs (x[i], x[i + D/2]) of [T, heads, D] (Su et al., RoFormer, arXiv:2104.09864)."""
        cos, sin = (a[:, None, :] for a in angles)
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def kv_write(self, kv_layer: tuple[Array, Array], k: F32, v: F32, slots: Array) -> None:
        """k, v [T, G, D] into the cache."""
        for cache, x in zip(kv_layer, (k, v), strict=True):
            x = x.reshape(len(x), *cache.shape[2:])
            cache[slots // BLOCK_SIZE, slots % BLOCK_SIZE] = _int8_blocks(x) if cache.ndim == 5 else x

    def store_qkv(
        self,
        qkv: F32,
        q_norm: F32 | None,
        k_norm: F32 | None,
        eps: float,
        angles: tuple[F32, F32],
        kv_layer: tuple[Array, Array],
        slots: Array,
    ) -> F32:
        n_kv_heads, head_dim = kv_layer[0].shape[2], math.prod(kv_layer[0].shape[3:])
        heads = qkv.reshape(len(qkv), -1, head_dim)
        q, k, v = np.split(heads, [heads.shape[1] - 2 * n_kv_heads, heads.shape[1] - n_kv_heads], axis=1)
        if q_norm is not None:
            q = self.rms_norm(q, q_norm, eps)
        if k_norm is not None:
            k = self.rms_norm(k, k_norm, eps)
        self.kv_write(kv_layer, self.rope(k, angles), v, slots)
        return self.rope(q, angles).reshape(len(qkv), -1)

    def attention(
        self,
        q: F32,
        kv_layer: tuple[Array, Array],
        batch: Batch,
        block_tables: Array,
        window: int,
        sinks: F32 | None,
    ) -> F32:
        n_kv_heads, head_dim = kv_layer[0].shape[2], math.prod(kv_layer[0].shape[3:])
        y = np.empty_like(q)
        for s, (begin, end) in enumerate(zip(batch.query_start[:-1], batch.query_start[1:], strict=True)):
            k, v = _gather(kv_layer, block_tables[s], int(batch.seq_lens[s]))  # [G, N, D]
            for t in range(begin, end):
                position = int(batch.positions[t])
                low = max(0, position - window + 1) if window else 0
                heads = q[t].reshape(n_kv_heads, -1, head_dim)  # [G, H / G, D]
                scores = heads @ k[:, low : position + 1].transpose(0, 2, 1) / np.sqrt(np.float32(head_dim))
                if sinks is not None:
                    scores = np.concatenate([scores, sinks.reshape(n_kv_heads, -1, 1)], axis=-1)
                p = np.exp(scores - scores.max(axis=-1, keepdims=True))
                p /= p.sum(axis=-1, keepdims=True)
                y[t] = (p[..., : position + 1 - low] @ v[:, low : position + 1]).reshape(-1)
        return y

    def gated_linear(self, x: F32, w: ReferenceLinear, limit: float) -> F32:
        return swiglu(self.linear(x, w), limit)

    def moe(
        self, x: F32, router: F32, gate_up: ReferenceLinear, down: ReferenceLinear, n_active: int, limit: float
    ) -> F32:
        y = np.zeros_like(x)
        for t, logits in enumerate(router):
            experts = np.argsort(-logits, kind="stable")[:n_active]
            weights = np.exp(logits[experts] - logits[experts[0]])
            for e, weight in zip(experts, weights / weights.sum(), strict=True):
                hidden = swiglu(_expert(x[t : t + 1], gate_up, e), limit)
                y[t] += weight * _expert(hidden, down, e)[0]
        return y

    def take_rows(self, x: F32, rows: Array) -> F32:
        return x[rows]

    def sample(self, logits: F32, batch: Batch) -> Array:
        rows = zip(
            (adjust(row, r, batch) for r, row in enumerate(logits)),
            batch.temperature,
            batch.top_k,
            batch.top_p,
            batch.min_p,
            batch.seeds,
            batch.next_positions,
            strict=True,
        )
        ids = [sample(row, float(t), int(k), float(p), float(m), int(s), int(n)) for row, t, k, p, m, s, n in rows]
        return np.array(ids, np.int32)

    def advance(self, batch: Batch, ids: Array, begun: Begun) -> None:
        for array in (batch.positions, batch.seq_lens, batch.next_positions):
            array += 1
        batch.tokens[:] = np.maximum(ids, 0)
        block, offset = batch.positions // BLOCK_SIZE, batch.positions % BLOCK_SIZE
        for slots, table, new in zip(batch.slots, batch.block_tables, begun, strict=True):
            table[offset == 0, block[offset == 0]] = new
            slots[:] = table[np.arange(len(table)), block] * BLOCK_SIZE + offset

    def logprobs(self, logits: F32, ids: Array, n_top: int) -> tuple[Array, Array, Array, Array]:
        exact = logits.astype(np.float64)
        every = exact - exact.max(axis=1, keepdims=True)
        every -= np.log(np.exp(every).sum(axis=1, keepdims=True))
        order = np.argsort(-exact, axis=1, kind="stable").astype(np.int32)
        rows = np.arange(len(ids))
        ranks = (np.argsort(order, axis=1)[rows, ids] + 1).astype(np.int32)
        return every[rows, ids], ranks, order[:, :n_top], np.take_along_axis(every, order[:, :n_top], axis=1)


def adjust(row: F32, r: int, batch: Batch) -> F32:
    """Row r of a batch's logits with its biases, penalties and mask."""
    row = row.copy()
    if len(batch.listed_start):
        repetition, presence, frequency = batch.penalties[r] if len(batch.penalties) else (1, 0, 0)
        for i in range(batch.listed_start[r], batch.listed_start[r + 1]):
            token_id, count = batch.listed_ids[i], batch.listed_counts[i]
            row[token_id] += batch.listed_bias[i]
            if count >= 0:
                row[token_id] *= 1 / repetition if row[token_id] > 0 else repetition
                row[token_id] -= presence * (count > 0) + frequency * count
    if len(batch.masks):
        allowed = np.unpackbits(batch.masks[r].view(np.uint8), bitorder="little")[: len(row)]
        row[allowed == 0] = -np.inf
    return row


def sample(row: F32, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int) -> int:
    """One id from logits [vocab_size]."""
    if not np.isfinite(row.max()):
        return NO_ID
    if temperature == 0 or top_k == 1:
        return int(np.argmax(row))
    scores = (row.astype(np.float64) - float(row.max())) / temperature
    kept = np.flatnonzero(scores >= max(-45.0, np.log(min_p) if min_p > 0 else -45.0))
    by_score = kept[np.argsort(-scores[kept], kind="stable")]
    kept = by_score[:top_k] if top_k else by_score
    weights = np.exp(scores[kept])
    if top_p < 1:
        before = np.cumsum(weights) - weights
        kept = kept[before < weights.sum() * np.float32(top_p)]
    kept = np.sort(kept)
    cumulative = np.cumsum(np.exp(scores[kept]))
    chosen = np.searchsorted(cumulative, uniform(seed, position) * cumulative[-1], side="right")
    return int(kept[min(chosen, len(kept) - 1)])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position) alone, by SplitMix64's finalizer (Steele, Lea, Flood 2014)."""
    return (_mix(_mix(seed & (2**64 - 1)) ^ position) >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def _affine(x: F32, w: F32, bias: F32 | None) -> F32:
    y = x @ w.T
    return y if bias is None else y + bias


def _expert(x: F32, w: ReferenceLinear, e: int) -> F32:
    return _affine(x, w.w[e], None if w.bias is None else w.bias[e])


def swiglu(gate_up: F32, limit: float) -> F32:
    """[T, 2 d_ff] = [gate | up] -> [T, d_ff]: what `gated_linear` says."""
    gate, up = np.split(gate_up, 2, axis=-1)
    if limit:
        gate, up = np.minimum(gate, np.float32(limit)), np.clip(up, -limit, limit).astype(np.float32) + 1
    return gate * _sigmoid(gate * np.float32(1.702 if limit else 1.0)) * up


def _sigmoid(x: F32) -> F32:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _int8_blocks(x: F32) -> F32:
    """x [.., 32] rounded to 255 levels between -peak and peak, the step between them to float16."""
    peak = np.abs(x).max(axis=-1, keepdims=True)
    quants = np.rint(x * (np.float32(127) / np.maximum(peak, np.float32(1e-30))))
    rounded: F32 = quants * (peak / np.float32(127)).astype(np.float16).astype(np.float32)
    return rounded


def _gather(kv_layer: tuple[Array, Array], table: Array, n: int) -> tuple[F32, F32]:
    """The first n keys and values of a sequence in order: [G, n, D] each, float32."""
    blocks, head_dim = table[: -(-n // BLOCK_SIZE)], math.prod(kv_layer[0].shape[3:])
    k, v = (
        cache[blocks].reshape(-1, cache.shape[2], head_dim)[:n].astype(np.float32).transpose(1, 0, 2)
        for cache in kv_layer
    )
    return k, v
