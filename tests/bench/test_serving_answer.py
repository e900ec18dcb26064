"""Answers in the shapes that servers give them; the openai library's own types write the events."""

from __future__ import annotations

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion import Completion

from gristmill.bench.serving.answer import Answer, AnswerError

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
HEAD = {"id": "x", "created": 1, "model": "m"}


def chat(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}


def chat_events() -> list[dict[str, object]]:
    last = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    return [
        chat({"role": "assistant", "content": ""}),
        chat({"content": "a"}),
        chat({"content": "b"}),
        chat({}, "stop"),
        last,
    ]


def stream(events: list[dict[str, object]], line_end: str = "\n", data: str = "data: ") -> bytes:
    lines = [f"{data}{event}" for event in (*map(json.dumps, events), "[DONE]")]
    return "".join(f"{line}{line_end}{line_end}" for line in lines).encode()


def test_events_are_the_libraries_own() -> None:
    for event in chat_events():
        ChatCompletionChunk.model_validate(event)


@pytest.mark.parametrize(("line_end", "field"), [("\n", "data: "), ("\r\n", "data: "), ("\n", "data:")])
@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_a_chat_however_it_is_cut(line_end: str, field: str, size: int) -> None:
    data, answer = stream(chat_events(), line_end, field), Answer(stream=True)
    for i in range(0, len(data), size):
        answer.take(200, data[i : i + size], float(i))
    answer.end(200, 9.0)
    assert (answer.n_input, answer.n_output) == (7, 3)
    assert len(answer.times) == 2
    assert answer.times == sorted(answer.times)


def test_thoughts_and_calls_are_text_and_comments_are_not() -> None:
    answer = Answer(stream=True)
    answer.take(200, b": still at work\n\n" + stream([chat({"reasoning_content": "hm"})]), 1.0)
    answer.take(200, stream([chat({"tool_calls": [{"index": 0}]}), chat({}, "tool_calls")]), 2.0)
    answer.end(200, 3.0)
    assert answer.times == [1.0, 2.0]
    assert answer.n_output is None


def test_tokens_without_text() -> None:
    answer = Answer(stream=True)
    answer.take(200, stream([chat({}, "length")]), 1.0)
    answer.end(200, 2.0)
    assert answer.times == [2.0]


def test_whole_answers() -> None:
    choice = {"index": 0, "text": "a b", "finish_reason": "stop", "logprobs": None}
    completion = Completion.model_validate({**HEAD, "object": "text_completion", "choices": [choice], "usage": USAGE})
    message = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    chatted = ChatCompletion.model_validate({**HEAD, "object": "chat.completion", "choices": [message], "usage": USAGE})
    for whole in (completion, chatted):
        answer, data = Answer(stream=False), whole.model_dump_json().encode()
        answer.take(200, data[:10], 1.0)
        answer.take(200, data[10:], 1.5)
        answer.end(200, 2.0)
        assert answer.times == [2.0]
        assert (answer.n_input, answer.n_output) == (7, 3)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, stream([chat({"content": "a"})]), "the stream ended before the answer did"),
        (200, b'data: {"error": {"message": "out of luck", "code": 500}}\n\n', "out of luck"),
        (200, b'error: {"message": "out of luck"}\n\n', "out of luck"),
        (200, b"data: nonsense\n\n", "which is no JSON object"),
        (200, b'data: {"choices": 5}\n\n', "which is no part of an answer"),
        (200, b'data: {"choices": ["a"]}\n\n', "which is no part of an answer"),
        (200, b'data: {"choices": [{"delta": "a"}]}\n\n', "which is no part of an answer"),
        (200, b'data: {"usage": {"prompt_tokens": "7"}}\n\n', "which is no part of an answer"),
        (503, b'{"error": {"message": "too many", "type": "x"}}', "HTTP 503: too many"),
        (404, b"<html>", "HTTP 404: <html>"),
        (404, b'{"detail": "Not Found"}', "HTTP 404: {'detail': 'Not Found'}"),
    ],
)
def test_failures_have_names(status: int, body: bytes, message: str) -> None:
    answer = Answer(stream=True)

    def read() -> None:
        answer.take(status, body, 1.0)
        answer.end(status, 2.0)

    with pytest.raises(AnswerError) as error:
        read()
    assert message in str(error.value)
