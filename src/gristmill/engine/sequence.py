"""One request on its way: its tokens, how many of them the cache holds, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import Finish, SamplingParams


@dataclass(slots=True)
class Sequence:
    """Mutable; touched by the engine alone. `seed` is the request's own or one that was drawn for it."""

    tokens: list[int]
    n_prompt: int
    params: SamplingParams
    seed: int
    n_computed: int = 0
    block_ids: list[int] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def n_output(self) -> int:
        return len(self.tokens) - self.n_prompt

    def blocks_missing(self, n_tokens: int) -> int:
        """Blocks still needed to hold n_tokens more than are computed."""
        return max(0, -(-(self.n_computed + n_tokens) // BLOCK_SIZE) - len(self.block_ids))
