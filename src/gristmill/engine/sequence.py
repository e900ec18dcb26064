"""One request on its way: its tokens, how many of them the cache holds, and where. It knows of no other request."""

from __future__ import annotations

from _blake2 import blake2b  # that of hashlib, which loads OpenSSL too: 4 ms and 4 MB
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.types import Finish, SamplingParams

_BLOCK_OF_IDS = Struct(f"<{BLOCK_SIZE}i")


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable; touched by the engine's thread alone. Who makes one gives the fields up to `rows_from`.

    tokens       the prompt, then what was generated
    seed         the request's own, or one that was drawn for it
    stop_ids     tokens that end it once there are params.min_tokens of output
    max_output   tokens to generate at most; with the prompt (max_tokens) they fit the model's context
    priority     lower is served first; equal ones in the order of `arrival`
    salt         sequences share cached blocks only where their salts are equal
    rows_from    logits are wanted of the tokens from this position on, so that it takes none of these from the cache;
                 None: of the last alone

    n_computed   tokens whose keys and values are in the cache
    n_cached     prompt tokens that were there already when it was first admitted
    n_scheduled  tokens that the step in progress computes
    block_ids    one table a layer group while it runs: table[i] holds positions 16 i .. 16 i + 15. What has left a
                 group's window is freed, and 0 stands in its place
    hashes       of the full blocks of `tokens`, as far as they were needed: each is of the block and all before it
    drafts       guesses at the tokens to come, to be verified with the next step
    awaited      while it waits: the hash of a block that another sequence is about to compute
    """

    request_id: int
    tokens: list[int]
    n_prompt: int
    params: SamplingParams
    seed: int
    stop_ids: frozenset[int]
    max_output: int
    priority: int = 0
    arrival: int = 0
    salt: bytes = b""
    rows_from: int | None = None
    n_computed: int = 0
    n_cached: int = 0
    n_scheduled: int = 0
    n_preempted: int = 0
    block_ids: list[list[int]] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    awaited: bytes | None = None
    status: Status = Status.WAITING
    finish: Finish | None = None
    max_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.max_tokens = self.n_prompt + self.max_output

    @property
    def order(self) -> tuple[int, int, int]:
        """What comes first is served first and preempted last. No two sequences are equal."""
        return (self.priority, self.arrival, self.request_id)

    @property
    def n_output(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def n_reusable(self) -> int:
        """Tokens that need not be computed where the cache has them."""
        n = len(self.tokens) - 1
        return n if self.rows_from is None else min(n, self.rows_from)

    @property
    def room(self) -> int:
        """Tokens that its blocks have place for."""
        return len(self.block_ids[0]) * BLOCK_SIZE

    @property
    def n_full(self) -> int:
        """Blocks that are computed to their end."""
        return self.n_computed // BLOCK_SIZE

    def hash_blocks(self, n: int) -> None:
        """Hashes at least the first n full blocks."""
        if n <= len(self.hashes):
            return
        for i in range(len(self.hashes), n):
            before = self.hashes[-1] if i else blake2b(self.salt, digest_size=16, person=b"gristmill salt").digest()
            ids = _BLOCK_OF_IDS.pack(*self.tokens[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE])
            self.hashes.append(blake2b(before + ids, digest_size=16).digest())

    def accept(self, chosen: list[int]) -> list[int]:
        """Appends what the model chose after its last token and after each draft, as long as the drafts were right.

        Sets `finish` where a token ends the sequence; nothing after that is taken. Returns the tokens appended.
        """
        n = 0
        for token_id in chosen:
            self.tokens.append(token_id)
            n += 1
            if token_id in self.stop_ids and self.n_output >= self.params.min_tokens:
                self.finish = Finish.STOP
            elif len(self.tokens) == self.max_tokens:
                self.finish = Finish.LENGTH
            if self.finish is not None or n > len(self.drafts) or token_id != self.drafts[n - 1]:
                break
        if self.drafts:
            self.drafts = []
        return chosen[:n]
