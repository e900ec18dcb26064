"""Servers of a tiny random model, and of one that says what a test chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import five
import pytest
import small_model
from scripted import ScriptedService
from served import CONTEXT, TEMPLATE, Running, serving

from gristmill import LLM


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "chat.jinja").write_text(TEMPLATE)
    return small_model.write(folder, CONTEXT)


@pytest.fixture(scope="session")
def llm(model_path: Path) -> Iterator[LLM]:
    template = model_path.parent / "chat.jinja"
    with LLM(model_path, kv_type="f32", threads=1, max_sequences=4, chat_template=template) as llm:
        yield llm


@pytest.fixture(scope="session")
def running(llm: LLM) -> Iterator[Running]:
    with serving(llm) as running:
        yield running


@pytest.fixture
def says(llm: LLM) -> Iterator[Callable[..., Running]]:
    """says(text): a server whose model answers so."""
    with ExitStack() as stack:

        def serve(text: str, error: Exception | None = None, cut: bool = False, token_s: float = 0) -> Running:
            return stack.enter_context(serving(llm, service=ScriptedService(llm.tokenizer, text, error, cut, token_s)))

        yield serve


@pytest.fixture(scope="session", params=list(five.FIVE))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Running]]:
    """A format's name, and a server of a random model that speaks it."""
    with five.running(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield request.param, running
