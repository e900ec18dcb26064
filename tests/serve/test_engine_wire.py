"""What crosses between the server and its engine's process arrives as it was sent, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.engine.engine import EngineClosedError, Load
from gristmill.engine.guide import GuideError
from gristmill.serve import engine_wire
from gristmill.serve.engine_wire import EngineOptions, Kind, Messages, StepMessages
from gristmill.types import (
    Answer,
    Event,
    Failure,
    Finish,
    Frame,
    NotFiniteError,
    PromptLogprobs,
    PromptRows,
    Request,
    SamplingParams,
    StructuredOutputsParams,
    TokenEvent,
    Wants,
)

IDS = st.integers(0, 2**31 - 1)
FINISHES = st.sampled_from([None, *Finish])
NUMBERS = st.integers(0, 2**62)
FLOATS = st.floats(-1e9, 0, allow_nan=False)
PLAIN = st.builds(TokenEvent, IDS, FINISHES, st.none(), st.none(), st.just(()), IDS)
SCORED = st.builds(TokenEvent, IDS, FINISHES, FLOATS, IDS, st.lists(st.tuples(IDS, FLOATS), max_size=3).map(tuple), IDS)
EVENTS = st.one_of(
    PLAIN,
    PLAIN,
    SCORED,
    st.builds(Answer, st.lists(IDS, max_size=5), st.sampled_from(Finish), IDS),
    st.builds(PromptLogprobs, IDS, st.lists(SCORED, max_size=3).map(tuple), st.booleans()),
)
REQUESTS = st.builds(
    Request,
    st.lists(IDS, min_size=1, max_size=5).map(tuple),
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 100),
        top_p=st.floats(0, 1, exclude_min=True),
        seed=st.none() | st.integers(-(2**63), 2**64 - 1),
        max_tokens=st.none() | st.integers(1, 2**31 - 1),
        stop=st.lists(st.text(min_size=1), max_size=2).map(tuple),
        stop_token_ids=st.lists(IDS, max_size=2).map(tuple),
        logit_bias=st.none() | st.dictionaries(IDS, st.floats(-100, 100)),
        ignore_eos=st.booleans(),
        include_stop_str_in_output=st.booleans(),
        skip_special_tokens=st.booleans(),
        prompt_logprobs=st.none() | st.integers(0, 1000),
        structured_outputs=st.none()
        | st.builds(StructuredOutputsParams, choice=st.lists(st.text(), min_size=1).map(tuple))
        | st.builds(StructuredOutputsParams, json=st.just({"type": "object"}), disable_any_whitespace=st.booleans())
        | st.builds(
            StructuredOutputsParams, regex=st.just("a"), frame=st.builds(Frame, st.text(), st.none() | st.text())
        ),
    ),
    priority=st.integers(-(2**31), 2**31),
    cache_salt=st.text(),
    wants=st.sampled_from(Wants),
    whole=st.booleans(),
)


def received(data: bytes, piece: int) -> list[tuple[Kind, bytes]]:
    messages = Messages()
    found = [each for i in range(0, len(data), piece) for each in messages.feed(data[i : i + piece])]
    assert not messages.feed(b"")
    return found


def arrived(data: bytes, piece: int = 1 << 18) -> list[tuple[int, Event]]:
    return [each for message in received(data, piece) for each in engine_wire.read_events(*message)]


@given(st.lists(st.tuples(NUMBERS, EVENTS)), st.integers(1, 40))
def test_events_arrive_as_they_were_sent(items: list[tuple[int, Event]], piece: int) -> None:
    assert arrived(engine_wire.events_message(items), piece) == items


def test_tokens_of_a_step_are_one_message() -> None:
    items = [(number, TokenEvent(number, None)) for number in range(16)]
    assert [kind for kind, _ in received(engine_wire.events_message(items), 1 << 18)] == [Kind.TOKENS]


@given(st.lists(st.tuples(NUMBERS, IDS), min_size=1), st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=2))
def test_tokens_of_steps_that_go_on_arrive_as_events_do(places: list[tuple[int, int]], seeds: list[int]) -> None:
    messages = StepMessages(*zip(*places, strict=True))
    for seed in seeds:
        ids = [(seed + i) % 2**31 for i in range(len(places))]
        events = [(number, TokenEvent(i, None, None, None, (), n)) for (number, n), i in zip(places, ids, strict=True)]
        assert messages.of(ids) == engine_wire.events_message(events)
        assert arrived(messages.of(ids)) == events


@given(st.lists(REQUESTS, min_size=1, max_size=4), NUMBERS, st.integers(1, 40))
def test_requests_arrive_as_they_were_sent(requests: list[Request], first: int, piece: int) -> None:
    ((kind, payload),) = received(engine_wire.submit_message(first, requests), piece)
    assert kind is Kind.SUBMIT
    assert engine_wire.read_submit(payload) == (first, requests)


def test_every_field_of_params_is_sent() -> None:
    numbers = (3, 0.5, 7, 0.5, 0.25, 1.5, 0.5, -0.5, {1: 2.0}, 9, 12, 2, ("a",), (5,))
    params = SamplingParams(*numbers, True, False, None, ("b",), True, 3, 4, None)
    others = {name: getattr(params, name) for name in SamplingParams.__slots__ if name != "bad_words"}
    allowing = SamplingParams(**{**others, "allowed_token_ids": (6, 7)})
    left = {"structured_outputs", "allowed_token_ids"}
    assert all(getattr(params, name) != getattr(SamplingParams(), name) for name in {*SamplingParams.__slots__} - left)
    requests = [Request((1, 2), each, rows_from=1) for each in (params, allowing)]
    assert engine_wire.read_submit(received(engine_wire.submit_message(1, requests), 99)[0][1]) == (1, requests)


@pytest.mark.parametrize("shape", [(0, 4), (3, 5)])
def test_rows_arrive_as_they_were_sent(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    ((number, event),) = arrived(engine_wire.events_message([(7, PromptRows(2, values, True))]))
    assert isinstance(event, PromptRows)
    assert (number, event.start, event.last) == (7, 2, True)
    assert event.values.dtype == np.float32
    assert np.array_equal(event.values, values)


ERRORS: list[Any] = [
    GuideError("json", "is odd"),
    ValueError("a"),
    EngineClosedError("b"),
    MemoryError("c"),
    OSError("d"),
    NotFiniteError("f"),
]


@pytest.mark.parametrize("error", [*ERRORS, KeyError("e")], ids=repr)
def test_errors_are_told_apart_on_the_other_side(error: Exception) -> None:
    ((_, event),) = arrived(engine_wire.events_message([(1, Failure(error))]))
    assert isinstance(event, Failure)
    known = error in ERRORS
    assert type(event.error) is (type(error) if known else RuntimeError)
    assert str(event.error) == (str(error) if known else "KeyError: 'e'")
    _, refusal = engine_wire.read_submitted(received(engine_wire.submitted_message(3, error), 99)[0][1])
    assert str(refusal) == str(event.error)


def test_a_status_arrives() -> None:
    load = Load(1, 2, 0.5, 3, 4)
    ((kind, payload),) = received(engine_wire.status_message(load), 3)
    assert (kind, engine_wire.read_status(payload)) == (Kind.STATUS, load)


def test_what_is_loaded_arrives() -> None:
    options = EngineOptions("m.gguf", threads=2, max_context=64, kv_budget=2**40, quantize="int8", tokenizer="t")
    assert engine_wire.read_options(received(engine_wire.options_message(options), 3)[0][1]) == options
