"""Schemas together with thoughts and tools, in each of the five formats, by clients people use and a random model."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

import five
import jsonschema
import pytest
from click.testing import CliRunner
from five import short
from openai import NOT_GIVEN, LengthFinishReasonError, pydantic_function_tool
from pydantic import BaseModel, Field
from served import Running

from gristmill import SamplingParams
from gristmill.cli.main import main
from gristmill.dialogue.types import Thought
from gristmill.serve import messages_protocol, responses_protocol
from gristmill.serve.chat_protocol import ChatRequest
from gristmill.serve.messages_protocol import MessagesRequest
from gristmill.serve.responses_protocol import ResponsesRequest
from gristmill.types import StructuredOutputsParams

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "</think>", "<tool_call>\n{"]},
        "days": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": SCHEMA}}
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}
MESSAGES = [{"role": "user", "content": "Where to?"}]
THINKING = {"qwen3", "r1", "harmony"}


def body(served: tuple[str, Running], seed: int, **more: Any) -> dict[str, Any]:
    name, running = served
    extra = {"chat_template_kwargs": {"enable_thinking": True}} if name == "r1" else {}
    asked = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 600,
        "seed": seed,
        "temperature": 2,
        "extra_body": extra,
    }
    return {**asked, "logit_bias": short(running.llm, name), **more}


def valid(content: str | None) -> None:
    jsonschema.validate(json.loads(content or ""), SCHEMA)


def test_where_a_thought_may_come(served: tuple[str, Running]) -> None:
    """Templates open it, close it, or leave it to the model; in an answer that was begun none comes."""
    name, running = served
    expected = {"qwen3": Thought.POSSIBLE, "harmony": Thought.POSSIBLE}.get(name, Thought.NONE)
    assert running.llm.chat_prompt(MESSAGES).thought is expected
    if name in ("qwen3", "r1"):
        kwargs = {"enable_thinking": False}
        assert running.llm.chat_prompt(MESSAGES, chat_template_kwargs=kwargs).thought is Thought.NONE
    if name == "r1":
        assert running.llm.chat_prompt(MESSAGES, chat_template_kwargs={"enable_thinking": True}).thought is Thought.OPEN
    begun = [*MESSAGES, {"role": "assistant", "content": '{"city": '}]
    assert running.llm.chat_prompt(begun, None, False, True).thought is Thought.NONE


def test_content_keeps_to_its_schema_after_a_thought(served: tuple[str, Running]) -> None:
    name, running = served
    n_whole, n_thoughts = 0, 0
    for seed in range(8):
        choice = running.openai.chat.completions.create(**body(served, seed, response_format=FORM)).choices[0]
        chunks = list(running.openai.chat.completions.create(**body(served, seed, response_format=FORM, stream=True)))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        streamed = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        assert "".join(delta.content or "" for delta in deltas) == choice.message.content
        assert streamed == (getattr(choice.message, "reasoning_content", None) or "")
        assert chunks[-1].choices[0].finish_reason == choice.finish_reason
        if choice.finish_reason == "stop":
            valid(choice.message.content)
            n_whole += 1
            n_thoughts += bool(streamed)
    assert n_whole >= 4
    assert bool(n_thoughts) == (name in THINKING)


def test_a_call_or_content_that_keeps_to_its_schema(served: tuple[str, Running]) -> None:
    name, running = served
    if name == "r1":
        pytest.skip("its template has no tools")
    seen = set()
    for seed in range(12):
        asked = body(served, seed, response_format=FORM, tools=[TOOL])
        choice = running.openai.chat.completions.create(**asked).choices[0]
        if choice.finish_reason == "stop":
            valid(choice.message.content)
            assert not choice.message.tool_calls
        elif choice.finish_reason == "tool_calls":
            assert not choice.message.content
            for call in choice.message.tool_calls:
                jsonschema.validate(json.loads(call.function.arguments), WEATHER)
        seen.add(choice.finish_reason)
    assert {"stop", "tool_calls"} <= seen


def test_strict_tools_are_kept_to_where_an_answer_may_do_without(served: tuple[str, Running]) -> None:
    name, running = served
    if name == "r1":
        pytest.skip("its template has no tools")
    opening = {"llama3": "{", "harmony": "comment"}.get(name, "<tool_call>")
    likely = {str(running.llm.tokenizer.encode(opening)[0]): 30.0}
    seen = set()
    for seed in range(12):
        bias = short(running.llm, name) | (likely if seed % 2 else {})
        asked = body(served, seed, tools=[TOOL], logit_bias=bias, max_tokens=300)
        choice = running.openai.chat.completions.create(**asked).choices[0]
        if choice.finish_reason == "tool_calls":
            for call in choice.message.tool_calls:
                jsonschema.validate(json.loads(call.function.arguments), WEATHER)
        else:
            assert not choice.message.tool_calls
        seen.add(choice.finish_reason)
    assert "tool_calls" in seen
    assert seen & {"stop", "length"}


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "weather"}}])
def test_a_tool_whose_schema_cannot_be_kept_is_named(served: tuple[str, Running], choice: Any) -> None:
    name, running = served
    if name == "r1":
        pytest.skip("its template has no tools")
    other = {"type": "function", "function": {"name": "time", "strict": True}}
    wrong = {"name": "weather", "strict": True, "parameters": {**WEATHER, "not": {"required": ["a"]}}}
    asked = {"messages": MESSAGES, "tools": [other, {"type": "function", "function": wrong}], "tool_choice": choice}
    refused = running.http.post("/v1/chat/completions", json=asked)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "tools[1].function.parameters"
    assert error["message"] == 'tools[1].function.parameters: Unimplemented keys: ["not"]'


def test_a_forced_call_goes_before(served: tuple[str, Running]) -> None:
    if served[0] == "r1":
        pytest.skip("its template has no tools")
    asked = body(served, 1, response_format=FORM, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    choice = served[1].openai.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content


def test_an_answer_that_ends_in_its_thought_has_no_content(served: tuple[str, Running]) -> None:
    name, running = served
    if name not in THINKING:
        pytest.skip("it does not think")
    bias = short(running.llm, name, thought=-100)
    other = {"qwen3": ["{"], "harmony": ["f", "fi", "fin", "final"]}.get(name, [])  # where it need not think
    bias |= {str(running.llm.tokenizer.encode(text)[0]): -100 for text in other}
    many = range(4)
    asked = [body(served, seed, response_format=FORM, logit_bias=bias, max_tokens=20) for seed in many]
    choices = [running.openai.chat.completions.create(**a).choices[0] for a in asked]
    assert {choice.finish_reason for choice in choices} == {"length"}
    assert {choice.message.content for choice in choices} == {""}


def test_responses_and_messages_keep_to_it_too(served: tuple[str, Running]) -> None:
    """These APIs have no bias, so nothing ends a thought but luck: what is whole is valid, and the rest says so."""
    name, running = served
    form = {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}
    asked: dict[str, Any] = {"model": "tiny", "input": "Where to?", "text": {"format": form}, "max_output_tokens": 300}
    client = running.anthropic
    n_whole = 0
    for _ in range(6):
        response = running.openai.responses.create(**asked)
        if response.status == "completed":
            valid(response.output_text)
            n_whole += 1
        config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
        thinks: dict[str, Any] = {"thinking": {"type": "adaptive"}} if name == "harmony" else {}
        message = client.messages.create(
            model="tiny", max_tokens=300, messages=MESSAGES, output_config=config, **thinks
        )
        if message.stop_reason == "end_turn":
            valid("".join(block.text for block in message.content if block.type == "text"))
            n_whole += 1
        else:
            assert message.stop_reason == "max_tokens"
    if name not in ("qwen3", "harmony"):
        assert n_whole


def test_a_grammar_beside_tools(served: tuple[str, Running]) -> None:
    name, running = served
    grammar = {"structured_outputs": {"grammar": 'start: "a" | "b"'}}
    asked = {"messages": MESSAGES, "tools": [TOOL], "max_tokens": 20, "seed": 1, **grammar}
    answer = running.http.post("/v1/chat/completions", json=asked)
    if name == "harmony":  # whose calls have a channel of their own
        choice = answer.json()["choices"][0]
        assert choice["finish_reason"] in ("stop", "length", "tool_calls")
        assert choice["message"]["content"] in ("a", "b", "", None)
    else:
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] in ("structured_outputs.grammar", "tools")


def test_harmonys_prompt_shows_the_schema(served: tuple[str, Running]) -> None:
    """By each API, in the words of the format; others' prompts are as they were."""
    name, running = served
    texts = running.server.config.app.state.host.texts
    named = {"name": "trip", "schema": SCHEMA, "description": "A plan."}
    chat = ChatRequest(messages=MESSAGES, response_format={"type": "json_schema", "json_schema": named})
    response = ResponsesRequest(input="Where to?", text={"format": {"type": "json_schema", **named}})
    config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    message = MessagesRequest(messages=MESSAGES, max_tokens=9, output_config=config)
    asked = [chat, responses_protocol.as_chat(response)[0], messages_protocol.as_chat(message, texts)[0]]
    schema = json.dumps(SCHEMA, separators=(",", ":"))
    for request, about in zip(asked, ("trip\n\n// A plan.", "trip\n\n// A plan.", "answer\n"), strict=True):
        text = running.llm.tokenizer.decode(texts.prompt(request).ids)
        assert (f"# Response Formats\n\n## {about}\n{schema}" in text) == (name == "harmony")
        assert (schema in text) == (name == "harmony")


