"""An application whose engine costs nothing: what is left of its time is the server's own. A process of its own.

It follows the protocols of gristmill.serve.service, on the event loop's thread, and notes when it gave out what."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from gristmill.engine.engine import Load
from gristmill.formats.open import open_checkpoint
from gristmill.serve.app import Settings, create_app
from gristmill.serve.errors import ApiError
from gristmill.serve.inbox import Inbox
from gristmill.serve.server import Listen, Server
from gristmill.serve.service import Answering, Health
from gristmill.serve.sockets import free_port
from gristmill.tokenizer.chat import ChatTemplate
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.load import load_tokenizer
from gristmill.types import Finish, Request, TokenEvent

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(slots=True)
class Text:
    """All that the server knows of a model."""

    model_path: Path
    model_name: str
    tokenizer: Tokenizer
    max_context: int
    chat_template: ChatTemplate


@dataclass(slots=True, eq=False)
class Stream:
    """One request as it is answered, max_tokens tokens long. first: the first id of its prompt."""

    index: int
    left: int
    first: int
    answers: Answers


class Answers(Inbox):
    """The requests of one call."""

    def __init__(self, service: CostlessService, requests: Sequence[Request]) -> None:
        super().__init__(len(requests))
        self._service = service
        self._streams = [
            Stream(i, request.params.max_tokens or 1, request.prompt_ids[0], self) for i, request in enumerate(requests)
        ]
        service.running.update(dict.fromkeys(self._streams))

    def cancel(self, index: int) -> None:
        self._service.running.pop(self._streams[index], None)

    def close(self) -> None:
        self.closed = True
        for i in range(self.n):
            self.cancel(i)


class CostlessService:
    """Every step gives each open request its next token.

    step_s  between two steps, which a thread counts, as an engine would; 0: one in each turn of the event loop
    given   the first id of a prompt -> when each of its tokens was given out
    """

    def __init__(self, ids: list[int]) -> None:
        self.step_s = 0.0
        self.running: dict[Stream, None] = {}
        self.given: dict[int, list[float]] = {}
        self._ids = ids
        self._going = False

    async def start(self, requests: Sequence[Request]) -> Answering:
        answers = Answers(self, requests)
        if not self._going:
            self._going = True
            loop = asyncio.get_running_loop()
            if self.step_s:
                threading.Thread(target=self._pace, args=(loop, self.step_s), daemon=True).start()
            else:
                self._turn(loop)
        return answers

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._give(time.perf_counter())
        if self._going:
            loop.call_soon(self._turn, loop)

    def _pace(self, loop: asyncio.AbstractEventLoop, step_s: float) -> None:
        due = time.perf_counter()
        while self._going:
            now = time.perf_counter()
            if due > now:
                time.sleep(due - now)
            loop.call_soon_threadsafe(self._give, time.perf_counter())
            due += step_s

    def _give(self, when: float) -> None:
        for stream in list(self.running):
            stream.left -= 1
            finish = Finish.LENGTH if stream.left <= 0 else None
            stream.answers.put(stream.index, TokenEvent(self._ids[stream.left % len(self._ids)], finish))
            stream.answers.wake()
            self.given.setdefault(stream.first, []).append(when)
            if finish is not None:
                self.running.pop(stream, None)
        self._going = bool(self.running)

    def open(self) -> None: ...

    @property
    def health(self) -> Health:
        return Health()

    @property
    def n_open(self) -> int:
        return len(self.running)

    def load(self) -> Load:
        return Load(len(self.running), 0, 0.0, 0)

    def fail(self, error: ApiError) -> None: ...

    def close(self) -> None: ...


def serve(pipe: Connection, vocabulary: Path) -> None:
    """Sends its port; then takes step_s for the time that follows, and answers with what was given out before and the
    processor time that this has taken."""
    tokenizer = load_tokenizer(open_checkpoint(vocabulary))
    ids = tokenizer.encode(
        "The miller poured the golden grain, and the old stones turned all night.", add_special=False
    )
    service = CostlessService(ids)
    text = Text(vocabulary, "costless", tokenizer, 1 << 20, ChatTemplate(CHATML))
    listen = Listen(port=free_port())
    server = Server(create_app(text, Settings(names=("costless",), recommended=False), service), listen)

    async def main() -> None:
        def told() -> None:
            try:
                step_s = pipe.recv()
            except EOFError:
                server.should_exit = True
                loop.remove_reader(pipe.fileno())
                return
            service.step_s = step_s
            pipe.send((service.given, time.process_time()))
            service.given = {}

        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), told)
        pipe.send(listen.port)
        await server.serve()

    asyncio.run(main())
