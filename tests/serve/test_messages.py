"""/v1/messages by Anthropic's own client."""

from __future__ import annotations

import json
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


def test_an_answer_that_was_begun_goes_on(says, client: Callable[..., anthropic.Anthropic]) -> None:
    server = says("ok")
    turns = [*ASK["messages"], {"role": "assistant", "content": "The answer is"}]
    client(server).messages.create(model="tiny", max_tokens=5, messages=turns)
    ids = server.server.config.app.state.host.service.requests[-1].prompt_ids
    assert server.llm.tokenizer.decode(ids).endswith("The answer is")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"max_tokens": 5000}, "2048"),
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
