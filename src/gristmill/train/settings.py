"""What a run of training is asked to do, and how far it has come; both are what state.json holds. It knows no torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. Sequences are counted over all processes.

    batch         sequences in a step
    micro_batch   sequences that a process computes at once, 0 for its whole part; their gradients are added up
    ctx           tokens of a sequence
    warmup        steps in which the learning rate rises to lr; it then falls to min_lr along a cosine
    patience      evaluations without a better validation loss after which training ends; 0: never
    eval_batches  how many batches of held-out sequences an evaluation uses, at most
    sample_tokens tokens of the sample after an evaluation; 0: none
    """

    steps: int = 1000
    batch: int = 32
    micro_batch: int = 0
    ctx: int = 256
    lr: float = 5e-4
    min_lr: float = 0.0
    warmup: int = 100
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    eval_every: int = 250
    eval_batches: int = 20
    log_every: int = 10
    patience: int = 0
    sample_tokens: int = 100
    sample_prompt: str = ""
    seed: int = 0
    dtype: str = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "ctx", "eval_every", "eval_batches", "log_every"):
            _check(name, getattr(self, name), 1, 2**31)
        for name in ("micro_batch", "warmup", "patience", "sample_tokens", "seed"):
            _check(name, getattr(self, name), 0, 2**31)
        for name in ("lr", "min_lr", "weight_decay", "clip"):
            _check(name, getattr(self, name), 0, 1e6)
        for name in ("beta1", "beta2"):
            _check(name, getattr(self, name), 0, 1)

    def evaluates_after(self, step: int) -> bool:
        return step % self.eval_every == 0 or step == self.steps

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ...: a line up to lr, then half a cosine down to min_lr."""
        if step < self.warmup:
            return self.lr * (step + 1) / (self.warmup + 1)
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


@dataclass(slots=True)
class State:
    """How far a run has come. Data is drawn by (seed, tokens), samples by seed: no generator has a state to keep.

    step       steps that are done
    tokens     that they learned from, of which another --batch or --ctx may have made more or less a step
    best       the lowest validation loss so far, None before the first
    n_worse    evaluations since then
    seconds    of training so far, before and after it was resumed
    shards     the folder with its data, and what they were made of
    """

    step: int = 0
    tokens: int = 0
    best: float | None = None
    n_worse: int = 0
    seconds: float = 0.0
    shards: str = ""
    shards_key: str = ""


def write_state(state: State, settings: Settings) -> bytes:
    return json.dumps({"state": asdict(state), "settings": asdict(settings)}, indent=1).encode()


def read_state(path: Path) -> tuple[State, Settings]:
    """ValueError for a file that is not what `write_state` wrote."""
    try:
        fields_ = json.loads(path.read_bytes())
        state, settings = State(**fields_["state"]), Settings(**_known(fields_["settings"]))
        _check_types(state)
        _check_types(settings)
        if state.step < 0 or state.tokens < state.step:
            raise ValueError(f"step is {state.step!r}, tokens are {state.tokens!r}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: no state to resume from ({error}); start again without --resume") from None
    return state, settings


def _known(values: dict[str, Any]) -> dict[str, Any]:
    unknown = set(values) - {field.name for field in fields(Settings)}
    if unknown:
        raise ValueError(f"has the unknown setting {sorted(unknown)[0]!r}")
    return values


def _check_types(made: State | Settings) -> None:
    """ValueError for a value of another type than its field's default; only a number has none."""
    for field in fields(made):
        value, kind = getattr(made, field.name), float if field.default is None else type(field.default)
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits and value is not field.default:
            raise ValueError(f"{field.name} is {value!r:.40}")


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"--{name.replace('_', '-')} must be at least {low:g} and at most {high:g}, not {value!r}")
