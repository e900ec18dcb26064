"""What comes of an answer's tokens: why it ended, what it cost, and the likelihoods that are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from dialogue.helpers import TOOLS, Bytes

from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.reader import DialogueReader
from gristmill.dialogue.types import ContentDelta, ReasoningDelta
from gristmill.outputs import TextReader
from gristmill.serve.shapes import Places, chat_logprobs, completion_logprobs
from gristmill.serve.turn import ChatTurn, Reading, TextTurn, Usage, copies
from gristmill.types import Finish, Request, SamplingParams, TokenEvent


class Known(Bytes):
    """It has no text for ids beyond its vocabulary."""

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]


CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'


def taken(text: str, finish: Finish = Finish.STOP) -> ChatTurn:
    """After a token a byte, of which the last ends the answer."""
    tokenizer = Bytes([])
    turn = ChatTurn(DialogueReader(tokenizer, make_parser("qwen", tools=TOOLS)))
    ids = tokenizer.encode(text)
    for i, token_id in enumerate(ids, 1):
        assert turn.finish is None
        turn.take(TokenEvent(token_id, finish if i == len(ids) else None))
    return turn


def test_a_call_that_is_cut_is_no_call() -> None:
    assert taken(CALL).finish == "tool_calls"
    assert taken(CALL, Finish.LENGTH).finish == "length"
    assert taken(CALL[:-20], Finish.LENGTH).finish == "length"
    assert taken("Ok").finish == "stop"


def test_a_stop_token_has_no_text() -> None:
    turn = ChatTurn(DialogueReader(Bytes([]), make_parser("qwen")), frozenset(b"!"))
    first = turn.take(TokenEvent(ord("!"), None))  # before min_tokens, say
    assert turn.finish is None
    assert first + turn.take(TokenEvent(ord("!"), Finish.STOP)) == [ContentDelta("!")]
    assert turn.finish == "stop"


def test_tokens_of_thoughts_are_counted() -> None:
    assert taken("<think>four</think>I see").n_reasoning == 4
    assert taken("I see").n_reasoning == 0


def test_a_stop_string_that_was_there_before_the_last_token_ended_nothing() -> None:
    """As where it is a mark of the answer's format, or came before min_tokens."""
    stops, tokenizer = ("</think>", "x"), Bytes([])
    turn = ChatTurn(DialogueReader(tokenizer, make_parser("qwen"), stops))
    for token_id in tokenizer.encode("<think>hm</think>x"):
        turn.take(TokenEvent(token_id, None))
    assert (turn.finish, turn.stop_string) == ("stop", "x")


@pytest.mark.parametrize("stops", [("three", "two"), ("two", "three")])
def test_the_stop_string_that_is_complete_first_counts(stops: Sequence[str]) -> None:
    tokenizer = Bytes(["one two three"])
    tokenizer.special_ids = {}  # it is a token as any other
    turn = ChatTurn(DialogueReader(tokenizer, make_parser("plain"), stops))
    assert turn.take(TokenEvent(256, None)) == [ContentDelta("one ")]
    assert (turn.finish, turn.stop_string) == ("stop", "two")


@pytest.mark.parametrize(
    ("kind", "text", "stop"), [("qwen", "a\n\nb", "\n\n"), ("qwen", "a\n", "\n"), ("llama", "a<b", "<")]
)
def test_a_stop_string_that_the_parser_held_back_is_told(kind: str, text: str, stop: str) -> None:
    """A later token shows that it is content."""
    tokenizer = Bytes([])
    turn = ChatTurn(DialogueReader(tokenizer, make_parser(kind, tools=TOOLS), [stop]))
    ids = tokenizer.encode(text)
    for i, token_id in enumerate(ids, 1):
        turn.take(TokenEvent(token_id, Finish.STOP if i == len(ids) else None))
    assert (turn.finish, turn.stop_string) == ("stop", stop)


