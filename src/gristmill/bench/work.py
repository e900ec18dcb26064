"""What a step must read and multiply at least, from a model's dimensions alone: the arithmetic behind shares of limits.

It knows no backend and measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearCost:
    """A weight matrix, or n_experts of them of which a token uses n_active. n_bytes: of all, as they lie in memory."""

    rows: int
    cols: int
    n_bytes: int
    n_experts: int = 1
    n_active: int = 1


@dataclass(frozen=True, slots=True)
class ModelCost:
    """linears: those that every token passes; ends: the head and what the last layer does with what attention gives,
    for rows whose logits are wanted.

    windows         each layer's sliding window, 0 for all positions
    kv_bytes        of one position in one layer
    n_heads         query heads
    """

    linears: tuple[LinearCost, ...]
    ends: tuple[LinearCost, ...]
    windows: tuple[int, ...]
    n_heads: int
    head_dim: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """n_tokens of one sequence computed in one step, after n_before that the cache holds."""

    n_before: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes read and floating-point (or integer) operations; a multiply-add is two."""

    n_bytes: float
    n_operations: float

    def __add__(self, other: Work) -> Work:
        return Work(self.n_bytes + other.n_bytes, self.n_operations + other.n_operations)


def step_work(cost: ModelCost, spans: Sequence[Span], n_logits: int) -> Work:
    """One step over these spans. Every weight is read once, keys and values once for each sequence.

    Not counted: activations, the embedding's rows, norms. Of experts the expected number is read, as if routers chose
    evenly (see `expected_experts`).
    """
    n_tokens = sum(span.n_tokens for span in spans)
    n_bytes = n_operations = 0.0
    uses = [(linear, n_tokens) for linear in cost.linears] + [(linear, n_logits) for linear in cost.ends]
    for linear, n in uses:
        n_bytes += linear.n_bytes * expected_experts(linear.n_experts, linear.n_active, n) / linear.n_experts
        n_operations += 2.0 * linear.rows * linear.cols * linear.n_active * n
    for window in cost.windows:
        n_bytes += cost.kv_bytes * sum(_positions_read(span, window) for span in spans)
        seen = sum(_positions_seen(span, window) for span in spans)
        n_operations += 2.0 * 2.0 * cost.n_heads * cost.head_dim * seen  # scores, then values
    return Work(n_bytes, n_operations)


def expected_experts(n_experts: int, n_active: int, n_tokens: int) -> float:
    """How many different experts n_tokens use when each picks n_active of n_experts evenly and on its own."""
    return n_experts * (1.0 - (1.0 - n_active / n_experts) ** n_tokens)


def _positions_read(span: Span, window: int) -> int:
    """Positions that any token of the span sees."""
    first = max(0, span.n_before - window + 1) if window else 0
    return span.n_before + span.n_tokens - first


def _positions_seen(span: Span, window: int) -> int:
    """Positions that each token of the span sees, itself included, added up."""
    first, last = span.n_before + 1, span.n_before + span.n_tokens
    if not window or last <= window:
        return (first + last) * span.n_tokens // 2
    n_growing = max(0, window - first)  # tokens that do not yet fill the window
    return (first + first + n_growing - 1) * n_growing // 2 + (span.n_tokens - n_growing) * window
