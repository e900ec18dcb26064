"""Guesses the tokens to come with a smaller model. Its cache lies beside the engine's own, block for block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from gristmill.engine.batch import build
from gristmill.engine.runner import Runner
from gristmill.engine.scheduler import Part
from gristmill.engine.sequence import Sequence
from gristmill.engine.warm import Warmer
from gristmill.kv.cache import KvPlan, allocate, windows_of
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import BLOCK_SIZE, Ops
from gristmill.types import ModelConfig

FIRST_LENGTH, LONGEST = 4, 12
MAX_PADDING = 128
"""Models of one vocabulary may have more rows than it, and not equally many: 151,936 or 152,064 in Qwen2.5."""


@dataclass(slots=True)
class _State:
    """Of one sequence: tokens that the draft model has computed, in which of its lives, and how many to guess next.

    n_guessed  tokens that it has computed if its latest guesses are right; 0: it made none for this step
    """

    n_computed: int = 0
    n_guessed: int = 0
    life: int = 0
    length: int = FIRST_LENGTH


class DraftModel:
    """Speculative decoding (Leviathan et al., arXiv:2211.17192) where both models choose with the same random numbers:
    a draft is kept exactly where the large model chooses it too, so the answer is the one that it would give alone.

    What it computes for blocks that sequences share, each of them computes alike, so it does not matter who was first.

    vocab_size  of the large model
    """

    def __init__(
        self, decoder: Decoder, ops: Ops, kv_plan: KvPlan, kv_type: str, step_tokens: int, replay: str, vocab_size: int
    ) -> None:
        self._ops = ops
        self._own_vocab_size = decoder.config.vocab_size
        self._vocab_size = vocab_size
        self._step_tokens = step_tokens
        self._n_groups = len(windows_of(decoder.config))  # all in the blocks of full attention
        self._n_blocks = (kv_plan.n_blocks[0],) * self._n_groups
        self._runner = Runner(decoder, ops, allocate(ops, decoder.config, self._n_blocks, kv_type), replay)
        self._states: dict[int, _State] = {}

    def warmer(self, max_sequences: int, max_context: int) -> Warmer:
        return Warmer(self._runner, self._ops, self._n_blocks, self._own_vocab_size, max_sequences, max_context)

    def propose(self, sequences: Iterable[Sequence], most: int) -> None:
        """Sets the drafts of sequences with one token left to compute: up to `most`, as far as their blocks reach."""
        work = list[tuple[Sequence, _State, int]]()
        for state in self._states.values():
            state.n_guessed = 0
        for sequence in sequences:
            state = self._states.setdefault(sequence.request_id, _State())
            if state.life != sequence.n_preempted:
                state.n_computed, state.life = 0, sequence.n_preempted
            n_tokens = len(sequence.tokens)
            n = min(state.length, most, sequence.room - n_tokens + 1, sequence.max_tokens - 1 - n_tokens)
            if n > 0:
                work.append((sequence, state, n))
        guesses = [self._shadow(sequence, state) for sequence, state, _ in work]
        self._catch_up(guesses)
        parts = list[Part]()
        for i in range(max((n for _, _, n in work), default=0)):
            going_on = [guess for guess, (_, _, n) in zip(guesses, work, strict=True) if i < n]
            if len(going_on) == len(parts) and all(part.n_tokens == 1 for part in parts):
                ids = self._go_on(parts)
            else:
                parts = [Part(guess, len(guess.tokens) - guess.n_computed, 1) for guess in going_on]
                ids, _ = self._runner.step(build(parts, self._ops))
            for part, token_id in zip(parts, ids, strict=True):
                part.sequence.n_computed += part.n_tokens
                part.sequence.tokens.append(max(token_id, 0))  # NO_ID: any guess may be wrong
        for guess, (sequence, state, _) in zip(guesses, work, strict=True):
            sequence.drafts = list(takewhile(lambda i: i < self._vocab_size, guess.tokens[len(sequence.tokens) :]))
            state.n_computed, state.n_guessed = len(sequence.tokens), guess.n_computed

    def _go_on(self, parts: list[Part]) -> list[int]:
        """One more token of each guess of the last step."""
        begun = [part.sequence for part in parts if part.sequence.n_computed % BLOCK_SIZE == 0]
        places = [guess.n_computed // BLOCK_SIZE for guess in begun]
        blocks = [guess.block_ids[0][i] for guess, i in zip(begun, places, strict=True)]
        n_blocks = max(places) + 1 if places else 0
        return self._runner.go_on([blocks] * self._n_groups, n_blocks, lambda: build(parts, self._ops))[0]

    def learn(self, sequence: Sequence, n_drafted: int, n_accepted: int) -> None:
        """Tells how many drafts were right, if they were its own; the tokens have been appended."""
        state = self._states.get(sequence.request_id)
        if state is None or not state.n_guessed:
            return
        state.n_computed = min(state.n_guessed, len(sequence.tokens) - 1)
        state.length = min(LONGEST, state.length + 2) if n_accepted == n_drafted else max(1, n_accepted + 1)

    def forget(self, request_id: int) -> None:
        self._states.pop(request_id, None)

    def _shadow(self, sequence: Sequence, state: _State) -> Sequence:
        """The same sequence as the draft model sees it, to be continued without harm to the original."""
        n, tokens = self._own_vocab_size, sequence.tokens
        return Sequence(
            request_id=sequence.request_id,
            tokens=tokens.copy() if n >= self._vocab_size else [i if i < n else 0 for i in tokens],
            n_prompt=sequence.n_prompt,
            params=sequence.params,
            seed=sequence.seed,
            stop_ids=sequence.stop_ids,
            max_output=sequence.max_output,
            n_computed=state.n_computed,
            block_ids=[sequence.block_ids[0]] * self._n_groups,
        )

    def _catch_up(self, guesses: list[Sequence]) -> None:
        """Computes all but the last stretch of what is missing, a step's tokens at a time."""
        for guess in guesses:
            while (missing := len(guess.tokens) - guess.n_computed) > self._step_tokens // 2:
                n = min(missing - 1, self._step_tokens)
                self._runner.forward(build([Part(guess, n, 0)], self._ops))
                guess.n_computed += n


def check_draft(draft: ModelConfig, config: ModelConfig, context: int) -> None:
    """ValueError for a draft model that cannot guess for this one."""
    if abs(draft.vocab_size - config.vocab_size) > MAX_PADDING:
        raise ValueError(
            f"the draft model has {draft.vocab_size} tokens and the model {config.vocab_size}: they need one vocabulary"
        )
    if draft.max_context < context:
        raise ValueError(f"the draft model was made for {draft.max_context} tokens of context, not {context}: lower it")
    if all(config.windows):
        raise ValueError(
            "a model whose layers all have a sliding window keeps too little for a draft model: leave it out"
        )
