"""A server whose engine is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served import Running, serving, wait_until

from gristmill.serve.engine_wire import EngineOptions
from gristmill.serve.inbox import MAX_UNREAD
from gristmill.serve.model import TextAlone
from gristmill.serve.process_service import ProcessService


@dataclass(frozen=True)
class Supervised:
    running: Running
    service: ProcessService

    @property
    def pid(self) -> int:
        """The engine's process."""
        child = self.service.supervisor.child
        assert child is not None
        return child.pid

    @property
    def is_well(self) -> bool:
        return self.running.http.get("/health").status_code == 200

    def metric(self, name: str) -> float:
        lines = self.running.http.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(f"gristmill:{name}{{")).rsplit(" ", 1)[1])


@contextmanager
def supervised(
    model: Path,
    max_queue: int = 256,
    max_unread: int = MAX_UNREAD,
    serving_with: dict[str, Any] | None = None,
    **given: Any,
) -> Iterator[Supervised]:
    """A server of `model`, with its engine ready."""
    options = EngineOptions(str(model), **{"threads": 1, "kv_type": "f32", "max_sequences": 4, **given})
    text = TextAlone(model, max_context=None, tokenizer=None, chat_template=str(model.parent / "chat.jinja"))
    service = ProcessService(options, max_queue, max_unread=max_unread)
    with serving(text, service=service, **(serving_with or {})) as running:
        server = Supervised(running, service)
        wait_until(lambda: server.is_well)
        yield server
