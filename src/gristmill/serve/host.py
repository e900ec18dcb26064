"""What every route needs: the model's name, texts, service, defaults and counts. It knows no route."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from gristmill.serve.errors import ApiError
from gristmill.serve.metrics import Metrics
from gristmill.serve.protocol import Defaults
from gristmill.serve.service import Service
from gristmill.serve.texts import Texts
from gristmill.tokenizer.json_fields import read_json


@dataclass(slots=True)
class Host:
    """names: what requests may call the model; the first is what answers call it. draining: nothing new is taken."""

    names: tuple[str, ...]
    texts: Texts
    service: Service
    metrics: Metrics
    defaults: Defaults
    draining: bool = False
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


def read_defaults(model: Path) -> Defaults:
    """From the generation_config.json in a model's folder, where there is one. ValueError for a broken one."""
    path = model / "generation_config.json"
    if not path.is_file():
        return Defaults()
    fields = read_json(path)
    names = [name for name in Defaults.model_fields if fields.get(name) is not None]
    try:
        return Defaults.model_validate({name: fields.get(name) for name in names})
    except ValueError as error:
        raise ValueError(f"{path}: {json.dumps(str(error))[:300]}") from None
