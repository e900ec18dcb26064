"""/v1/messages by Anthropic's own client."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 100, "messages": [{"role": "user", "content": "ab"}]}
WEATHER = {
    "name": "weather",
    "description": "of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
USED = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
TEXT = {"type": "text", "text": "ab"}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "sun"}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
ANSWER = f"<think>\nhm\n</think>\n\nI will look.\n{CALL}"


@pytest.fixture
def client() -> Any:
    clients = []

    def connect(server: Any) -> anthropic.Anthropic:
        clients.append(anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60))
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


def test_an_answer(running, client: Callable[..., anthropic.Anthropic]) -> None:
    message = client(running).messages.create(**{**ASK, "max_tokens": 10}, extra_body={"temperature": 0})
    chat = running.openai.chat.completions.create(model="tiny", messages=ASK["messages"], max_tokens=10, temperature=0)
    assert message.content[0].text == chat.choices[0].message.content
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 10
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat.usage.prompt_tokens
    counted = client(running).messages.count_tokens(model="tiny", messages=ASK["messages"])
    assert counted.input_tokens == chat.usage.prompt_tokens


def test_cached_tokens_are_told(running, client: Callable[..., anthropic.Anthropic]) -> None:
    greedy = {"extra_body": {"temperature": 0}}
    system = "a text that is long enough for a block of the cache"
    asked: dict[str, Any] = {**ASK, "max_tokens": 2, "system": system, **greedy}
    client(running).messages.create(**asked)
    usage = client(running).messages.create(**asked).usage
    with client(running).messages.stream(**asked) as stream:
        (last,) = [event.usage for event in stream if event.type == "message_delta"]  # LangChain reads no other
        streamed = stream.get_final_message().usage
    counted = client(running).messages.count_tokens(model="tiny", messages=ASK["messages"], system=asked["system"])
    for told in (usage, streamed, last):
        assert told.cache_read_input_tokens >= 32
        assert told.input_tokens == counted.input_tokens - told.cache_read_input_tokens
        assert told.output_tokens == 2


def test_thoughts_text_and_calls_are_blocks(says, client: Callable[..., anthropic.Anthropic]) -> None:
    message = client(says(ANSWER)).messages.create(**ASK, tools=[WEATHER])
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert (message.content[0].thinking, message.content[1].text) == ("hm", "I will look.")
    assert (message.content[2].name, message.content[2].input) == ("weather", {"city": "Rome"})
    assert message.stop_reason == "tool_use"


def test_a_stream_builds_the_same_message(says, client: Callable[..., anthropic.Anthropic]) -> None:
    with client(says(ANSWER)).messages.stream(**ASK, tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[2].input == {"city": "Rome"}
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 0
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3


def test_what_json_holds_and_python_does_not(says, client: Callable[..., anthropic.Anthropic]) -> None:
    """Half a pair of surrogates, a number beyond all that are kept: an answer with these is told, and taken back."""
    server = says(CALL.replace('"Rome"', '["\\ud83d", 1e999, -1e999]'))
    asked: dict[str, Any] = {**ASK, "tools": [WEATHER]}
    message = client(server).messages.create(**asked)
    (call,) = message.content
    assert call.input["city"] == ["\ufffd", sys.float_info.max, -sys.float_info.max]
    with client(server).messages.stream(**asked) as stream:
        (streamed,) = stream.get_final_message().content
    assert streamed.input["city"][0] == "\ufffd"
    result = {"role": "user", "content": [{**RESULT, "tool_use_id": call.id}]}
    answer = {"role": "assistant", "content": message.content}
    assert client(server).messages.create(**{**asked, "messages": [*ASK["messages"], answer, result]})


@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_of_tools_does_without_threads(says, client: Callable[..., anthropic.Anthropic], stream: bool) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Of a city."""
        return city

    tools = client(says("ok")).beta.messages
    runner = tools.tool_runner(model="tiny", max_tokens=9, messages=ASK["messages"], tools=[weather], stream=stream)
    assert runner.until_done().content[0].text == "ok"


def test_what_stopped_it_is_told(says, client: Callable[..., anthropic.Anthropic]) -> None:
    message = client(says("one two three")).messages.create(**ASK, stop_sequences=["three", "two"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "two")
    assert message.content[0].text == "one "


def test_a_conversation_with_results_is_the_chats(says, client: Callable[..., anthropic.Anthropic]) -> None:
    server = says("ok")
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "ab", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]},
    ]
    client(server).messages.create(model="tiny", max_tokens=5, system="be brief", messages=turns)
    called = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "x"})}}
    same = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ]
    requests = server.server.config.app.state.host.service.requests
    own = server.llm.encode_chat(same, chat_template_kwargs={"enable_thinking": False})
    assert list(requests[-1].prompt_ids) == own


def test_a_system_message_may_come_later(says, client: Callable[..., anthropic.Anthropic]) -> None:
    """As Claude Code sends them; tests/serve/test_five_formats.py has templates without room for one."""
    server = says("ok")
    later = {
        "role": "system",
        "content": [{"type": "text", "text": "in French", "cache_control": {"type": "ephemeral"}}],
    }
    turns = [*ASK["messages"], later, {"role": "assistant", "content": "cd"}, {"role": "user", "content": "ef"}]
    client(server).messages.create(model="tiny", max_tokens=5, system="be brief", messages=turns)
    same = [{"role": "system", "content": "be brief"}, *ASK["messages"], {"role": "system", "content": "in French"}]
    own = server.llm.encode_chat([*same, *turns[2:]], chat_template_kwargs={"enable_thinking": False})
    assert list(server.server.config.app.state.host.service.requests[-1].prompt_ids) == own


