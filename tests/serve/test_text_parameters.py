"""Calls whose parameters are texts of their own (Qwen3-Coder's), over HTTP: forced, read, answered, refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import small_model
from served import Running, serving

from gristmill import LLM

TEMPLATE = """
{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for key, value in call.function.arguments.items() %}<parameter={{ key }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
MESSAGES: list[Any] = [{"role": "user", "content": "Where to?"}]


def tool(city: Any) -> Any:
    days = {"type": "integer", "minimum": 1, "maximum": 9}
    properties = {"city": city, "days": days, "hourly": {"type": "boolean"}}
    parameters = {"type": "object", "properties": properties, "required": ["city", "days"]}
    return {"type": "function", "function": {"name": "weather", "parameters": parameters}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("model")
    (folder / "chat.jinja").write_text(TEMPLATE)
    model = small_model.write(folder, context=2048)
    with LLM(model, kv_type="f32", threads=1, chat_template=folder / "chat.jinja") as llm, serving(llm) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call_and_its_answer(server: Running, stream: bool) -> None:
    no_thought = {str(3 + byte): -100.0 for byte in b"\t\n\r h"}  # <th..., and what a gap after it may be
    asked: dict[str, Any] = {"model": server.openai.models.list().data[0].id, "max_tokens": 600}
    asked["tools"] = [tool({"type": "string", "enum": ["Rome", "Oslo"]})]
    forced = asked | {"tool_choice": "required", "parallel_tool_calls": False, "logit_bias": no_thought, "seed": 3}
    completions = server.openai.chat.completions
    if stream:
        with completions.stream(messages=MESSAGES, **forced) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = completions.create(messages=MESSAGES, **forced).choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Rome", "Oslo")
    assert arguments["days"] in range(1, 10)
    assert isinstance(arguments.get("hourly", False), bool)
    made = {"id": call.id, "type": "function", "function": {"name": "weather", "arguments": call.function.arguments}}
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [made]}, result]
    assert completions.create(messages=messages, **asked | {"max_tokens": 4}).choices[0].finish_reason


def test_a_schema_that_no_text_can_be_held_to_is_refused(server: Running) -> None:
    model = server.openai.models.list().data[0].id
    tools = [tool({"type": "string", "pattern": "^R"})]
    unheld: dict[str, Any] = {"model": model, "messages": MESSAGES, "tools": tools, "max_tokens": 4}
    with pytest.raises(openai.BadRequestError, match="the parameter 'city' of 'weather': pattern"):
        server.openai.chat.completions.create(**unheld, tool_choice="required")
    assert server.openai.chat.completions.create(**unheld).choices[0].finish_reason
