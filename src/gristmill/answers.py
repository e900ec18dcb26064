"""The requests of one `LLM` call: submitted together, waited for, and put in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gristmill.engine.engine import Engine
from gristmill.outputs import Collector, RequestOutput
from gristmill.tokenizer.interface import Tokenizer
from gristmill.types import Request, SamplingParams

if TYPE_CHECKING:
    from gristmill.dialogue.reader import DialogueReader


class Answers:
    """The requests of one call, and what came of them."""

    def __init__(self, engine: Engine, on_end: Callable[[], object]) -> None:
        self._engine = engine
        self._on_end = on_end
        self._requests: list[tuple[str | None, list[int], list[Collector]]] = []
        self._ids: list[int] = []
        self._n_open = 1  # the call itself, until all are submitted
        self._counting = threading.Lock()
        self._ended = threading.Event()

    def submit(
        self,
        prompt: str | None,
        ids: list[int],
        params: SamplingParams,
        priority: int,
        tokenizer: Tokenizer | None,
        dialogue: Callable[[], DialogueReader] | None = None,
    ) -> None:
        readers = [dialogue() if dialogue is not None else None for _ in range(params.n)]
        collectors = [Collector(tokenizer, params, self._count_down, reader) for reader in readers]
        self._requests.append((prompt, ids, collectors))
        for i, collector in enumerate(collectors):
            seed = None if params.seed is None else (params.seed + i) % 2**64
            own = params if i == 0 else replace(params, seed=seed, prompt_logprobs=None)  # the prompt's are told once
            with self._counting:
                self._n_open += 1
            request = Request(tuple(ids), own, priority, whole=collector.whole)
            self._ids.append(self._engine.submit(request, collector))

    def all_submitted(self) -> None:
        self._count_down()

    def wait(self) -> None:
        self._ended.wait()

    def cancel(self) -> None:
        self._requests = []  # as in `outputs`
        for request_id in self._ids:
            self._engine.cancel(request_id)

    def outputs(self) -> list[RequestOutput]:
        """In the order of the prompts, once. Raises what went wrong with any of them."""
        requests, self._requests = self._requests, []  # which lead back here, and so would keep the engine
        error = next((each.error for _, _, every in requests for each in every if each.error is not None), None)
        if error is not None:
            try:
                raise error
            finally:
                del requests, error  # which lead back to it
        return [
            RequestOutput(
                prompt,
                ids,
                [collector.output(i) for i, collector in enumerate(collectors)],
                collectors[0].prompt_logprobs(),
                collectors[0].n_cached,
            )
            for prompt, ids, collectors in requests
        ]

    def _count_down(self) -> None:
        with self._counting:
            self._n_open -= 1
            ended = self._n_open == 0
        if ended:
            self._ended.set()
            self._on_end()
