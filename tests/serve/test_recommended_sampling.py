"""What the model's files recommend is what requests get that do not say otherwise, on every route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import five
import pytest
from scripted import ScriptedService
from served import Running, serving

from gristmill import LLM, SamplingParams
from gristmill.bundled import STORY_MODEL
from gristmill.serve.app import Settings, create_app
from gristmill.serve.model import TextAlone

SAID = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1}
MESSAGES = [{"role": "user", "content": "ab"}]
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/completions", {"prompt": "ab"}),
    ("/v1/responses", {"input": "ab"}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
]
ALL = [(path, body | stream) for path, body in ROUTES for stream in ({}, {"stream": True})]


def qwen3(folder: Path, **recommended: float) -> Path:
    """A tiny Qwen3 with its template, of which only the text is looked at."""
    families = pytest.importorskip("oracles.families")
    five._write_tokenizer(folder, five.FIVE["qwen3"])
    families.build(families.qwen3(vocab_size=256 + len(five.FIVE["qwen3"].marks))).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(recommended))
    return folder


def asked(model: Path, path: str, body: dict[str, Any], **settings: Any) -> SamplingParams:
    """What the engine is asked for."""
    text = TextAlone(model, max_context=None, tokenizer=None, chat_template=str(five.template("qwen3")))
    service = ScriptedService(text.tokenizer, "ok")
    with serving(text, Settings(**settings), service=service) as running:
        answer = running.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
    return service.requests[0].params


def chosen(params: SamplingParams) -> dict[str, float]:
    return {name: getattr(params, name) for name in SAID}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen3(tmp_path_factory.mktemp("qwen3"), **SAID)


@pytest.mark.parametrize(("path", "body"), ALL)
def test_a_request_that_says_nothing(model: Path, path: str, body: dict[str, Any]) -> None:
    assert chosen(asked(model, path, body)) == SAID
    assert chosen(asked(model, path, body, recommended=False)) == chosen(SamplingParams())


@pytest.mark.parametrize(("path", "body"), ALL)
def test_what_a_request_says_is_what_it_gets(model: Path, path: str, body: dict[str, Any]) -> None:
    assert chosen(asked(model, path, {**body, "temperature": 1.0, "top_p": 1.0})) == SAID | {
        "temperature": 1.0,
        "top_p": 1.0,
    }
    if path in ("/v1/chat/completions", "/v1/completions"):
        neutral = {"temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
        assert chosen(asked(model, path, {**body, **neutral})) == neutral | {"top_k": 0}


OFF = {"chat_template_kwargs": {"enable_thinking": False}}
THINKING = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1}
UNTHINKING = THINKING | {"temperature": 0.7, "top_p": 0.8}
WAYS = [
    (*ROUTES[0], THINKING),
    (ROUTES[0][0], ROUTES[0][1] | OFF, UNTHINKING),
    (ROUTES[0][0], ROUTES[0][1] | {"reasoning_effort": "none"}, UNTHINKING),
    (*ROUTES[3], UNTHINKING),  # this API's models think only where they are asked to
    (ROUTES[3][0], ROUTES[3][1] | {"thinking": {"type": "enabled", "budget_tokens": 100}}, THINKING),
]


@pytest.mark.parametrize("recommended", [{}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}], ids=["silent", "usual"])
@pytest.mark.parametrize(("path", "body", "expected"), WAYS)
def test_qwen3_without_a_thought(
    tmp_path: Path, path: str, body: dict[str, Any], expected: dict[str, float], recommended: dict[str, float]
) -> None:
    assert chosen(asked(qwen3(tmp_path, **recommended), path, body)) == expected


def test_plain_texts_have_no_other_than_the_files(tmp_path: Path) -> None:
    assert chosen(asked(qwen3(tmp_path), *ROUTES[1])) == chosen(SamplingParams())


@pytest.fixture(scope="module")
def stories() -> Iterator[Running]:
    with LLM(threads=1, kv_type="f32") as llm, serving(llm) as running:
        yield running


def test_it_is_told(stories: Running, running: Running) -> None:
    expected = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    cards = [stories.http.get("/v1/models").json()["data"][0], stories.http.get("/v1/models/stories").json()]
    assert [card["default_sampling_params"] for card in cards] == [expected, expected]
    assert running.http.get("/v1/models").json()["data"][0]["default_sampling_params"]["temperature"] == 1
    for given, temperature in (({}, 0.7), ({"temperature": 0.2, "top_p": 0.5}, 0.2)):
        answer = stories.openai.responses.create(model="stories", input="Once", max_output_tokens=2, **given)
        assert (answer.temperature, answer.top_p) == (temperature, given.get("top_p", 1))


def test_answers_are_chosen_so(stories: Running) -> None:
    """The story model's own temperature is what 0.7 gives, and not OpenAI's 1."""

    def tell(**given: Any) -> str:
        body = {"prompt": "Once upon a time", "max_tokens": 60, "seed": 3, **given}
        return stories.http.post("/v1/completions", json=body).json()["choices"][0]["text"]

    assert tell() == tell(temperature=0.7) != tell(temperature=1)


def test_what_makes_no_sense_ends_the_start(tmp_path: Path) -> None:
    text = TextAlone(
        qwen3(tmp_path, temperature=-1), max_context=None, tokenizer=None, chat_template=str(five.template("qwen3"))
    )
    service = ScriptedService(text.tokenizer, "ok")
    with pytest.raises(ValueError, match=r"generation_config.json.*temperature.*--generation-config none"):
        create_app(text, service=service)
    assert create_app(text, Settings(recommended=False), service)


def test_the_story_models_file_says_what_lies_beside_it() -> None:
    beside = json.loads(STORY_MODEL.with_name("generation_config.json").read_text())
    with LLM(threads=1) as llm:
        assert llm.get_default_sampling_params() == SamplingParams(temperature=beside["temperature"])