def test_a_prompts_cached_tokens_count_once() -> None:
    """Though all of its answers say them, with their first tokens."""
    cancelled, cached = list[int](), list[int]()
    answering: Any = SimpleNamespace(cancel=cancelled.append)
    meter: Any = SimpleNamespace(tokens=lambda *_: None, cached=cached.append)
    usage = Usage(20)
    turns = [TextTurn(TextReader(Bytes([]), SamplingParams())) for _ in range(4)]
    reading = Reading(answering, turns, usage, meter, 2)

    def said(finish: Finish | None) -> Iterable[tuple[int, TokenEvent]]:
        return [(i, TokenEvent(97 + i, finish, n_cached=4 if i < 2 else 6)) for i in range(4)]

    assert [step.index for step in reading.steps([*said(None), *said(None)])] == [0, 1, 2, 3]
    assert not reading.ended
    reading.steps([*said(Finish.LENGTH), *said(None)])  # what comes after the end is no answer
    assert reading.ended
    assert (usage.n_cached, usage.n_output, cached) == (10, 12, [4, 6])
    assert cancelled == [0, 1, 2, 3]


def test_what_came_at_once_is_a_step_a_kind_with_its_own_tokens() -> None:
    """So that likelihoods are told beside the text that they are of."""
    answering: Any = SimpleNamespace(cancel=lambda _: None)
    meter: Any = SimpleNamespace(tokens=lambda *_: None, cached=lambda _: None)
    tokenizer, usage = Bytes(["</think>"]), Usage(1)
    turn = ChatTurn(DialogueReader(tokenizer, make_parser("qwen")))
    reading = Reading(answering, [turn], usage, meter, 1)
    ids = [*b"<think>hm", 256, *b"ok"]
    steps = reading.steps([(0, TokenEvent(i, Finish.STOP if n == len(ids) else None)) for n, i in enumerate(ids, 1)])
    assert [step.deltas for step in steps] == [[ReasoningDelta("hm")], [ContentDelta("ok")]]
    assert [[event.token_id for event in step.events] for step in steps] == [[*b"<think>hm", 256], [*b"ok"]]
    assert ([step.finish for step in steps], usage.n_output) == ([None, "stop"], 12)


def test_tokens_begin_where_their_text_does() -> None:
    tokenizer: Any = Bytes(["<s>", "<eot>"])
    prompt = "<s>aé"
    places = Places(tokenizer, prompt)
    assert [places.of_prompt(i) for i in [256, 256, *"aé".encode()]] == [0, 3, 3, 4, 4]  # of two <s> one is written
    assert [places.of_answer(i) for i in [*"é!".encode(), 257, *b"b"]] == [5, 5, 6, 7, 7]
    assert [Places(tokenizer, "").of_prompt(i) for i in (256, 97)] == [0, 0]
    tokenizer.strips_first_space = True
    places = Places(tokenizer, "a")
    assert [places.of_prompt(i) for i in b" a"] == [0, 0]


def test_seeds_of_several_answers_count_up() -> None:
    request = Request((1,), SamplingParams(seed=2**64 - 2))
    assert [copy.params.seed for copy in copies(request, 4)] == [2**64 - 2, 2**64 - 1, 0, 1]
    assert [copy.params.seed for copy in copies(Request((1,), SamplingParams()), 2)] == [None, None]


def test_likelihoods_are_finite_and_of_any_id() -> None:
    tokenizer: Any = Known([])
    never, top = float("-inf"), ((97, -1.0), (98, float("-inf")), (99, float("-inf")))
    events = [TokenEvent(97, None, -1.0, 1, top), TokenEvent(1000, None, never, 2, top)]  # a padded vocabulary has it
    first, second = chat_logprobs(tokenizer, events, 2)
    assert (first["token"], first["bytes"], first["logprob"]) == ("a", [97], -1.0)
    assert (second["token"], second["bytes"], second["logprob"]) == ("", [], -9999.0)
    assert [(each["token"], each["logprob"]) for each in second["top_logprobs"]] == [("a", -1.0), ("b", -9999.0)]
    assert completion_logprobs(tokenizer, events, 2, [5, 6]) == {
        "tokens": ["a", ""],
        "token_logprobs": [-1.0, -9999.0],
        "top_logprobs": [{"a": -1.0, "b": -9999.0}] * 2,
        "text_offset": [5, 6],
    }
    assert completion_logprobs(tokenizer, events, 0, [0, 1])["top_logprobs"] is None


def test_of_tokens_that_look_alike_the_likeliest_is_told() -> None:
    """Texts are the names of the older form, and parts of characters have the same."""
    event = TokenEvent(0xE2, None, -1.0, 1, ((0xE2, -1.0), (97, -2.0), (0xE3, -3.0)))
    found = completion_logprobs(Bytes([]), [event], 3, [0])
    assert found["top_logprobs"] == [{"\ufffd": -1.0, "a": -2.0}]
