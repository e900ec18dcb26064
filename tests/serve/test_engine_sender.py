"""What the engine's process says arrives in its order, and nobody who says it waits for the other side to read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from served import wait_until

from gristmill.engine.telling import Takers
from gristmill.serve.engine_sender import Sender
from gristmill.serve.engine_wire import Kind, Messages, message, read_events
from gristmill.types import Event, Finish, TokenEvent

pytestmark = pytest.mark.alone


@pytest.fixture
def pair() -> Iterator[tuple[Sender, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        yield Sender(ours), theirs


def receive(theirs: socket.socket, n_events: int) -> list[tuple[int, Event]]:
    messages, found = Messages(), list[tuple[int, Event]]()
    while len(found) < n_events:
        for kind, payload in messages.feed(theirs.recv(1 << 16)):
            if kind is not Kind.ALIVE:
                found += read_events(kind, payload)
    return found


def test_events_of_a_step_are_sent_when_it_ends(pair: tuple[Sender, socket.socket]) -> None:
    sender, theirs = pair
    first, last = TokenEvent(5, None, n_cached=16), TokenEvent(6, Finish.STOP)
    sender.take(1, first)
    sender.take(2, last)
    takers = Takers(sender, (0, 1), (1, 3), (16, 0))
    sender.take_step(takers, [7, 8])
    sender.take(1, last)
    sender.flush()
    goes_on = [(1, TokenEvent(7, None, n_cached=16)), (3, TokenEvent(8, None))]
    assert receive(theirs, 5) == [(1, first), (2, last), *goes_on, (1, last)]


def test_what_is_not_read_waits_and_keeps_its_order(pair: tuple[Sender, socket.socket]) -> None:
    sender, theirs = pair
    takers = Takers(sender, range(64), range(64), (0,) * 64)
    start = time.monotonic()
    for step in range(2000):  # 4 MB, of which a socket holds a small part
        sender.take_step(takers, [step] * 64)
    assert time.monotonic() - start < 2
    assert sender.is_behind
    found = receive(theirs, 64 * 2000)
    assert found == [(key, TokenEvent(step, None)) for step in range(2000) for key in range(64)]
    wait_until(lambda: not sender.is_behind)


def test_threads_that_say_something_at_once_do_not_cut_each_others_messages(
    pair: tuple[Sender, socket.socket],
) -> None:
    sender, theirs = pair
    takers = Takers(sender, (0,), (9,), (0,))

    def say() -> None:
        for _ in range(200):
            sender.send(message(Kind.PROGRESS, b"x" * 5000))

    threads = [threading.Thread(target=say) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(200):
        sender.take_step(takers, [step])
    messages, steps, others = Messages(), list[int](), list[bytes]()
    while len(steps) < 200 or len(others) < 600:
        for kind, payload in messages.feed(theirs.recv(1 << 16)):
            if kind is Kind.TOKENS:
                steps += [event.token_id for _, event in read_events(kind, payload) if isinstance(event, TokenEvent)]
            elif kind is Kind.PROGRESS:
                others.append(payload)
    assert steps == list(range(200))
    assert set(others) == {b"x" * 5000}


def test_a_sign_of_life_comes_by_itself(pair: tuple[Sender, socket.socket]) -> None:
    _, theirs = pair
    messages, kinds = Messages(), list[Kind]()
    while len(kinds) < 2:
        kinds += [kind for kind, _ in messages.feed(theirs.recv(1 << 16))]
    assert set(kinds) == {Kind.ALIVE}


def test_nothing_is_wrong_where_nobody_reads_any_more(pair: tuple[Sender, socket.socket]) -> None:
    sender, theirs = pair
    theirs.close()
    sender.take(1, TokenEvent(5, None))
    sender.flush()
    assert not sender.is_behind
