"""Drives a Scheduler with a model that is a hash: it notices each slot that does not hold what attention would rely on.

The fake cache keeps, for a position, a number that stands for the salt and all tokens up to there; the next token is
a function of that number. A step writes the numbers of its tokens, then looks at every slot that its queries read, in
each layer group. Blocks are poisoned when they are freed and when they are handed out.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from gristmill.engine.scheduler import Part, Scheduler
from gristmill.engine.sequence import Sequence, Status
from gristmill.kv.pool import BlockPool
from gristmill.ops.interface import BLOCK_SIZE, Begun
from gristmill.types import SamplingParams

POISON = -1
GREEDY = SamplingParams(temperature=0)


class PoisonedPool(BlockPool):
    def __init__(self, n_blocks: int) -> None:
        super().__init__(n_blocks)
        self.slots = [POISON] * (16 * n_blocks)

    def allocate(self, n: int) -> list[int]:
        blocks = super().allocate(n)
        self._poison(blocks)
        return blocks

    def release(self, blocks: list[int]) -> None:
        super().release(blocks)
        self._poison(block for block in blocks if not self._references[block] and self._hashes[block] is None)

    def is_own(self, block: int) -> bool:
        """Whether one sequence alone has it, and nobody can come to share it."""
        return self._references[block] == 1 and self._hashes[block] is None

    def _poison(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.slots[16 * block : 16 * block + 16] = [POISON] * 16


def first_state(salt: bytes) -> int:
    return crc32(salt)


def next_state(state: int, token: int) -> int:
    return hash((state, token))


class FakeModel:
    """Greedy: the next token is a function of salt and all tokens before."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def choose(self, state: int) -> int:
        return (state >> 8) % self.vocab_size

    def alone(self, prompt: list[int], n: int, salt: bytes = b"") -> list[int]:
        """The n tokens that follow."""
        state = first_state(salt)
        for token in prompt:
            state = next_state(state, token)
        output = []
        for _ in range(n):
            output.append(self.choose(state))
            state = next_state(state, output[-1])
        return output


def answer_alone(model: FakeModel, sequence: Sequence) -> list[int]:
    """What a request must be answered, however it is scheduled."""
    output = model.alone(sequence.tokens[: sequence.n_prompt], sequence.max_output, sequence.salt)
    for n, token in enumerate(output, 1):
        if token in sequence.stop_ids and n >= sequence.params.min_tokens:
            return output[:n]
    return output


