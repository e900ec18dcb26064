"""Steps that are done again: CUDA graphs, and the ids of one step that come back while the next one runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gristmill.ops.interface import Arrays, Begun
from gristmill.ops.triton.advance import advance
from gristmill.types import Batch


class Recorder:
    """Captures steps on one device; on the processor, for tests, it does each operation again.

    All graphs share the memory of what lies between their operations, and of their large results.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_card = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._on_card else None
        self._shared: Tensor | None = None  # bytes

    def capture(self, step: Callable[[], Arrays]) -> tuple[Arrays, Callable[[], None]]:
        """See `interface.Ops.capture`. Integers among the results stay until this step is done again."""
        results: Arrays = step()  # and so every kernel is compiled and loaded, which a graph cannot do
        kept = tuple(self._kept(result) for result in results)

        def keep(values: Arrays) -> None:
            for to, value in zip(kept, values, strict=True):
                to.copy_(value)

        if not self._on_card:
            keep(results)
            return kept, lambda: keep(step())
        del results
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            keep(step())
        graph.replay()
        return kept, graph.replay

    def _kept(self, result: Tensor) -> Tensor:
        if not result.is_floating_point():
            return torch.empty_like(result)
        n_bytes = result.nbytes
        if self._shared is None or len(self._shared) < n_bytes:
            self._shared = torch.empty(n_bytes, dtype=torch.uint8, device=result.device)
        return self._shared[:n_bytes].view(result.dtype).view(result.shape)


class Continuation:
    """See `interface.Continuation`. Two steps may be begun and not finished."""

    def __init__(self, batch: Batch, ids: Tensor, again: Callable[[], None]) -> None:
        self._batch, self._ids, self._again = batch, ids, again
        on_card = ids.device.type == "cuda"
        self._hosts = [torch.empty(ids.shape, dtype=ids.dtype, pin_memory=on_card) for _ in range(2)]
        self._arrived = [torch.cuda.Event() for _ in range(2)] if on_card else None
        self._n_begun = self._n_finished = 0

    def begin(self, begun: Begun) -> None:
        """Queues everything on the device and waits for nothing: the ids go from its memory into the next step."""
        advance(self._batch, self._ids, begun)
        self._again()
        i = self._n_begun % 2
        self._n_begun += 1
        self._hosts[i].copy_(self._ids, non_blocking=True)
        if self._arrived is not None:
            self._arrived[i].record()

    def finish(self) -> list[int]:
        i = self._n_finished % 2
        self._n_finished += 1
        if self._arrived is not None:
            self._arrived[i].synchronize()
        chosen: list[int] = self._hosts[i].tolist()
        return chosen

    def __call__(self, begun: Begun) -> list[int]:
        self.begin(begun)
        return self.finish()
