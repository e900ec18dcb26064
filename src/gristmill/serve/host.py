"""What every route needs: the model's name, texts, service, defaults and counts. It knows no route."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gristmill.models.sampling import Recommended
from gristmill.serve.errors import ApiError
from gristmill.serve.metrics import Metrics
from gristmill.serve.service import Service
from gristmill.serve.texts import Texts
from gristmill.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Defaults:
    """How tokens are chosen where a request does not say.

    text                  of plain texts
    thinking, unthinking  of answers with a thought, and without
    usual                 that of these which most requests have: of a chat, where the model has any
    """

    text: SamplingParams
    thinking: SamplingParams
    unthinking: SamplingParams
    usual: SamplingParams


@dataclass(slots=True)
class Host:
    """names: what requests may call the model; the first is what answers call it. draining: nothing new is taken.
    n_begun: requests that are read and prepared, up to their answer or its stream. crowded: whether there are more
    connections than the server is to have.
    """

    names: tuple[str, ...]
    texts: Texts
    service: Service
    metrics: Metrics
    defaults: Defaults
    draining: bool = False
    n_begun: int = 0
    crowded: Callable[[], bool] = lambda: False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        return self.names[0]

    def check_model(self, name: str | None) -> None:
        """404 for another model than the one that is here; none is this one."""
        if name is not None and name not in self.names:
            raise ApiError(
                404,
                f"model: {name!r:.80} is not here; this server has {', '.join(self.names)}",
                param="model",
                code="model_not_found",
            )


def defaults_of(recommended: Recommended, texts: Texts) -> Defaults:
    """Where the model's makers say nothing, OpenAI's."""
    chosen = (recommended.said, recommended.in_chat(thinks=True), recommended.in_chat(thinks=False))
    text, thinking, unthinking = (replace(SamplingParams(), **said) for said in chosen)
    usual = text if texts.template is None else thinking if texts.expects_thoughts() else unthinking
    return Defaults(text, thinking, unthinking, usual)
