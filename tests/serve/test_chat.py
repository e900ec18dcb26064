"""/v1/chat/completions by OpenAI's own client: answers, thoughts, calls, schemas, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest
from openai import APIError, BadRequestError
from pydantic import BaseModel
from served import Running

from gristmill import SamplingParams

ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "ab"}]}
GREEDY: dict[str, Any] = {**ASK, "temperature": 0, "max_tokens": 12}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def test_an_answer_is_the_engines(running) -> None:
    answer = running.openai.chat.completions.create(**GREEDY)
    own = running.llm.chat(ASK["messages"], SamplingParams(temperature=0, max_tokens=12))[0]
    assert answer.choices[0].message.content == own.outputs[0].text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len(own.prompt_token_ids)


def test_a_stream_is_the_answer_in_pieces(running) -> None:
    whole = running.openai.chat.completions.create(**GREEDY)
    chunks = list(running.openai.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_raw_stream_ends_with_done(running) -> None:
    with running.http.stream("POST", "/v1/chat/completions", json={**GREEDY, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)


def test_answers_of_one_prompt_differ_by_their_seeds(running) -> None:
    answer = running.openai.chat.completions.create(**ASK, n=3, seed=5, max_tokens=10)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    again = running.openai.chat.completions.create(**ASK, n=1, seed=6, max_tokens=10)
    assert again.choices[0].message.content == texts[1]


def test_logprobs_are_of_each_token(running) -> None:
    for stream in (False, True):
        answer = running.openai.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=2, stream=stream)
        choices = [c.choices[0] for c in answer] if stream else answer.choices
        found = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        assert len(found) == 12
        assert all(len(entry.top_logprobs) == 2 for entry in found)
        assert all(entry.logprob == entry.top_logprobs[0].logprob <= 0 for entry in found)


def test_thoughts_are_no_content(says) -> None:
    server = says("<think>\nlet me see\n</think>\n\nfour")
    message = server.openai.chat.completions.create(**ASK).choices[0].message
    assert message.content == "four"
    assert message.reasoning_content == message.reasoning == "let me see"
    deltas = [c.choices[0].delta for c in server.openai.chat.completions.create(**ASK, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == "four"
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "let me see"


def test_a_prompt_that_opens_the_thought(says) -> None:
    server = says("so\n</think>\n\nfour")
    message = (
        server.openai.chat.completions.create(**ASK, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        .choices[0]
        .message
    )
    assert (message.reasoning_content, message.content) == ("so", "four")


def test_a_call_is_told_as_openai_tells_it(says) -> None:
    server = says(f"I will look.\n{CALL}")
    choice = server.openai.chat.completions.create(**ASK, tools=[WEATHER, CLOCK]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I will look."
    call = choice.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
    follow_up = [
        *ASK["messages"],
        choice.message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    assert server.openai.chat.completions.create(model="tiny", messages=follow_up, tools=[WEATHER])


def test_an_answer_is_given_back_as_clients_have_it(says) -> None:
    """OpenAI's add what they have read in it, LiteLLM what it does not know."""

    class City(BaseModel):
        city: str

    server = says(f"<think>hm</think>I will look.\n{CALL}")
    tool = openai.pydantic_function_tool(City, name="weather")
    chats = server.openai.chat.completions
    with chats.stream(**ASK, tools=[tool]) as stream:
        streamed = stream.get_final_completion().choices[0].message
    parsed = chats.parse(**ASK, tools=[tool]).choices[0].message
    assert parsed.tool_calls[0].function.parsed_arguments == City(city="Rome")
    proxied = {**chats.create(**ASK, tools=[tool]).choices[0].message.to_dict()}
    proxied["provider_specific_fields"] = {"reasoning": proxied.pop("reasoning")}
    prompts = []
    for message in (parsed, parsed.model_dump(), streamed, proxied):
        chats.create(model="tiny", messages=[*ASK["messages"], message], tools=[tool])
        prompts.append(server.server.config.app.state.host.service.requests[-1].prompt_ids)
    assert len(set(prompts)) == 1


