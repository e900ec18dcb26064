"""An answer as a row of blocks (thought, text, call), which both the Responses and the Messages API show it as."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from gristmill.dialogue.types import ContentDelta, Delta, ReasoningDelta, ToolCallArguments, ToolCallStart
from gristmill.serve.chat import ChatCall
from gristmill.serve.service import Answering
from gristmill.serve.turn import Reading


class BlockKind(Enum):
    THOUGHT = "thought"
    TEXT = "text"
    CALL = "call"


class Change(Enum):
    OPENED = "opened"
    GREW = "grew"
    CLOSED = "closed"


@dataclass(slots=True)
class Block:
    """index: its place in the answer. call: for a call."""

    kind: BlockKind
    index: int
    call: ToolCallStart | None = None
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Blocks:
    """One answer's blocks as its deltas come. One is open at a time. Without tells_thoughts, thoughts are empty."""

    def __init__(self, tells_thoughts: bool = True) -> None:
        self.all: list[Block] = []
        self._tells_thoughts = tells_thoughts
        self._open = False

    def take(self, deltas: list[Delta]) -> Iterator[tuple[Change, Block, str]]:
        """What changes, in order; the text is what a block grew by."""
        for delta in deltas:
            match delta:
                case ReasoningDelta(text):
                    yield from self._grow(BlockKind.THOUGHT, text)
                case ContentDelta(text):
                    yield from self._grow(BlockKind.TEXT, text)
                case ToolCallStart():
                    yield from self._begin(BlockKind.CALL, delta)
                case ToolCallArguments(_, piece):
                    self.all[-1].pieces.append(piece)
                    yield Change.GREW, self.all[-1], piece

    def finish(self) -> Iterator[tuple[Change, Block, str]]:
        """No delta comes any more."""
        if self._open:
            self._open = False
            yield Change.CLOSED, self.all[-1], ""

    def _begin(self, kind: BlockKind, call: ToolCallStart | None) -> Iterator[tuple[Change, Block, str]]:
        yield from self.finish()
        self._open = True
        self.all.append(Block(kind, len(self.all), call))
        yield Change.OPENED, self.all[-1], ""

    def _grow(self, kind: BlockKind, text: str) -> Iterator[tuple[Change, Block, str]]:
        if not self._open or self.all[-1].kind is not kind:
            yield from self._begin(kind, None)
        if kind is BlockKind.THOUGHT and not self._tells_thoughts:
            return
        self.all[-1].pieces.append(text)
        yield Change.GREW, self.all[-1], text


@dataclass(slots=True)
class BlocksCall:
    """A chat's answer that is being computed, to be shown in blocks. `close` it in any case."""

    chat: ChatCall
    blocks: Blocks = field(kw_only=True, default_factory=Blocks)

    @property
    def answering(self) -> Answering:
        return self.chat.answering

    @property
    def reading(self) -> Reading:
        return self.chat.reading

    def close(self) -> None:
        self.chat.close()

    async def read_all(self) -> None:
        """Until the answer has ended."""
        while not self.reading.ended:
            for step in await self.reading.next():
                for _ in self.blocks.take(step.deltas):
                    pass
