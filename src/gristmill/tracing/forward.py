"""What the model computed for each token of a text, as the engine ran it. It knows no text and no table."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.batch import build
from gristmill.engine.engine import Engine, EngineSettings
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.kv.cache import plan, windows_of
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.tracing.recorder import F32, Record, Recorder
from gristmill.types import Event, Failure, Request, SamplingParams, TokenEvent

MAX_TOKENS = 512
"""What passes is kept for every token and layer, and nobody reads more."""

STEP_TOKENS = 64
"""Each token's logits are computed, as otherwise its last layer would not be: so many rows of them are in memory."""

F64 = NDArray[np.float64]
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Trace:
    """N tokens that were computed, the first n_prompt of them given; the model then chose next_id, the likeliest."""

    ids: tuple[int, ...]
    n_prompt: int
    next_id: int
    record: Record

    def position(self, asked: int) -> int:
        """From 0; a negative one counts from the end. ValueError outside."""
        n = len(self.ids)
        if not -n <= asked < n:
            raise ValueError(f"position {asked} is outside the {n} tokens: give 0 to {n - 1}, or -1 (the last) to -{n}")
        return asked % n

    def successor(self, position: int) -> int:
        """The token that came after that one."""
        return self.ids[position + 1] if position + 1 < len(self.ids) else self.next_id


@dataclass(frozen=True, slots=True)
class Attention:
    """Of one token in one layer.

    weights  [H, position + 1], what each head took of every position so far; 0 outside the layer's window
    sinks    [H], what went to a head's sink and so to no token; None where there are no sinks
    """

    weights: F32
    sinks: F32 | None


@dataclass(frozen=True, slots=True)
class Lens:
    """What the final norm and the head read from L + 1 residual streams: before the first layer and after each.

    top_ids  int32 [L + 1, n], the likeliest tokens in order; probabilities [L + 1, n], theirs
    ranks    int32 [L + 1], from 1, of the token that came next; next_probabilities [L + 1], its own
    """

    top_ids: NDArray[np.int32]
    probabilities: F64
    ranks: NDArray[np.int32]
    next_probabilities: F64


