"""Which format a model writes; tools and tool_choice of requests, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue.harmony_oracle import DATA
from dialogue.helpers import TIME, TOOLS, WEATHER

from gristmill.dialogue.detect import detect
from gristmill.dialogue.parsers import make_parser
from gristmill.dialogue.tools import MAX_TOOLS, callable_names, read_tool_choice, read_tools
from gristmill.dialogue.types import AUTO, ChoiceMode, Kind, Tool, ToolChoice
from gristmill.tokenizer.chat_builtin import find_builtin

TEMPLATES = {
    "Qwen-Qwen2.5-7B-Instruct": Kind.QWEN,
    "Qwen-Qwen3-0.6B": Kind.QWEN,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": Kind.DEEPSEEK,
    "meta-llama-Llama-3.1-8B-Instruct": Kind.LLAMA,
    "openai-gpt-oss-120b": Kind.HARMONY,
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_published_templates(name: str) -> None:
    path = DATA / "templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    assert detect(path.read_text()) is TEMPLATES[name]


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [
        (["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], Kind.LLAMA),
        (["<|start|>", "<|message|>", "<|channel|>", "<|end|>"], Kind.HARMONY),
        (["<|im_start|>", "<|im_end|>"], Kind.QWEN),
        (["<｜Assistant｜>"], Kind.DEEPSEEK),
        (["<s>", "</s>"], Kind.PLAIN),
    ],
)
def test_vocabularies_and_our_own_templates(tokens: list[str], kind: Kind) -> None:
    ids = {token: i for i, token in enumerate(tokens)}
    assert detect(None, ids) is kind
    assert detect("{{ messages }}", ids) is kind
    if builtin := find_builtin(ids, 100):
        assert detect(builtin[1]) is kind


def test_tools_are_read() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "get_weather", "description": "Weather", "parameters": parameters}
    chat, flat = {"type": "function", "function": function}, {"type": "function", **function}
    assert read_tools([chat]) == read_tools([flat]) == (WEATHER,)
    assert read_tools([{"type": "function", "function": {"name": "f"}}]) == (Tool("f"),)
    assert read_tools(None) == read_tools([]) == ()
    most = [{"type": "function", "name": f"f{i}".ljust(64, "_")} for i in range(MAX_TOOLS)]
    assert [tool.name for tool in read_tools(most)] == [tool["name"] for tool in most]


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ("x", r"tools: "),
        ({"type": "function"}, r"tools: "),
        ([3], r"tools\[0\]: "),
        ([{"type": "retrieval"}], r"tools\[0\]\.type: is 'retrieval'"),
        ([{"type": "function", "function": "f"}], r"tools\[0\]\.function: "),
        ([{"type": "function", "function": {}}], r"tools\[0\]\.function\.name: is None"),
        ([{"type": "function", "function": {"name": "a b"}}], r"tools\[0\]\.function\.name: is 'a b'"),
        ([{"type": "function", "function": {"name": "a" * 65}}], r"tools\[0\]\.function\.name"),
        ([{"type": "function", "function": {"name": 'a"<|'}}], r"tools\[0\]\.function\.name"),
        ([{"type": "function", "name": "f", "description": 3}], r"tools\[0\]\.description"),
        ([{"type": "function", "name": "f", "parameters": []}], r"tools\[0\]\.parameters"),
        ([{"type": "function", "name": "f", "parameters": {"type": "array"}}], r"tools\[0\]\.parameters\.type"),
        ([{"type": "function", "name": "f"}] * 2, r"tools: 'f' is there more than once"),
        ([{"type": "function", "name": f"f{i}"} for i in range(MAX_TOOLS + 1)], r"at most 128"),
    ],
)
def test_bad_tools_are_refused_by_name(tools: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        read_tools(tools)


def test_tool_choices_are_read() -> None:
    assert read_tool_choice(None, ()) == read_tool_choice("auto", ()) == AUTO
    assert read_tool_choice("none", TOOLS) == ToolChoice(ChoiceMode.NONE)
    assert read_tool_choice("required", TOOLS) == ToolChoice(ChoiceMode.REQUIRED)
    named = ToolChoice(ChoiceMode.NAMED, "get_time")
    assert read_tool_choice({"type": "function", "function": {"name": "get_time"}}, TOOLS) == named
    assert read_tool_choice({"type": "function", "name": "get_time"}, TOOLS) == named
    assert callable_names(TOOLS, AUTO) == {WEATHER.name, TIME.name}
    assert callable_names(TOOLS, named) == {"get_time"}
    assert callable_names(TOOLS, ToolChoice(ChoiceMode.NONE)) == frozenset()


@pytest.mark.parametrize(
    "choice",
    [
        "any",
        3,
        [],
        {},
        {"type": "function"},
        {"type": "function", "function": {"name": "get_rich"}},
        {"type": "function", "function": 3},
    ],
)
def test_bad_tool_choices_are_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match=r"tool_choice: "):
        read_tool_choice(choice, TOOLS)
    with pytest.raises(ValueError, match=r"no tools"):
        read_tool_choice("required", ())


def test_only_a_named_choice_has_a_name() -> None:
    with pytest.raises(ValueError, match=r"only 'named' has a name"):
        ToolChoice(ChoiceMode.AUTO, "f")
    with pytest.raises(ValueError, match=r"only 'named' has a name"):
        ToolChoice(ChoiceMode.NAMED)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mistral"):
        make_parser("mistral")
