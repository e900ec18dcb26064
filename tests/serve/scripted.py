"""A service that answers with a text that a test chose, a token at a time: what a trained model would say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gristmill.engine.engine import Load
from gristmill.serve.errors import ApiError
from gristmill.serve.inbox import Inbox
from gristmill.serve.service import Answering, Health
from gristmill.tokenizer.interface import Tokenizer
from gristmill.types import Failure, Finish, Request, TokenEvent


class ScriptedService:
    """requests: what it was asked. Raises `error` after the text, where there is one. cut: max_tokens ends the text.
    token_s: what a token takes."""

    def __init__(
        self, tokenizer: Tokenizer, text: str, error: Exception | None = None, cut: bool = False, token_s: float = 0
    ) -> None:
        ids = tokenizer.encode(text, add_special=False)
        if tokenizer.token_bytes(ids[0]) == b" " and not text.startswith(" "):  # the space that begins a text
            ids = ids[1:]
        self._ids = ids if cut else [*ids, tokenizer.eos_ids[0]]
        self._finish = Finish.LENGTH if cut else Finish.STOP
        self._error = error
        self._token_s = token_s
        self.requests: list[Request] = []
        self.n_open = 0
        self.health = Health()

    def open(self) -> None: ...

    async def start(self, requests: Sequence[Request]) -> Answering:
        self.requests += requests
        self.n_open += 1
        return _Script(self, self._ids, len(requests), self._error, self._finish, self._token_s)

    n_free = 1

    async def room(self) -> None: ...

    def load(self) -> Load:
        return Load(0, 0, 0.0, 0)

    def fail(self, error: ApiError) -> None: ...

    def close(self) -> None: ...


class _Script(Inbox):
    def __init__(
        self, service: ScriptedService, ids: list[int], n: int, error: Exception | None, finish: Finish, token_s: float
    ) -> None:
        super().__init__(n)
        self._token_s = token_s
        self._service, self._ids, self._error, self._finish = service, ids, error, finish
        self._speaking = asyncio.create_task(self._speak())

    async def _speak(self) -> None:
        for i, token_id in enumerate(self._ids):
            await asyncio.sleep(self._token_s)
            last = i == len(self._ids) - 1
            for k in range(self.n):
                event = TokenEvent(token_id, self._finish if last else None)
                self.put(k, Failure(self._error) if last and self._error is not None else event)
            self.wake()

    async def settle(self) -> None: ...

    def cancel(self, index: int) -> None: ...

    def close(self) -> None:
        self._speaking.cancel()
        if not self.closed:
            self.closed = True
            self._service.n_open -= 1
