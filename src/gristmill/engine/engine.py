"""From prompt ids to tokens, one request after another. It owns the cache; it knows no text."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.batch import Part, build
from gristmill.engine.runner import Runner
from gristmill.engine.sequence import Sequence
from gristmill.kv.cache import allocate
from gristmill.kv.pool import BlockPool
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import Finish, SamplingParams, TokenEvent

PROMPT_CHUNK = 512
"""Prompt tokens computed in one step."""


class Engine:
    """max_context: tokens of prompt and answer together. eos_ids end an answer unless ignore_eos. replay: as Runner."""

    def __init__(
        self,
        decoder: Decoder,
        ops: Ops,
        max_context: int,
        kv_type: str = "f16",
        eos_ids: tuple[int, ...] = (),
        replay: str = "on",
    ) -> None:
        self.config = decoder.config
        self.max_context = max_context
        self._ops = ops
        self._eos_ids = frozenset(eos_ids)
        n_blocks = -(-max_context // BLOCK_SIZE)
        self._pool = BlockPool(n_blocks)
        self._runner = Runner(decoder, ops, allocate(ops, self.config, n_blocks, kv_type), replay)

    def check(self, prompt_ids: list[int]) -> None:
        """ValueError for a prompt that cannot be run: empty, too long, or with an id outside the vocabulary."""
        if not prompt_ids:
            raise ValueError("the prompt has no tokens; give at least one (a BOS token, say)")
        if len(prompt_ids) >= self.max_context:
            raise ValueError(
                f"the prompt has {len(prompt_ids)} tokens, which leaves no room to answer in a context of"
                f" {self.max_context}; shorten it or raise the context"
            )
        for token_id in prompt_ids:
            if not 0 <= token_id < self.config.vocab_size:
                raise ValueError(f"token id {token_id} is outside the vocabulary of {self.config.vocab_size}")

    def generate(self, prompt_ids: list[int], params: SamplingParams) -> Iterator[TokenEvent]:
        """Tokens as they come; the last one carries `finish`. Closing the iterator frees what the request held."""
        self.check(prompt_ids)
        seed = int.from_bytes(os.urandom(8)) if params.seed is None else params.seed % 2**64
        sequence = Sequence(list(prompt_ids), len(prompt_ids), params, seed)
        try:
            while sequence.finish is None:
                yield self._next_token(sequence)
        finally:
            self._pool.free(sequence.block_ids)

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """float32 [T, vocab_size]: what follows each prefix of `ids`."""
        self.check(ids[:-1] or ids)
        sequence = Sequence(list(ids), len(ids), SamplingParams(), 0)
        chunks = []
        try:
            while sequence.n_computed < len(ids):
                n = min(PROMPT_CHUNK, len(ids) - sequence.n_computed)
                chunks.append(self._runner.forward(build([self._part(sequence, n, n)], self._ops)))
                sequence.n_computed += n
        finally:
            self._pool.free(sequence.block_ids)
        return np.concatenate(chunks)

    def _part(self, sequence: Sequence, n_tokens: int, n_logits: int) -> Part:
        sequence.block_ids += self._pool.allocate(sequence.blocks_missing(n_tokens))
        return Part(sequence, n_tokens, n_logits)

    def _next_token(self, sequence: Sequence) -> TokenEvent:
        while True:
            missing = len(sequence.tokens) - sequence.n_computed
            n = min(PROMPT_CHUNK, missing)
            batch = build([self._part(sequence, n, int(n == missing))], self._ops)
            sequence.n_computed += n
            if n == missing:
                ids, logits = self._runner.step(batch, want_logits=sequence.params.logprobs is not None)
                break
            self._runner.forward(batch)
        sequence.tokens.append(ids[0])
        sequence.finish = self._finish(sequence)
        if logits is None:
            return TokenEvent(ids[0], sequence.finish)
        return _with_logprobs(ids[0], sequence, logits[0])

    def _finish(self, sequence: Sequence) -> Finish | None:
        params, last = sequence.params, sequence.tokens[-1]
        if sequence.n_output >= params.min_tokens and (
            last in params.stop_token_ids or (last in self._eos_ids and not params.ignore_eos)
        ):
            return Finish.STOP
        if sequence.n_output == params.max_tokens or len(sequence.tokens) >= self.max_context:
            return Finish.LENGTH
        return None


def _with_logprobs(token_id: int, sequence: Sequence, logits: NDArray[np.float32]) -> TokenEvent:
    """Logprobs of the model's own distribution, before temperature and truncation."""
    logprobs = log_softmax(logits)
    count = min(sequence.params.logprobs or 0, len(logits))
    best = np.argsort(-logits, kind="stable")[:count]
    alternatives = tuple((int(i), float(logprobs[i])) for i in best)
    return TokenEvent(token_id, sequence.finish, float(logprobs[token_id]), alternatives)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