def test_thoughts_are_counted(says) -> None:
    server = says("<think>hm</think>ok")
    usage = server.openai.chat.completions.create(**ASK, n=2).usage
    n_thought = usage.completion_tokens_details.reasoning_tokens
    assert 0 < n_thought < usage.completion_tokens
    chunks = server.openai.chat.completions.create(**ASK, n=2, stream=True, stream_options={"include_usage": True})
    assert [*chunks][-1].usage == usage


def test_a_call_in_a_stream_comes_in_pieces(says) -> None:
    with says(CALL).openai.chat.completions.stream(**ASK, tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    assert json.loads(final.message.tool_calls[0].function.arguments) == {"city": "Rome"}
    assert final.message.tool_calls[0].id.startswith("call_")
    assert final.finish_reason == "tool_calls"


def test_calls_are_text_where_none_may_be(says) -> None:
    choice = says(CALL).openai.chat.completions.create(**ASK, tools=[WEATHER], tool_choice="none").choices[0]
    assert choice.message.tool_calls is None
    assert "Rome" in choice.message.content


def test_one_call_where_several_may_not_be(says) -> None:
    both = says(f"{CALL}\n{CALL}")
    several = both.openai.chat.completions.create(**ASK, tools=[WEATHER]).choices[0].message
    assert len(several.tool_calls) == 2
    one = both.openai.chat.completions.create(**ASK, tools=[WEATHER], parallel_tool_calls=False).choices[0].message
    assert len(one.tool_calls) == 1


def first_of(running: Running, text: str) -> str:
    """The id of a character."""
    body = {"prompt": text, "add_special_tokens": False}
    return str(running.http.post("/tokenize", json=body).json()["tokens"][-1])


def brevity(running: Running) -> dict[str, int]:
    """Biases against white space, and against the letter in which <think> differs from <tool_call>."""
    ids: dict[str, int] = {}
    for text in (" ", "\n", "\t", "\r", "h"):
        body = {"prompt": text, "add_special_tokens": False}
        ids |= {str(token): -100 for token in running.http.post("/tokenize", json=body).json()["tokens"]}
    return ids


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_call_keeps_to_its_schema(running, choice: Any) -> None:
    """White space and a thought may be as long as a model likes: this one is told to like neither."""
    answer = running.openai.chat.completions.create(
        **ASK, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, max_tokens=200, temperature=0,
        logit_bias=brevity(running),
    )  # fmt: skip
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0].function
    assert call.name == "weather"
    jsonschema.validate(json.loads(call.arguments), WEATHER["function"]["parameters"])


def test_an_answer_keeps_to_its_schema(running) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    extra = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
    no_thought = {"logit_bias": {first_of(running, "<"): -100}}
    answer = running.openai.chat.completions.create(**ASK, **no_thought, extra_body=extra, max_tokens=50)
    jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
    answer = running.openai.chat.completions.create(
        **ASK,
        response_format=form,
        max_tokens=50,
        temperature=0,
        logit_bias=brevity(running) | no_thought["logit_bias"],
    )
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
    extra = {"structured_outputs": {"choice": ["yes", "no"]}}
    chosen = running.openai.chat.completions.create(**ASK, **no_thought, extra_body=extra)
    assert chosen.choices[0].message.content in ("yes", "no")


def test_a_stop_string_ends_content(says) -> None:
    answer = says("one two three").openai.chat.completions.create(**ASK, stop=["two"])
    assert answer.choices[0].message.content == "one "
    assert answer.choices[0].finish_reason == "stop"


