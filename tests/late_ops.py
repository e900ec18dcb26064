"""A processor that behaves like a card: what was begun is done as late as can be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import Begun
from gristmill.types import Batch


class Late:
    """A continuation that has computed nothing until its ids are asked for. log: what was called, in order."""

    def __init__(self, now: Callable[[Begun], list[int]], log: list[str]) -> None:
        self._now, self.log = now, log
        self._queue = deque[Begun]()

    def begin(self, begun: Begun) -> None:
        assert len(self._queue) < 2, "three steps in flight"
        self._queue.append([list(blocks) for blocks in begun])
        self.log.append("begin")

    def finish(self) -> list[int]:
        self.log.append("finish")
        return self._now(self._queue.popleft())

    def __call__(self, begun: Begun) -> list[int]:
        assert not self._queue, "a step overtakes those in flight"
        self.log.append("go on")
        return self._now(begun)


class LateOps(CpuOps):
    runs_ahead = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log = list[str]()

    def continuation(self, batch: Batch, ids: Any, again: Callable[[], None]) -> Late:
        return Late(super().continuation(batch, ids, again), self.log)

    def capture(self, step: Any) -> Any:
        self.log.append("record")
        return super().capture(step)
