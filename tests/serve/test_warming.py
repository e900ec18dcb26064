"""What the engine's process tells of kernels that are compiled before it is ready."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gristmill.serve import engine_process
from gristmill.serve.engine_child import EngineChild, Watch
from gristmill.serve.engine_wire import EngineOptions, Kind, Messages


def test_from_the_model_to_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, told = bytearray(), list[tuple[str, int, int]]()

    class Sender:
        def send(self, data: bytes) -> None:
            sent.extend(data)

    def model(**given: Any) -> None:
        given["progress"](50, 50)
        given["warming"](3, 9)

    monkeypatch.setattr(engine_process, "LLM", model)
    engine_process._load(EngineOptions("any.gguf"), Sender())  # type: ignore[arg-type]
    assert [kind for kind, _ in Messages().feed(bytes(sent))] == [Kind.PROGRESS, Kind.WARMING]

    watch = Watch(
        take=lambda kind, payload: pytest.fail(f"{kind} is about no request"),
        progress=lambda done, total: told.append(("loaded", done, total)),
        warming=lambda done, total: told.append(("warmed", done, total)),
        ready=lambda: pytest.fail("it is not ready"),
    )
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as process:
        child = EngineChild(process, watch)
        child.get_buffer(-1)[: len(sent)] = bytes(sent)
        child.buffer_updated(len(sent))
        child.close()
    assert told == [("loaded", 50, 50), ("warmed", 3, 9)]