class Tracer:
    """Runs texts through the engine and answers questions about what happened.

    ops      the backend on which the decoder's weights are
    kv_type  of the cache, as in LLM
    """

    def __init__(self, decoder: Decoder, ops: Ops, kv_type: str = "f16") -> None:
        self._decoder = decoder
        self._ops = ops
        self._kv_type = kv_type
        self.config = decoder.config

    def run(self, prompt_ids: list[int], n_tokens: int = 0, eos_ids: tuple[int, ...] = ()) -> Trace:
        """Compute a prompt and n_tokens of greedy answer, fewer where one of eos_ids ends it.

        ValueError for more tokens than MAX_TOKENS or the model's context, an empty prompt, an id that is none.
        """
        limit = min(MAX_TOKENS, self.config.max_context)
        if len(prompt_ids) + n_tokens > limit:
            raise ValueError(
                f"{len(prompt_ids)} tokens of prompt and {n_tokens} to generate are more than the {limit} that can be"
                " traced: shorten the prompt or generate fewer"
            )
        context = len(prompt_ids) + n_tokens + 1  # the last choice is not computed
        recorder = Recorder(self._ops)
        answer = self._generate(recorder, prompt_ids, context, eos_ids)
        return Trace((*prompt_ids, *answer[:-1]), len(prompt_ids), answer[-1], recorder.record())

    def _generate(self, recorder: Recorder, prompt_ids: list[int], context: int, eos_ids: tuple[int, ...]) -> list[int]:
        kv_plan = plan(self._ops, self.config, self._kv_type, context, 1, STEP_TOKENS, _UNBOUNDED)
        settings = EngineSettings(context, max_sequences=1, step_tokens=STEP_TOKENS, eos_ids=eos_ids, replay="off")
        params = SamplingParams(temperature=0.0, max_tokens=None, prompt_logprobs=0)
        engine = Engine(self._decoder, cast(Ops, recorder), settings, kv_plan, self._kv_type)
        events: SimpleQueue[Event] = SimpleQueue()
        answer = list[int]()
        try:
            engine.submit(Request(tuple(prompt_ids), params), events.put)
            while True:
                event = events.get()
                if isinstance(event, Failure):
                    raise event.error
                if isinstance(event, TokenEvent):
                    answer.append(event.token_id)
                    if event.finish is not None:
                        return answer
        finally:
            engine.close()

    def attention(self, trace: Trace, layer: int, position: int) -> Attention:
        """How one token looked back: the weights of the backend's own operation, in the cache's own precision.

        An attention's output is a sum of values, each times its weight. So the operation is asked again with the same
        queries and keys and with values that are rows of the identity matrix: what comes out are the weights. A head
        has room for head_dim of them at a time.
        """
        c, weights_of = self.config, self._decoder.layers[layer]
        n, head_dim, group = position + 1, c.head_dim, windows_of(c).index(c.windows[layer])
        first_value = (c.n_heads + c.n_kv_heads) * head_dim
        n_blocks = -(-n // BLOCK_SIZE)
        cache = self._ops.kv_layers(1, n_blocks, c.n_kv_heads, head_dim, self._kv_type)[0]
        everything, last = self._batches(trace.ids[:n], n_blocks)
        angles = self._ops.rope_angles(everything.positions, c.rope)
        row = self._ops.array(np.array([position], np.int32))
        qkv = trace.record.layers[layer].qkv[:n].copy()
        weights = np.empty((c.n_heads, n), np.float32)
        for first in range(0, n, head_dim):
            shown = np.arange(first, min(n, first + head_dim))
            qkv[:, first_value:] = 0
            for head in range(c.n_kv_heads):
                qkv[shown, first_value + head * head_dim + shown - first] = 1
            q = self._ops.store_qkv(
                self._ops.array(qkv),
                weights_of.q_norm,
                weights_of.k_norm,
                c.norm_eps,
                angles,
                cache,
                everything.slots[group],
            )
            y = self._ops.attention(
                self._ops.take_rows(q, row), cache, last, last.block_tables[group], c.windows[layer], weights_of.sinks
            )
            weights[:, shown] = self._ops.get(y).reshape(c.n_heads, head_dim)[:, : len(shown)]
        sinks = None if weights_of.sinks is None else np.maximum(0, 1 - weights.sum(axis=1))
        return Attention(weights, sinks)

    def _batches(self, ids: tuple[int, ...], n_blocks: int) -> tuple[Any, Any]:
        """One with all tokens and one with the last of them, in blocks of a cache that is theirs alone."""
        tables = [list(range(n_blocks))] * len(windows_of(self.config))

        def batch(n_computed: int) -> Any:
            sequence = Sequence(
                request_id=0,
                tokens=list(ids),
                n_prompt=len(ids),
                params=SamplingParams(temperature=0.0),
                seed=0,
                stop_ids=frozenset(),
                max_output=1,
                n_computed=n_computed,
                block_ids=tables,
            )
            return build([Part(sequence, len(ids) - n_computed, 1)], self._ops)

        return batch(0), batch(len(ids) - 1)

    def lens(self, trace: Trace, position: int, n_top: int) -> Lens:
        """The logit lens on one token: what the model would expect next if it ended after each layer (nostalgebraist,
        "interpreting GPT: the logit lens", 2020). The last row is what it does expect."""
        x = self._ops.array(trace.record.residuals(position))
        logits = self._ops.linear(self._ops.rms_norm(x, self._decoder.norm, self.config.norm_eps), self._decoder.head)
        successor = np.full(self.config.n_layers + 1, trace.successor(position), np.int32)
        n_top = min(n_top, self.config.vocab_size)
        results = self._ops.logprobs(logits, self._ops.array(successor), n_top)
        logprob, ranks, top_ids, top = (np.array(self._ops.get(result)) for result in results)
        return Lens(top_ids, np.exp(top), ranks, np.exp(logprob))

    def experts(self, trace: Trace, layer: int, position: int) -> tuple[tuple[int, float], ...]:
        """The experts that computed one token in one layer, with their weights, the heaviest first; none without."""
        router, moe = trace.record.layers[layer].router, self.config.moe
        if router is None or moe is None:
            return ()
        logits = router[position].astype(np.float64)
        chosen = np.argsort(-logits, kind="stable")[: moe.n_active]
        weights = np.exp(logits[chosen] - logits[chosen[0]])
        return tuple(zip(chosen.tolist(), (weights / weights.sum()).tolist(), strict=True))


def norms(trace: Trace, position: int) -> F64:
    """[L, 3]: lengths of one token's residual stream after each layer, and of what attention and the feed-forward
    network added to it."""
    layers = trace.record.layers
    rows = [(np.linalg.norm(x.residual[position]), x.attention_norm[position], x.ffn_norm[position]) for x in layers]
    return np.array(rows, np.float64)
