"""Real models' chat templates behind the server: what users ask for arrives in the prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedService
from served import Running, serving

from gristmill import LLM

DATA = Path(os.environ.get("GRISTMILL_DATA", Path(__file__).parents[3] / "shared" / "data")) / "templates"
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "ab"}]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def behind(model_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    name, answer = request.param
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not here")
    with LLM(model_path, kv_type="f32", threads=1, chat_template=DATA / name) as llm:
        service = ScriptedService(llm.tokenizer, answer)
        with serving(llm, service=service) as running:
            yield running, service


def prompt_of(running: Running, service: ScriptedService) -> str:
    return running.llm.tokenizer.decode(service.requests[-1].prompt_ids)


CALL = '{"name": "weather", "arguments": {}}'
QWEN3 = ("Qwen-Qwen3-0.6B.jinja", f"<think>\nhm\n</think>\n\n<tool_call>\n{CALL}\n</tool_call>")
R1 = ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "hm\n</think>\n\nfour")
HARMONY = ("openai-gpt-oss-120b.jinja", "its answers are read by ids that this vocabulary has not")
LLAMA = ("meta-llama-Llama-3.1-8B-Instruct.jinja", '{"name": "weather", "parameters": {}}')


@pytest.mark.parametrize("behind", [QWEN3, LLAMA], indirect=True, ids=["qwen3", "llama"])
def test_calls_of_each_format(behind: tuple[Running, ScriptedService]) -> None:
    running, service = behind
    choice = running.openai.chat.completions.create(**ASK, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "weather"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {}
    assert "weather" in prompt_of(running, service)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% for m in messages %}[INST]{{ m.content }}{% endfor %}", "nothing that this model's chat template has"),
        ("{% if tools %}[AVAILABLE_TOOLS]{% endif %}{{ messages[-1].content }}", "a format of this model's"),
    ],
)
def test_tools_that_no_call_could_be_read_of(model_path: Path, tmp_path: Path, template: str, told: str) -> None:
    (tmp_path / "chat.jinja").write_text(template)
    with (
        LLM(model_path, kv_type="f32", threads=1, chat_template=tmp_path / "chat.jinja") as llm,
        serving(llm) as running,
    ):
        refused = running.http.post("/v1/chat/completions", json={**ASK, "tools": [TOOL]}).json()["error"]
    assert refused["param"] == "tools"
    assert told in refused["message"]


@pytest.mark.parametrize("behind", [QWEN3], indirect=True, ids=["qwen3"])
def test_thinking_is_switched(behind: tuple[Running, ScriptedService]) -> None:
    running, service = behind
    for extra in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        running.openai.chat.completions.create(**ASK, extra_body=extra)
        assert prompt_of(running, service).endswith("<think>\n\n</think>\n\n")
    agreed = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}
    for extra in ({}, {"reasoning_effort": "low"}, {"reasoning_effort": "high"}, agreed):
        running.openai.chat.completions.create(**ASK, extra_body=extra)
        assert prompt_of(running, service).endswith("assistant\n")
    for effort, thinks in (("none", True), ("low", False), ("low", None)):
        said = {"reasoning_effort": effort, "chat_template_kwargs": {"enable_thinking": thinks}}
        refused = running.http.post("/v1/chat/completions", json={**ASK, **said}).json()["error"]
        assert refused["param"] == "reasoning_effort"
        assert "contradicts chat_template_kwargs.enable_thinking" in refused["message"]


def test_an_effort_of_which_a_template_knows_nothing(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    with (
        LLM(model_path, kv_type="f32", threads=1, chat_template=tmp_path / "chat.jinja") as llm,
        serving(llm) as running,
    ):
        for path, extra in (
            ("chat/completions", {**ASK, "reasoning_effort": "low"}),
            ("responses", {"input": "a", "reasoning": {"effort": "low"}}),
        ):
            refused = running.http.post(f"/v1/{path}", json=extra).json()["error"]
            assert refused["param"] in ("reasoning_effort", "reasoning.effort")
            assert "'low' is nothing that this model's chat template has" in refused["message"]


@pytest.mark.parametrize("behind", [R1], indirect=True, ids=["r1"])
def test_an_answer_that_begins_in_its_thought(behind: tuple[Running, ScriptedService]) -> None:
    running, _ = behind
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    message = running.openai.chat.completions.create(**ASK, extra_body=extra).choices[0].message
    assert (message.reasoning_content, message.content) == ("hm", "four")


@pytest.mark.parametrize("behind", [HARMONY], indirect=True, ids=["harmony"])
def test_effort_is_in_the_prompt(behind: tuple[Running, ScriptedService]) -> None:
    running, service = behind
    running.openai.chat.completions.create(**ASK, reasoning_effort="high", tools=[TOOL])
    assert "Reasoning: high" in prompt_of(running, service)
    response = running.http.post("/v1/chat/completions", json={**ASK, "reasoning_effort": "xhigh"})
    assert response.status_code == 400
    both = {"reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}}
    response = running.http.post("/v1/chat/completions", json={**ASK, **both})
    assert "contradicts chat_template_kwargs.reasoning_effort" in response.json()["error"]["message"]
