"""/v1/responses by OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest

ASK: dict[str, Any] = {"model": "tiny", "input": "ab"}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
REASONED = {"type": "reasoning", "summary": []}
ANSWER = '<think>\nhm\n</think>\n\nI will look.\n<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'


def test_an_answer(running) -> None:
    response = running.openai.responses.create(**ASK, max_output_tokens=10, temperature=0)
    chat = running.openai.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "ab"}], max_tokens=10, temperature=0
    )
    assert response.output_text == chat.choices[0].message.content
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == 10
    assert response.store is False or response.store is None


def test_thoughts_text_and_calls_are_items(says) -> None:
    response = says(ANSWER).openai.responses.create(**ASK, tools=[WEATHER])
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[0].content[0].text == "hm"
    assert response.output_text == "I will look."
    assert (response.output[2].name, response.output[2].arguments) == ("weather", "{}")
    assert response.status == "completed"
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_a_stream_builds_the_same_response(says) -> None:
    events = list(says(ANSWER).openai.responses.create(**ASK, tools=[WEATHER], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 3
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "I will look." == events[-1].response.output_text
    added = [event.item.id for event in events if event.type == "response.output_item.added"]
    assert added == [item.id for item in events[-1].response.output]


@pytest.mark.parametrize(("n", "cut"), [(-14, "function_call"), (35, "message"), (9, "reasoning")])
def test_an_item_that_is_cut_says_so(says, n: int, cut: str) -> None:
    server = says(ANSWER[:n], cut=True)
    response = server.openai.responses.create(**ASK, tools=[WEATHER])
    events = list(server.openai.responses.create(**ASK, tools=[WEATHER], stream=True))
    assert response.status == "incomplete"
    assert events[-1].type == "response.incomplete"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    for items in (response.output, events[-1].response.output, done):
        assert items[-1].type == cut
        assert [item.status for item in items] == ["completed"] * (len(items) - 1) + ["incomplete"]


def test_an_error_in_the_middle_is_a_failed_response(says) -> None:
    events = list(says("one two", RuntimeError("secret")).openai.responses.create(**ASK, stream=True))
    assert events[-1].type == "response.failed"
    assert "secret" not in events[-1].response.error.message


def test_what_was_answered_can_be_given_back(says) -> None:
    server = says(ANSWER)
    first = server.openai.responses.create(**ASK, tools=[WEATHER])
    items = [{"role": "user", "content": "ab"}, *(item.model_dump(exclude_none=True) for item in first.output)]
    items[1]["encrypted_content"] = None  # as from clients that ask for it
    items.append({"type": "function_call_output", "call_id": first.output[2].call_id, "output": "sun"})
    include = ["reasoning.encrypted_content"]
    asked = {"input": items, "instructions": "be brief", "include": include}
    server.openai.responses.create(model="tiny", **asked, tools=[WEATHER])
    text = server.llm.tokenizer.decode(server.server.config.app.state.host.service.requests[-1].prompt_ids)
    for part in ("be brief", "I will look.", '"name": "weather"', "sun"):
        assert part in text


def test_who_counts_on_what_is_stored_is_told_what_to_send(running) -> None:
    asked = {**ASK, "input": [{"type": "item_reference", "id": "rs_1"}]}
    told = running.http.post("/v1/responses", json=asked).json()["error"]["message"]
    assert "it stores nothing; send the items themselves" in told


def test_an_answer_keeps_to_its_schema(running) -> None:
    """One of thirty begins with a thought that has no end: it says so, and has no answer."""
    form = {"type": "json_schema", "name": "x", "schema": {"enum": [12, 34]}, "strict": True}
    asked = [running.openai.responses.create(**ASK, text={"format": form}, max_output_tokens=500) for _ in range(6)]
    whole = [json.loads(response.output_text) for response in asked if response.status == "completed"]
    assert whole
    assert set(whole) <= {12, 34}
    assert {response.status for response in asked} <= {"completed", "incomplete"}


def test_labels_of_codex_ask_for_nothing(says) -> None:
    labels = {"client_metadata": {"x-codex-installation-id": "1", "x-codex-turn-metadata": "a" * 1000}}
    asked = {**ASK, "store": False, "include": [], "prompt_cache_key": "1", **labels}
    assert says("ok").http.post("/v1/responses", json=asked).status_code == 200


def test_a_stream_that_is_not_to_be_padded_is_as_usual(running) -> None:
    options = {"include_obfuscation": False}
    asked = {**ASK, "max_output_tokens": 2, "temperature": 0}
    events = list(running.openai.responses.create(**asked, stream=True, stream_options=options))
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"nonsense": 1}, "nonsense"),
        ({"input": []}, "input"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
        ({"max_output_tokens": 5000}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_object", "schema": {"type": "object"}}}}, "text.format.schema"),
        ({"text": {"format": {"schema": {"type": "object"}}}}, "text.format.schema"),
        ({"tools": [{**WEATHER, "extra": 1}]}, "tools[0].extra"),
        ({"input": [{"role": "user", "content": "a"}, {**CALL, "name": "a" * 65}]}, "input[1].name"),
        ({"input": [REASONED, {**CALL, "call_id": 1}]}, "input[1].call_id"),
        ({"input": [{"role": "user", "content": "a"}, *[CALL] * 129], "instructions": "x"}, "input[1].tool_calls"),
        ({"input": [REASONED, {"type": "function_call_output", "call_id": 1, "output": ""}]}, "input[1].call_id"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(running, change: dict[str, Any], param: str) -> None:
    response = running.http.post("/v1/responses", json={**ASK, **change})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert param in response.json()["error"]["message"] or param == "input"