def test_chat_of_the_library(served: tuple[str, Running]) -> None:
    name, running = served
    bias = {int(i): b for i, b in short(running.llm, name).items()}
    guided = StructuredOutputsParams(json=SCHEMA)
    asked = SamplingParams(temperature=2, seed=3, max_tokens=600, logit_bias=bias, structured_outputs=guided, n=4)
    kwargs = {"enable_thinking": True} if name == "r1" else {}
    answers = running.llm.chat(MESSAGES, asked, chat_template_kwargs=kwargs)[0].outputs
    whole = [answer for answer in answers if answer.finish_reason == "stop"]
    assert whole
    for answer in whole:
        assert answer.message is not None
        valid(answer.message["content"])
        assert answer.message["role"] == "assistant"


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_generate_prints_content_alone(name: str, tmp_path: Any) -> None:
    with five.load(name, tmp_path) as llm:
        bias = [flag for i, b in short(llm, name).items() for flag in ("--logit-bias", f"{i}={b:g}")]
    args = ["generate", "-m", str(tmp_path / "tiny.bin"), "--chat-template", str(five.template(name)), "--chat"]
    args += ["-p", "Where to?", "--json-schema", json.dumps(SCHEMA), "--seed", "4", "--temp", "2", "-n", "600", *bias]
    found = CliRunner().invoke(main, args, catch_exceptions=False)
    assert found.exit_code == 0
    valid(found.stdout)
    report = json.loads(CliRunner().invoke(main, [*args, "--json"], catch_exceptions=False).stdout)
    valid(report["message"]["content"])
    assert report["finish_reason"] == "stop"
    cut = CliRunner().invoke(main, [*args, "-n", "3"], catch_exceptions=False)
    assert "not complete" in cut.stderr


class Coin(StrEnum):
    EURO = "euro"
    YEN = "yen"


class Price(BaseModel):
    amount: Literal[1, 2]
    coin: Coin


class Trip(BaseModel):
    prices: Annotated[list[Price], Field(min_length=1, max_length=2)]


class Book(BaseModel):
    """Book a trip."""

    price: Price


def test_pydantics_models_through_openais_client(served: tuple[str, Running]) -> None:
    """Schemas with references, for the answer and for a tool, which this client makes strict."""
    name, running = served
    tools = [] if name == "r1" else [pydantic_function_tool(Book)]
    kinds = set()
    for seed in range(10):
        asked = body(served, seed, response_format=Trip, tools=tools or NOT_GIVEN)
        try:
            choice = running.openai.chat.completions.parse(**asked).choices[0]
        except LengthFinishReasonError:
            continue
        if choice.message.tool_calls:
            assert isinstance(choice.message.tool_calls[0].function.parsed_arguments, Book)
        else:
            assert isinstance(choice.message.parsed, Trip)
        kinds.add(choice.finish_reason)
    assert kinds == ({"stop"} if name == "r1" else {"stop", "tool_calls"})
