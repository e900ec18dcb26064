"""Requests that schemathesis makes from the server's own description, sound and unsound: no 5xx, answers as told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import small_model
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from served import TEMPLATE, Running, serving

from gristmill import LLM
from gristmill.serve.app import Settings
from gristmill.serve.openapi import OPERATIONS

N_EXAMPLES = {GenerationMode.POSITIVE: 50, GenerationMode.NEGATIVE: 25}
BODIES = [path for path, operation in OPERATIONS.items() if operation.bodies]
CASES = [
    *((path, GenerationMode.POSITIVE, False) for path in OPERATIONS),
    *((path, GenerationMode.POSITIVE, True) for path in BODIES if OPERATIONS[path].streams),
    *((path, GenerationMode.NEGATIVE, False) for path in BODIES),
]
UNASKED = [
    negative_data_rejection,  # null is the same as nothing for every field; test_limits.py has the bounds of each
    positive_data_acceptance,  # fields that contradict each other are refused, which a schema cannot say
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Its context is short, so that no answer takes long."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "chat.jinja").write_text(TEMPLATE)
    model, template = small_model.write(folder, 256), folder / "chat.jinja"
    with (
        LLM(model, kv_type="f32", threads=1, max_sequences=4, chat_template=template) as llm,
        serving(llm, Settings(names=("tiny",), max_queue=4)) as running,
    ):
        yield running


@pytest.mark.parametrize(("path", "mode", "streams"), CASES)
def test_answers_are_as_described(tiny: Running, path: str, mode: GenerationMode, streams: bool) -> None:
    schema = schemathesis.openapi.from_url(f"{tiny.url}/openapi.json")
    operation = schema[path]["POST" if path in BODIES else "GET"]
    statuses = []

    @settings(
        max_examples=N_EXAMPLES[mode],
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def asked(case: Any) -> None:
        if isinstance(case.body, dict):
            if isinstance(case.body.get("model"), str):
                case.body["model"] = "tiny"  # of other names nothing is known
            if streams:
                case.body["stream"] = True
        response = case.call()
        case.validate_response(response, excluded_checks=UNASKED)
        statuses.append(response.status_code)

    asked()
    if mode is GenerationMode.POSITIVE and path != "/v1/models/{name}":
        assert 200 in statuses
