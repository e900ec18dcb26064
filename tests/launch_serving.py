"""Serves requests of every kind on a card that is not there, after warming; prints as JSON the kernels that would have
been compiled only then. Nothing computes: tokens are whatever was in memory. Needs TRITON_INTERPRET=0; models as
arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
import triton
from compiled_for import Driver

from gristmill.engine import loop
from gristmill.engine.engine import Engine, EngineSettings
from gristmill.formats.open import open_checkpoint
from gristmill.kv.cache import plan
from gristmill.models.build import build
from gristmill.ops.cuda import CudaOps
from gristmill.types import Failure, NotFiniteError, Request, SamplingParams, StructuredOutputsParams, TokenEvent, Wants

CONTEXT, SLOTS = 3000, 20  # three widths of block tables; batches padded to 24 sequences


class Anything:
    """A grammar that allows every token."""

    def mask(self, row: np.ndarray) -> None:
        row[:] = 2**32 - 1

    def advance(self, token_id: int) -> None: ...

    def rollback(self, n_tokens: int) -> None: ...

    def forced(self) -> list[int]:
        return []


def requests() -> list[Request]:
    asked = [Request((1,) * n, SamplingParams(max_tokens=3 + n % 7, seed=n)) for n in (*range(1, 24), 70, 600, 2500)]
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"top_k": 30, "top_p": 0.9, "min_p": 0.1},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
        {"logit_bias": {3: 5.0}, "min_tokens": 2, "stop_token_ids": (3,)},
        *({"logprobs": n} for n in (0, 1, 2, 20, 100, 500)),
        {"prompt_logprobs": 5},
        {"structured_outputs": StructuredOutputsParams(json_object=True)},
    ]
    for i, kind in enumerate(kinds):
        asked += [Request((2,) * n, SamplingParams(max_tokens=20, seed=i, **kind)) for n in (5, 40)]
    wants = (wants for wants in Wants if wants is not Wants.TOKENS)
    asked += [Request((3,) * 90, SamplingParams(prompt_logprobs=0), wants=each) for each in wants]
    return asked


def serve(path: Path, engine: Engine) -> None:
    events: SimpleQueue[Any] = SimpleQueue()
    todo = requests()
    for request in todo:
        engine.submit(request, events.put)
    n_ended = 0
    while n_ended < len(todo):
        event = events.get(timeout=60)
        if isinstance(event, Failure):
            if not isinstance(event.error, NotFiniteError):  # which hidden states may happen to be
                raise event.error
            n_ended += 1
        else:
            n_ended += event.finish is not None if isinstance(event, TokenEvent) else event.last


def main() -> None:
    seen: dict[str, str] = {}

    def note(*, key: str, repr: str, **_: Any) -> bool:
        seen[key] = repr
        return True  # and so it is not compiled

    loop.NO_ID = None  # no token that happens to be there ends a request
    triton.runtime.driver.set_active(Driver(90))
    triton.knobs.runtime.jit_cache_hook = note
    late = {}
    for name in sys.argv[1:]:
        ops = CudaOps(device=torch.device("cpu"))
        decoder = build(open_checkpoint(Path(name)), ops)
        settings = EngineSettings(CONTEXT, SLOTS, speculate=4)
        sizes = plan(ops, decoder.config, "f16", CONTEXT, SLOTS, settings.step_tokens, 1 << 30)
        seen.clear()
        engine = Engine(decoder, ops, settings, sizes, "f16", lambda _: Anything())
        warmed = set(seen)
        serve(Path(name), engine)
        engine.close()
        late[name] = sorted(text for key, text in seen.items() if key not in warmed)
        assert len(warmed) > 20
    print(json.dumps(late))


main()