def test_an_error_in_the_middle_ends_a_stream_without_done(says) -> None:
    server = says("one two", RuntimeError("secret"))
    with server.http.stream("POST", "/v1/chat/completions", json={**ASK, "stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "internal_error"
    assert "secret" not in lines[-1]
    with pytest.raises(APIError):
        list(server.openai.chat.completions.create(**ASK, stream=True))
    assert server.http.post("/v1/chat/completions", json=ASK).status_code == 500


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"nonsense": 1}, "nonsense"),
    ({"store": True}, "store"),
    ({"functions": [{}]}, "functions"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"prediction": {}}, "prediction"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": 100000}, "n"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["a"] * 33}, "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content"),
    ({"tools": [{"type": "function", "function": {"name": "x y"}}]}, None),
    ({"tools": [{"type": "web_search"}]}, None),
    ({"tools": [{"type": "function", "function": {"name": "x", "shape": 1}}]}, "tools[0].function.shape"),
    ({"tools": [{"type": "function", "function": {"name": "x", "type": "function"}}]}, "tools[0].function.type"),
    ({"tools": [{"type": "function", "function": {"name": "x", "strict": "yes"}}]}, None),
    ({"messages": [{"role": "user", "content": "x", "audio": {}}]}, "messages[0].audio"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [CLOCK], "structured_outputs": {"grammar": 'start: "a"'}}, "structured_outputs.grammar"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex"),
    ({"structured_outputs": {"json": {"type": "nothing"}}}, "structured_outputs.json"),
    ({"chat_template_kwargs": {"unheard_of": True}}, "chat_template_kwargs.unheard_of"),
    ({"reasoning_effort": "most"}, "reasoning_effort"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}}, "response_format"),
    ({"messages": [{"role": "system", "content": "x"}, {"role": "user"}]}, "messages[1].content"),
]


@pytest.mark.parametrize(("change", "param"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_kept_is_refused_by_name(
    running, change: dict[str, Any], param: str | None, stream: bool
) -> None:
    body = {**ASK, **change, **({"stream": True} if stream and "stream_options" not in change else {})}
    response = running.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param
    assert (param or next(iter(change))) in error["message"]


@pytest.mark.parametrize("schema", [{"type": "string", "pattern": "(?=a)b"}, {"type": "array", "contains": {}}])
def test_a_schema_that_cannot_be_kept_is_refused(running, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(BadRequestError) as caught:
        running.openai.chat.completions.create(**ASK, response_format=form, stream=True)
    assert caught.value.param == "response_format"
    assert "response_format.json_schema.schema: " in caught.value.message
    assert "structured_outputs" not in caught.value.message


def test_fields_that_ask_for_nothing_pass(running) -> None:
    body = {**GREEDY, "store": False, "service_tier": "auto", "modalities": ["text"], "seed": None, "tools": None}
    body |= {"user": "me", "metadata": {"a": "b"}, "logprobs": False, "top_logprobs": 0}
    answered = {"role": "assistant", "content": "a", "annotations": [], "reasoning_details": [], "thinking_blocks": []}
    body |= {"messages": [{"role": "user", "content": "ab", "tool_calls": None}, answered, GREEDY["messages"][-1]]}
    assert running.http.post("/v1/chat/completions", json=body).status_code == 200


def test_parts_and_developers_are_known(running) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}],
        },
    ]
    found = running.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    same = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a\nb"}]
    assert found == running.llm.encode_chat(same)


def test_no_parts_are_an_empty_text_of_who_answers(running) -> None:
    def prompt(content: Any) -> Any:
        answered = [*ASK["messages"], {"role": "assistant", "content": content}, *ASK["messages"]]
        return running.http.post("/tokenize", json={"messages": answered}).json()

    assert prompt([])["tokens"] == prompt("")["tokens"]
    asked = running.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": []}]})
    assert asked.json()["error"]["message"] == "messages[0].content: has no parts"
    hinted = [{"type": "text", "text": "a", "cache_control": "1h"}]
    asked = running.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": hinted}]})
    assert "cache_control is no object" in asked.json()["error"]["message"]
