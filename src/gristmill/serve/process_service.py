"""An engine in a process of its own as a Service: requests get numbers, by which what comes of them finds its call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from gristmill.engine.engine import Load
from gristmill.serve.engine_child import EngineChild, Watch
from gristmill.serve.engine_wire import EngineOptions, Kind, cancel_message, read_events, read_submitted, submit_message
from gristmill.serve.errors import ApiError, as_api_error
from gristmill.serve.inbox import MAX_UNREAD, Inbox, OpenCalls
from gristmill.serve.service import Answering, Health
from gristmill.serve.supervisor import Supervisor
from gristmill.types import Request


class ProcessService:
    """At most max_sequences + max_queue requests are open, others are refused. All of them fail when the process dies.

    on_progress  (bytes loaded, bytes in all)
    on_ready     the model is there for the first time
    on_warming   (steps done, steps in all) before that, on a card
    """

    def __init__(
        self,
        options: EngineOptions,
        max_queue: int,
        on_progress: Callable[[int, int], None] | None = None,
        on_ready: Callable[[], None] | None = None,
        max_unread: int = MAX_UNREAD,
        on_warming: Callable[[int, int], None] | None = None,
    ) -> None:
        self._open = OpenCalls(options.max_sequences + max_queue)
        warming = on_warming or (lambda done, total: None)
        watch = Watch(self._take, on_progress or (lambda done, total: None), warming, on_ready or (lambda: None))
        self.supervisor = Supervisor(options, watch, self._open.fail)
        self._max_unread = max_unread
        self._numbers = count()
        self._places: dict[int, tuple[_Answers, int]] = {}

    def open(self) -> None:
        self.supervisor.open()

    def close(self) -> None:
        self.supervisor.close()

    @property
    def n_open(self) -> int:
        return self._open.n

    @property
    def n_free(self) -> int:
        return self._open.n_free

    async def room(self) -> None:
        await self._open.room()

    @property
    def health(self) -> Health:
        return self.supervisor.health

    def load(self) -> Load:
        """As it was told at most half a second ago."""
        return self.supervisor.load

    def fail(self, error: ApiError) -> None:
        self._open.fail(error)

    async def start(self, requests: Sequence[Request]) -> Answering:
        child = self.supervisor.ready_child()
        self._open.check_room(len(requests))
        first = next(self._numbers)
        numbers = [first, *(next(self._numbers) for _ in requests[1:])]
        answers = _Answers(child, numbers, self._max_unread, self._end)
        self._open.add(answers)
        self._places.update((number, (answers, i)) for i, number in enumerate(numbers))
        child.send(submit_message(first, requests))
        try:
            await answers.accepted()
        except BaseException:
            answers.close()
            raise
        return answers

    def _end(self, answers: _Answers) -> None:
        self._open.remove(answers)
        for number in answers.numbers:
            del self._places[number]

    def _take(self, kind: Kind, payload: bytes) -> None:
        """A message about requests. Of those that have been closed there is nothing to say."""
        places = self._places
        if kind is Kind.SUBMITTED:
            number, refusal = read_submitted(payload)
            if number in places:
                places[number][0].answer(refusal)
            return
        woken = dict[_Answers, None]()
        for number, event in read_events(kind, payload):
            place = places.get(number)
            if place is not None:
                answers, index = place
                if not answers.put(index, event):
                    answers.cancel(index)
                woken[answers] = None
        for answers in woken:
            answers.wake()


class _Answers(Inbox):
    """One call's requests, in the process `child`."""

    def __init__(
        self, child: EngineChild, numbers: Sequence[int], max_unread: int, on_end: Callable[[_Answers], None]
    ) -> None:
        super().__init__(len(numbers), max_unread)
        self.numbers = numbers
        self._child = child
        self._on_end = on_end
        self._is_answered = asyncio.Event()
        self._refusal: Exception | None = None

    def answer(self, refusal: Exception | None) -> None:
        self._refusal = refusal
        self._is_answered.set()

    async def accepted(self) -> None:
        """ApiError for what the engine refused."""
        await self._is_answered.wait()
        if self._refusal is not None:
            raise as_api_error(self._refusal) from self._refusal
        self.check()

    def fail(self, error: ApiError) -> None:
        super().fail(error)
        self._is_answered.set()

    def cancel(self, index: int) -> None:
        self._child.send(cancel_message([self.numbers[index]]))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._child.send(cancel_message(self.numbers))
        self._on_end(self)
