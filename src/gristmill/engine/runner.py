"""Runs one step: Batch in, logits and ids out. It knows nothing of requests."""

from __future__ import annotations

from typing import Any

from gristmill.kv.cache import KvCache
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Ops
from gristmill.types import Batch


class Runner:
    """A decoder, a backend and a cache that belong together."""

    def __init__(self, decoder: Decoder, ops: Ops, kv: KvCache) -> None:
        self._decoder = decoder
        self._ops = ops
        self._kv = kv

    def forward(self, batch: Batch) -> Any:
        """Logits [R, vocab_size] on the backend."""
        return self._decoder.forward(self._ops, batch, self._kv)

    def step(self, batch: Batch) -> tuple[list[int], Any]:
        """(the chosen id of each sampled row, logits [R, vocab_size] on the backend)."""
        logits = self.forward(batch)
        return self._ops.sample(logits, batch), logits