def test_an_answer_that_was_begun_goes_on(says, client: Callable[..., anthropic.Anthropic]) -> None:
    server = says("ok")
    turns = [*ASK["messages"], {"role": "assistant", "content": "The answer is"}]
    client(server).messages.create(model="tiny", max_tokens=5, messages=turns)
    ids = server.server.config.app.state.host.service.requests[-1].prompt_ids
    assert server.llm.tokenizer.decode(ids).endswith("The answer is")


def test_hints_ask_for_nothing(says) -> None:
    """As Claude Code sends them."""
    server = says("ok")
    requests = server.server.config.app.state.host.service.requests
    tools = {"tools": [WEATHER]}
    assert server.http.post("/v1/messages", json={**ASK, **tools}).status_code == 200
    keeping = {"type": "clear_thinking_20251015", "keep": "all"}
    hints: list[dict[str, Any]] = [
        {"context_management": {"edits": []}},
        {"context_management": {"edits": [keeping, {**keeping, "keep": {"type": "all"}}]}},
        {"cache_control": {"type": "ephemeral"}},
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"thinking": {"type": "disabled", "display": "summarized"}},
        {"speed": "standard"},
        *({"tools": [{**WEATHER, "eager_input_streaming": value}]} for value in (True, False, None)),
        *({"tools": [{**WEATHER, "strict": value}]} for value in (False, None)),
        {"tools": [{**WEATHER, "defer_loading": False, "allowed_callers": ["direct"], "input_examples": []}]},
    ]
    for hint in hints:
        response = server.http.post("/v1/messages", json={**ASK, **tools, **hint})
        assert response.status_code == 200, (hint, response.text)
        assert requests[-1].prompt_ids == requests[0].prompt_ids, hint
        counted = {name: value for name, value in {**ASK, **tools, **hint}.items() if name != "max_tokens"}
        assert server.http.post("/v1/messages/count_tokens", json=counted).status_code == 200
    for previous in (None, "msg_1"):
        diagnostics = {"diagnostics": {"previous_message_id": previous}}
        assert server.http.post("/v1/messages", json={**ASK, **tools, **diagnostics}).status_code == 200
    function = {
        "name": WEATHER["name"],
        "description": WEATHER.get("description"),
        "parameters": WEATHER["input_schema"],
    }
    as_chat = {"tools": [{"type": "function", "function": {k: v for k, v in function.items() if v is not None}}]}
    plain = {"messages": ASK["messages"], "max_tokens": 4, "chat_template_kwargs": {"enable_thinking": False}}
    assert server.http.post("/v1/chat/completions", json={**plain, **as_chat}).status_code == 200
    assert requests[-1].prompt_ids == requests[0].prompt_ids  # both APIs say the same to the model
    strict = {"tools": [{**WEATHER, "strict": True}]}
    assert server.http.post("/v1/messages", json={**ASK, **strict}).status_code == 200
    assert requests[-1].params.structured_outputs is not None  # calls keep to their schema


@pytest.mark.parametrize(("display", "thought"), [(None, "hm"), ("summarized", "hm"), ("omitted", "")])
def test_thoughts_are_told_or_left_out(
    says, client: Callable[..., anthropic.Anthropic], display: str | None, thought: str
) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024, "display": display}
    server = says("\nhm\n</think>\n\nI will look.")  # the prompt opens the thought
    message = client(server).messages.create(**ASK, thinking=thinking)
    with client(server).messages.stream(**ASK, thinking=thinking) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    for content in (message.content, streamed.content):
        assert [block.type for block in content] == ["thinking", "text"]
        assert (content[0].thinking, content[1].text) == (thought, "I will look.")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert ("thinking" in kinds) == bool(thought)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management.edits[0]"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {}, "keep": "all"}]}},
            "context_management.edits[0].trigger",
        ),
        ({"context_management": {"edits": [], "other": 1}}, "context_management.other"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1d"}}, "cache_control.ttl"),
        ({"thinking": {"type": "disabled", "display": "all"}}, "thinking.display"),
        ({"tools": [{**WEATHER, "strict": "yes"}]}, "tools[0].strict"),
        ({"tools": [{**WEATHER, "eager_input_streaming": 1}]}, "tools[0].eager_input_streaming"),
        ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"nonsense": 1}, "nonsense"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"max_tokens": 5000}, "2048"),
        ({"stop_sequences": ["a"] * 99}, "stop_sequences: has 99"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
            "output_config.format.schema: ",
        ),
        ({"tools": [{**WEATHER, "input_schema": 1}]}, "tools[0].input_schema"),
        (
            {"messages": [*ASK["messages"], {"role": "assistant", "content": [{**USED, "name": "a" * 65}]}]},
            "[1].content[0].name",
        ),
        (
            {"messages": [*ASK["messages"], {"role": "assistant", "content": [TEXT, {**USED, "id": "c" * 513}]}]},
            "messages[1].content[1].id",
        ),
        (
            {"messages": [{"role": "user", "content": [TEXT, {**RESULT, "tool_use_id": "c" * 513}]}], "system": "x"},
            "messages[0].content[1].tool_use_id",
        ),
        ({"messages": [*ASK["messages"], {"role": "assistant", "content": [USED]}]}, "messages: end with calls"),
    ],
)
def test_refusals_have_this_apis_shape(running, change: dict[str, Any], name: str) -> None:
    response = running.http.post("/v1/messages", json={**ASK, **change})
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert name in response.json()["error"]["message"]
    missing = running.http.post("/v1/messages", json={**ASK, "model": "claude"})
    assert missing.json()["error"]["type"] == "not_found_error"
