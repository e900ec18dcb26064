"""What a backend offers: about a dozen operations, each defined by `reference`, and services to move arrays.

T tokens, R sampled rows, H query heads, G key-value heads, D head_dim. `Array`, `Linear` and `KvLayer` are the
backend's own; code above this layer passes them along and never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.checkpoint import Weight
from gristmill.types import Batch, RopeConfig

Array = Any
Arrays = tuple[Array, ...]
KvLayer = Any
Linear = Any

Stack = tuple[Sequence[Weight], NDArray[np.float32] | None]
"""Weights whose rows are stacked in order, and a bias [rows] or [n_experts, rows]."""

Begun = Sequence[Sequence[int]]
"""Of each layer group, the blocks of those sequences of a batch whose next position begins one, in order."""

BLOCK_SIZE = 16
"""Positions in one block of the key-value cache."""

NO_ID = -1
"""Instead of a token id, where logits are such that none can be chosen."""

STEP_TOKENS = 512
"""Tokens that one step had best compute on a processor."""


class Continuation(Protocol):
    """Does a captured step of one token a sequence once more, for the tokens that it chose the last time.

    A backend that `runs_ahead` can also `begin` the step, without waiting for it, and later `finish` it, which gives
    what it chose; the next one may be begun before that.
    """

    def __call__(self, begun: Begun) -> list[int]: ...


class Ahead(Continuation, Protocol):
    """One that does so."""

    def begin(self, begun: Begun) -> None: ...

    def finish(self) -> list[int]: ...


class Ops(Protocol):
    """One backend, with its threads or device.

    least_blocks  columns that block tables have at least, a power of two: the more, the fewer shapes do steps have, and
                  the fewer recordings are made as texts grow
    batch_sizes   steps of one token each of so many sequences are worth recording, and no others; those between are
                  filled up with padding (see `types.Batch`). (): any step of few tokens is, as it comes
    step_tokens   tokens that one step had best compute where prompts are long enough
    prompt_tokens the same of one prompt that nothing else is computed with, where each token meets all weights
    runs_ahead    whether it computes beside its caller, so that a step can be prepared while the one before runs
    needs_warming whether the first step of a kind takes much longer than the next
    """

    @property
    def least_blocks(self) -> int: ...

    @property
    def batch_sizes(self) -> tuple[int, ...]: ...

    @property
    def step_tokens(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def runs_ahead(self) -> bool: ...

    @property
    def needs_warming(self) -> bool: ...

    # services

    def put(self, weights: Sequence[Weight], bias: NDArray[np.float32] | None = None) -> Linear:
        """Re-lay weights for this backend; their rows are stacked in order. bias: [rows] or [n_experts, rows].

        A weight with a `quantize_to` is quantized as `formats.quantize` defines; one that is too small to gain by that
        may keep its floats.
        """
        ...

    def put_all(self, stacks: Sequence[Stack]) -> list[Linear]:
        """`put` for each, faster than one after another."""
        ...

    def finish_put(self) -> None:
        """There are no more weights: what they were put with is let go."""
        ...

    def put_vector(self, values: NDArray[np.float32]) -> Array: ...

    def array(self, values: NDArray[Any]) -> Array:
        """A step's array (int32, int64, uint64 or float32) on the backend."""
        ...

    def get(self, array: Array) -> NDArray[Any]: ...

    def kv_layers(self, n_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: str) -> list[KvLayer]:
        """Layers of the key-value cache: n_blocks * BLOCK_SIZE slots each, undefined until stored to."""
        ...

    def kv_block_bytes(self, n_kv_heads: int, head_dim: int, kv_type: str) -> int:
        """Bytes of a block of BLOCK_SIZE slots in one of them."""
        ...

    def write(self, array: Array, values: Array) -> None:
        """Put other values of the same shape into a step's array."""
        ...

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        """Run `step` once; its results, and a function that does the same operations again on the same arrays, results
        included. A step must come to its results by operations alone, and all that changes from one run to the next
        must lie in arrays that are written to before the function is called. Floats among the results hold until
        another captured step is done. No other thread may use these ops meanwhile."""
        ...

    def continuation(self, batch: Batch, ids: Array, again: Callable[[], None]) -> Continuation:
        """What `advance`s the batch of a captured step of one token a sequence, which chose `ids`, and does the step
        `again`. An `Ahead` where the backend `runs_ahead`."""
        ...

    def requantized(self, weights: Sequence[Weight]) -> list[Weight]:
        """Those of a stack that `put` stores as Q8_0 unasked, because no kernel reads their types, or such rows of
        them, or their types beside the others'."""
        ...

    # operations. What they give may wait until something reads it, `get` at the latest

    def embed(self, table: Linear, tokens: Array) -> Array:
        """Rows `tokens` of the table: float32 [T, d_model]."""
        ...

    def linear(self, x: Array, w: Linear) -> Array:
        """x W^T + bias: [T, cols] -> [T, rows]."""
        ...

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight, a row at a time (Zhang and Sennrich, arXiv:1910.07467)."""
        ...

    def add(self, x: Array, y: Array) -> Array: ...

    def rope_angles(self, positions: Array, rope: RopeConfig) -> tuple[Array, Array]:
        """cos and sin of every position's angles times rope.scale: float32 [T, D / 2] each."""
        ...

    def store_qkv(
        self,
        qkv: Array,
        q_norm: Array | None,
        k_norm: Array | None,
        eps: float,
        angles: tuple[Array, Array],
        kv_layer: KvLayer,
        slots: Array,
    ) -> Array:
        """Split [T, (H + 2 G) D]; normalize each head of q and k where a norm is given; rotate q and k; write k and v
        to the cache's `slots`; return q [T, H D]."""
        ...

    def attention(
        self, q: Array, kv_layer: KvLayer, batch: Batch, block_tables: Array, window: int, sinks: Array | None
    ) -> Array:
        """Causal grouped-query attention of q [T, H D] over each token's own sequence, scaled by 1 / sqrt(D): [T, H D].

        block_tables  those of the layer's group; blocks that lie wholly outside the window are not read
        window        0 sees everything, w the last w positions
        sinks         [H], a logit that joins the softmax's denominator (gpt-oss)
        """
        ...

    def gated_linear(self, x: Array, w: Linear, limit: float) -> Array:
        """gate sigmoid(gate) up of linear(x, w) = [gate | up], [T, 2 d_ff] -> [T, d_ff] (Shazeer, arXiv:2002.05202).
        With a limit, gpt-oss's: gate = min(gate, limit), up = clip(up, +-limit), (up + 1) gate sigmoid(1.702 gate).
        """
        ...

    def moe(self, x: Array, router: Array, gate_up: Linear, down: Linear, n_active: int, limit: float) -> Array:
        """For each token the softmax-weighted sum over the n_active experts with the highest router logits [T, E]."""
        ...

    def take_rows(self, x: Array, rows: Array) -> Array: ...

    def sample(self, logits: Array, batch: Batch) -> Array:
        """One id for each row of logits [R, vocab_size], int32 [R]. Logits get the batch's biases, then its penalties,
        then its masks; then temperature; then min_p, top_k and top_p each on what the one before left. NO_ID where one
        of them is NaN or infinity, or nothing is left by a mask."""
        ...

    def advance(self, batch: Batch, ids: Array, begun: Begun) -> None:
        """Turn a batch of one token of each of S sequences into the one after it, in place, now that ids [S] were
        chosen. Sampling stays as it is. NO_ID goes on as id 0."""
        ...

    def logprobs(self, logits: Array, ids: Array, n_top: int) -> tuple[Array, Array, Array, Array]:
        """Of logits [R, vocab_size] as they are: the log-probability of ids [R], float64 [R]; their rank from 1, int32
        [R]; and the n_top likeliest ids in order, int32 [R, n_top], with theirs, float64 [R, n_top]. The lower of two
        ids with equal logits comes first."""
        ...