class FakeEngine:
    """n_blocks[g], windows[g]: of each layer group. computed: (request id, begin, end) of each part so far."""

    def __init__(
        self,
        n_blocks: list[int],
        windows: list[int] | None = None,
        *,
        max_sequences: int = 4,
        step_tokens: int = 64,
        prompt_tokens: int | None = None,
        max_queue: int = 100,
        vocab_size: int = 1000,
    ) -> None:
        self.pools = [PoisonedPool(n) for n in n_blocks]
        self.windows = windows or [0]
        self.step_tokens = step_tokens
        self.max_sequences = max_sequences
        self.model = FakeModel(vocab_size)
        self.scheduler = Scheduler(
            list(self.pools),
            self.windows,
            max_sequences=max_sequences,
            step_tokens=step_tokens,
            prompt_tokens=prompt_tokens,
            max_queue=max_queue,
        )
        self.sequences: list[Sequence] = []
        self.computed: list[tuple[int, int, int]] = []
        self.n_gone_on = 0
        self.n_followed = 0
        self._single = False
        self._states: dict[Sequence, list[int]] = {}

    def add(
        self,
        prompt: list[int],
        max_output: int = 4,
        *,
        params: SamplingParams = GREEDY,
        stop_ids: frozenset[int] = frozenset(),
        priority: int = 0,
        salt: bytes = b"",
        rows_from: int | None = None,
    ) -> Sequence:
        number = len(self.sequences)
        sequence = Sequence(
            number,
            list(prompt),
            len(prompt),
            params,
            0,
            stop_ids,
            max_output,
            priority=priority,
            arrival=number,
            salt=salt,
            rows_from=rows_from,
        )
        self.scheduler.add(sequence)
        self.sequences.append(sequence)
        return sequence

    def step(self, abort: int | None = None) -> list[Part]:
        """One step, with everything checked. abort: the request that is aborted while the step is computed."""
        drafted = any(sequence.drafts for sequence in self.sequences)
        before = [(s, s.n_computed) for s in self.scheduler.running]
        going = None if drafted or abort is not None or not self._single else self.scheduler.go_on()
        if going is None or self.n_gone_on % 3 == 0:  # elsewhere it goes on from step to step without being scheduled
            parts = self.scheduler.schedule()
        else:
            parts = [Part(sequence, 1, 1) for sequence, _ in before]
        self.scheduler.check()
        self._check_budget(parts)
        chosen = self._compute(parts)
        self._single = all(part.n_tokens == part.n_logits == 1 for part in parts)
        if going is not None:
            self._take(parts, chosen, before, *going)
            return parts
        if abort is not None:
            self.scheduler.abort(abort)
        accepted = self.scheduler.update(parts, chosen)
        assert [part.sequence for part in parts] == [sequence for sequence, _ in accepted]
        assert all(not ids or sequence.tokens[-len(ids) :] == ids for sequence, ids in accepted)
        self.scheduler.check()
        return parts

    def _take(
        self,
        parts: list[Part],
        chosen: list[list[int]],
        before: list[tuple[Sequence, int]],
        begun: Begun,
        n_blocks: int,
    ) -> None:
        """Going on is what was scheduled: one token of each sequence of the step before, in order."""
        assert [(part.sequence, part.n_tokens) for part in parts] == [(sequence, 1) for sequence, _ in before]
        assert begun == self._begun(before)
        assert n_blocks == max(n_computed // BLOCK_SIZE + 1 for _, n_computed in before)
        self.n_gone_on += 1
        assert self.scheduler.go_on() == (begun, n_blocks)
        flat = [token_id for ids in chosen for token_id in ids]
        plan = self.scheduler.plan(n_blocks) if self.n_gone_on % 2 == 0 else []
        assert plan[:1] in ([], [begun])
        append = self.scheduler.append if plan else None
        ended = [] if append is not None and append(flat) else self.scheduler.take(flat)
        assert ended == [sequence for sequence, _ in before if sequence.status is Status.FINISHED]
        assert all(s.tokens[n + 1 :] == ids for (s, n), ids in zip(before, chosen, strict=True))
        if append is not None and not ended and self.n_gone_on % 4 == 0:
            self._follow(plan[1 : self.n_gone_on % 23], [sequence for sequence, _ in before])
        self.scheduler.settle()
        assert all(s.n_computed == len(s.tokens) - 1 for s, _ in before if s.status is not Status.FINISHED)
        self.scheduler.check()

    def _follow(self, plan: list[Begun], sequences: list[Sequence]) -> None:
        """The rest of a plan, with nothing caught up on in between."""
        for begun in plan:
            positions = [len(sequence.tokens) - 1 for sequence in sequences]
            assert begun == self._begun(list(zip(sequences, positions, strict=True)))
            chosen = self._compute([Part(sequence, 1, 1) for sequence in sequences], positions)
            flat = [token_id for ids in chosen for token_id in ids]
            if not self.scheduler.append(flat):
                self.scheduler.take(flat)
                return
            self.n_followed += 1

    def _begun(self, places: list[tuple[Sequence, int]]) -> Begun:
        """The blocks that begin with these positions."""
        beginning = [(s.block_ids, position // BLOCK_SIZE) for s, position in places if position % BLOCK_SIZE == 0]
        return [[tables[group][i] for tables, i in beginning] for group in range(len(self.pools))]

    def run(self) -> int:
        """Steps until nothing is left to do; returns how many it took."""
        n_steps = 0
        limit = 100 + 10 * sum(sequence.max_tokens for sequence in self.sequences)
        while self.scheduler.has_work:
            self.step()
            n_steps += 1
            assert n_steps < limit, "no progress"
        return n_steps

    def check_answers(self) -> None:
        """Every sequence has finished with the answer that it gets alone, and no block is in use."""
        for sequence in self.sequences:
            assert sequence.status is Status.FINISHED
            assert sequence.tokens[sequence.n_prompt :] == answer_alone(self.model, sequence)
        assert all(pool.n_free == pool.n_blocks for pool in self.pools)

    def n_computed(self, sequence: Sequence) -> int:
        """Tokens of it that were computed in all steps so far."""
        return sum(end - begin for number, begin, end in self.computed if number == sequence.request_id)

    def _check_budget(self, parts: list[Part]) -> None:
        assert len(parts) == self.scheduler.n_running <= self.max_sequences
        assert len({part.sequence for part in parts}) == len(parts)
        assert all(part.n_tokens >= 1 for part in parts)
        assert sum(part.n_tokens for part in parts) <= self.step_tokens
        assert parts or not self.scheduler.has_work

    def _compute(self, parts: list[Part], positions: list[int] | None = None) -> list[list[int]]:
        """positions: where each part begins, if n_computed is not to be believed."""
        begins = [part.sequence.n_computed for part in parts] if positions is None else positions
        for part, begin in zip(parts, begins, strict=True):
            self._write(part, begin)
        for part, begin in zip(parts, begins, strict=True):
            self._check_reads(part, begin)
        return [self._choose(part, begin + part.n_tokens) for part, begin in zip(parts, begins, strict=True)]

    def _write(self, part: Part, begin: int) -> None:
        sequence, end = part.sequence, begin + part.n_tokens
        tokens = sequence.tokens + sequence.drafts
        assert end <= len(tokens)
        n_new = max(0, end - len(sequence.tokens) + 1)
        assert part.n_logits == (n_new if sequence.rows_from is None else max(0, end - max(begin, sequence.rows_from)))
        assert len(sequence.drafts) == max(0, n_new - 1), "drafts that no part computes"
        assert sequence.n_output + n_new <= sequence.max_output, "logits that no output needs"
        states = self._states.setdefault(sequence, [])
        del states[len(sequence.tokens) - 1 :]  # it may stem from a draft that was wrong
        for token in tokens[len(states) :]:
            states.append(next_state(states[-1] if states else first_state(sequence.salt), token))
        for pool, table in zip(self.pools, sequence.block_ids, strict=True):
            for position in range(begin, end):
                pool.slots[16 * table[position // 16] + position % 16] = states[position]
            assert all(pool.is_own(block) for block in table[begin // 16 : -(-end // 16)]), "writes what others read"
        self.computed.append((sequence.request_id, begin, end))

    def _check_reads(self, part: Part, begin: int) -> None:
        sequence, states, end = part.sequence, self._states[part.sequence], begin + part.n_tokens
        for pool, window, table in zip(self.pools, self.windows, sequence.block_ids, strict=True):
            first = max(0, begin - window + 1) if window else 0
            for i in range(first // 16, -(-end // 16)):
                low, high = max(first, 16 * i), min(end, 16 * i + 16)
                shift = 16 * (table[i] - i)
                assert pool.slots[low + shift : high + shift] == states[low:high], "reads what is not there"

    def _choose(self, part: Part, end: int) -> list[int]:
        return [self.model.choose(state) for state in self._states[part.sequence][len(part.sequence.tokens) - 1 : end]]
