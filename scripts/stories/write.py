"""Many stories: one random source for each, so that the n-th story of a seed never depends on the others."""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import accumulate
from multiprocessing import Pool
from pathlib import Path
from types import ModuleType

from stories import (
    plots_doing,
    plots_fears,
    plots_friends,
    plots_home,
    plots_kind,
    plots_silly,
    plots_small,
    plots_things,
    plots_wheels,
    plots_wonder,
)
from stories.registry import Plot, tell_plot

_MODULES: tuple[ModuleType, ...] = (
    plots_doing,
    plots_fears,
    plots_friends,
    plots_home,
    plots_kind,
    plots_silly,
    plots_small,
    plots_things,
    plots_wheels,
    plots_wonder,
)
_CHUNK = 500


@cache
def all_plots() -> tuple[Plot, ...]:
    found = [value for module in _MODULES for value in vars(module).values() if isinstance(value, Plot)]
    return tuple(sorted(found, key=lambda p: p.name))


@cache
def _weights() -> list[float]:
    return list(accumulate(p.weight for p in all_plots()))


def story_at(seed: int, index: int) -> str:
    """Story number `index` of a seed."""
    rng = random.Random((seed << 40) + index)
    plot = rng.choices(all_plots(), cum_weights=_weights())[0]
    return tell_plot(plot, rng)


def _chunk(job: tuple[int, int, int]) -> list[str]:
    seed, start, stop = job
    return [story_at(seed, i) for i in range(start, stop)]


def write_stories(out: Path | None, count: int, seed: int, processes: int) -> list[str]:
    """Writes `count` stories of a seed to `out`, where given, and returns them; a story told twice is left out."""
    if count < 1 or processes < 1:
        raise ValueError(f"--count {count} and --processes {processes} must be at least 1")
    jobs = [(seed, i, min(i + _CHUNK, count)) for i in range(0, count, _CHUNK)]
    if processes == 1 or len(jobs) == 1:
        told = [story for job in jobs for story in _chunk(job)]
    else:
        with Pool(processes) as pool:
            told = [story for chunk in pool.imap(_chunk, jobs) for story in chunk]
    stories = list(dict.fromkeys(told))
    if out is not None:
        with out.open("w", encoding="utf-8") as file:
            for story in stories:
                file.write(
                    json.dumps({"text": story}) + "\n" if out.suffix == ".jsonl" else f"{story}\n<|endoftext|>\n"
                )
    return stories
