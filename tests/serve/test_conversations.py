"""What the Messages and the Responses API ask for, as the chat requests that it comes to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from processor_time import assert_grows_less

from gristmill.dialogue.types import Kind
from gristmill.serve import messages_protocol, responses_protocol
from gristmill.serve.chat_protocol import ChatRequest
from gristmill.serve.errors import ApiError
from gristmill.serve.messages_protocol import MessagesRequest
from gristmill.serve.responses_protocol import ResponsesRequest
from gristmill.serve.wire import validate

TOOL = {"name": "weather", "input_schema": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}


def of_messages(
    body: dict[str, Any], kind: Kind = Kind.PLAIN, words: tuple[str, ...] = (), shows_later: bool = True
) -> ChatRequest:
    """words: what the model's template looks at."""
    texts: Any = SimpleNamespace(kind=kind, template_words=frozenset(words), shows_later_system=shows_later)
    given = {"max_tokens": 9, "messages": [{"role": "user", "content": "ab"}], **body}
    return messages_protocol.as_chat(validate(MessagesRequest, given), texts)[0]


def of_turn(role: str, *blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """The chat's messages."""
    chat = of_messages({"messages": [{"role": role, "content": list(blocks)}]})
    return [message.plain() for message in chat.messages]


def of_items(*items: dict[str, Any]) -> list[dict[str, Any]]:
    chat, _ = responses_protocol.as_chat(validate(ResponsesRequest, {"input": list(items)}))
    return [message.plain() for message in chat.messages]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def result(**more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": "no", **more}


def test_texts_beside_each_other_are_one_message_and_results_their_own() -> None:
    assert of_turn("user", text("a"), text("b"), result(), text("c")) == [
        {"role": "user", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
        {"role": "user", "content": "c"},
    ]


@pytest.mark.parametrize(("more", "said"), [({"is_error": True}, "Error: no"), ({"is_error": False}, "no"), ({}, "no")])
def test_a_result_that_is_an_error_says_so(more: dict[str, Any], said: str) -> None:
    assert of_turn("user", result(**more))[0]["content"] == said


@pytest.mark.parametrize(
    ("system", "shows_later", "systems"),
    [
        ("a", True, ["a", None, "b"]),
        (None, True, [None, "b"]),
        ("a", False, ["a\nb", None]),
        (None, False, ["b", None]),
    ],
)
def test_what_the_system_says_later(system: str | None, shows_later: bool, systems: list[str | None]) -> None:
    turns = [{"role": "user", "content": "?"}, {"role": "system", "content": [text("b")]}]
    own = {"system": system} if system is not None else {}
    chat = of_messages({"messages": turns, **own}, shows_later=shows_later)
    assert [m.content if m.role == "system" else None for m in chat.messages] == systems


def test_thoughts_of_a_message_are_given_back() -> None:
    thoughts = [{"type": "thinking", "thinking": thought, "signature": ""} for thought in ("hm", "so")]
    (message,) = of_turn("assistant", *thoughts, text("four"))
    assert (message["reasoning_content"], message["content"]) == ("hm\nso", "four")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_choices_of_tools(choice: dict[str, Any], expected: Any, alone: bool) -> None:
    chat = of_messages({"tools": [TOOL], "tool_choice": {**choice, "disable_parallel_tool_use": alone}})
    assert (chat.tool_choice, chat.parallel_tool_calls) == (expected, not alone)


USED = {"type": "tool_use", "id": "c1", "name": "weather", "input": "{}"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [TOOL], "tool_choice": {"type": "auto", "name": "weather"}}, "tool_choice.name"),
        ({"messages": [{"role": "assistant", "content": [USED]}]}, "messages[0].content[0].input"),
        ({"messages": [{"role": "assistant", "content": [{**USED, "id": 1}]}]}, "messages[0].content[0].id"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ],
)
def test_messages_that_are_none_are_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_messages(body)
    assert caught.value.param == param


@pytest.mark.parametrize("wanted", ["enabled", "adaptive", "disabled"])
def test_thinking_is_what_the_template_has(wanted: str) -> None:
    body = {"thinking": {"type": wanted}}
    thinks = wanted != "disabled"
    assert of_messages(body, words=("enable_thinking",)).chat_template_kwargs == {"enable_thinking": thinks}
    for kind in (Kind.DEEPSEEK, Kind.HARMONY, Kind.LLAMA, Kind.QWEN):
        if thinks == (kind in (Kind.DEEPSEEK, Kind.HARMONY)):
            assert of_messages(body, kind).chat_template_kwargs is None
            continue
        with pytest.raises(ApiError) as caught:
            of_messages(body, kind)
        assert caught.value.param == "thinking"


def test_thoughts_texts_and_calls_are_one_message_until_another_begins() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"role": "assistant", "content": "I look."}
    messages = of_items(thought, said, CALL, CALL, {**thought, "content": [{"type": "reasoning_text", "text": "so"}]})
    assert [(m.get("reasoning_content"), m.get("content"), len(m.get("tool_calls", ()))) for m in messages] == [
        ("hm", "I look.", 2),
        ("so", None, 0),
    ]
    assert [message["content"] for message in of_items(said, {**said, "content": "More."})] == ["I look.", "More."]


def test_thoughts_around_a_responses_text_are_all_given_back() -> None:
    """As gpt-oss writes them."""
    thoughts = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": each}]} for each in ("hm", "so")]
    (message,) = of_items(thoughts[0], {"role": "assistant", "content": "I look."}, thoughts[1], CALL)
    assert (message["reasoning_content"], message["content"]) == ("hm\nso", "I look.")
    assert len(message["tool_calls"]) == 1


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_many_small_parts_take_linear_time(api: str) -> None:
    """Sixteen times as many take some sixteen times the time: they are read where all requests are answered."""
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a" * 40}]}

    def read(n: int) -> None:
        messages = of_turn("user", *[text("a" * 40)] * n) if api == "messages" else of_items(*[thought] * n)
        assert len(messages) == 1

    assert_grows_less(read, 10_000, 160_000, 64)


def of_response(**body: Any) -> ChatRequest:
    return responses_protocol.as_chat(validate(ResponsesRequest, {"input": "ab", **body}))[0]


def test_a_responses_form_and_calls() -> None:
    assert of_response().parallel_tool_calls
    assert not of_response(parallel_tool_calls=False).parallel_tool_calls
    form = of_response(text={"format": {"type": "json_object"}}).response_format
    assert form is not None
    assert form.type == "json_object"
    with pytest.raises(ApiError) as caught:
        of_response(text={"format": {"type": "json_schema", "name": "x"}})
    assert (caught.value.param, caught.value.code) == ("text.format.schema", "missing_required_parameter")


def of_chat(**body: Any) -> ChatRequest:
    return validate(ChatRequest, {"messages": [{"role": "user", "content": "ab"}], **body})


def test_the_most_tokens_of_a_chat_have_two_names() -> None:
    assert of_chat().most_tokens is None
    assert of_chat(max_tokens=5).most_tokens == of_chat(max_completion_tokens=5).most_tokens == 5
    assert of_chat(max_tokens=5, max_completion_tokens=5).most_tokens == 5


def test_a_thought_has_two_names() -> None:
    for names in ({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"reasoning": "so", "reasoning_content": "hm"}):
        message = of_chat(messages=[{"role": "assistant", "content": "four", **names}]).messages[0]
        assert message.plain() == {"role": "assistant", "content": "four", "reasoning_content": "hm"}


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_who_asks_says_something(role: str) -> None:
    with pytest.raises(ApiError, match=r"messages\[0\]\.content: is missing"):
        of_chat(messages=[{"role": role}])
