"""How many times faster than its peers gristmill is, beside its goals and the machine's limit, as a picture.

    python benchmarks/compare_llama_cpp.py qwen3-0.6b-q8_0.gguf --llama-bin DIR --parts all --json > q8_0.json
    python benchmarks/compare_llama2c.py 110m-f32.bin 110m-q8.bin --llama2c DIR --json > llama2c.json
    python benchmarks/goals.py q8_0.json llama2c.json -o goals.png

A bar for each goal that the files have a figure of: models are told by the ends of their names, as above and in
docs/performance.md. The pale part is what all of memory, or all of the multiplier, would give: a goal to the right of
it is out of reach beside that peer, in that hour. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


@dataclass(frozen=True, slots=True)
class Goal:
    """Times better than the peer. `file` ends the model's name without .gguf or .bin."""

    label: str
    file: str
    measure: str
    times: float


@dataclass(frozen=True, slots=True)
class Bar:
    """What was reached, and what would be at all of the limit; None: that is unknown."""

    goal: Goal
    times: float
    at_limit: float | None


def _goals() -> Iterable[Goal]:
    files = {"Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_K_M": "q4_k_m", "Q6_K": "q6_k", "BF16": "-bf16", "F16": "-f16"}
    of_each = {
        ("prompt", "prompt tok/s"): (3.0, 2.5, 2.5, 2.5, 1.5, 1.4),
        ("generate", "generate tok/s"): (1.5, 1.5, 1.5, 1.5, 1.1, 1.2),
    }
    for (what, measure), all_times in of_each.items():
        for (name, file), times in zip(files.items(), all_times, strict=True):
            yield Goal(f"{what}, {name}", file, measure, times)
    yield Goal("16 sequences, Q8_0", "q8_0", "generate, batch 16 tok/s", 4.0)
    yield Goal("16 sequences, Q4_K_M", "q4_k_m", "generate, batch 16 tok/s", 3.0)
    yield Goal("prompt at 4096, Q8_0", "q8_0", "prompt at 4096 tok/s", 3.0)
    yield Goal("generate at 4096, Q8_0", "q8_0", "generate at 4096 tok/s", 2.5)
    yield Goal("prompt, gpt-oss-20b", "gpt-oss", "prompt tok/s", 3.0)
    yield Goal("generate, gpt-oss-20b", "gpt-oss", "generate tok/s", 1.4)
    for name, times in {"110m-f32": 1.4, "110m-q8": 2.2, "15m-f32": 1.2, "15m-q8": 2.5}.items():
        yield Goal(f"llama2.c generate, {name}", name, "generate tok/s", times)
        yield Goal(f"llama2.c prompt, {name}", name, "prompt tok/s", 10.0)
    for name, file in files.items():
        yield Goal(f"first token, {name}", file, "start to first token s", 2.0)


def read_bars(paths: Iterable[Path]) -> list[Bar]:
    """In the goals' order. ValueError for a file that no comparison writes, and for one without a goal's figure."""
    goals = list(_goals())
    found: dict[Goal, Bar] = {}
    for path in paths:
        rows = list(_rows(path))
        in_file = {
            goal: Bar(goal, row["better"], row["better"] / row["share"] if row.get("share") else None)
            for goal in goals
            for file, measure, row in rows
            if f"-{file}".endswith(goal.file) and measure == goal.measure
        }
        if not in_file:
            ends = ", ".join(sorted({goal.file.lstrip("-") for goal in goals}))
            raise ValueError(f"{path}: has no figure of a goal; its model's name has to end with one of {ends}")
        found |= in_file
    return [found[goal] for goal in goals if goal in found]


def _rows(path: Path) -> Iterable[tuple[str, str, dict[str, Any]]]:
    """(model's name without its kind, measure, row) of each row. llama2.c's rows begin with the model's name."""
    try:
        report = json.loads(path.read_text())
        for row in report["rows"]:
            own = re.fullmatch(r"(.+)\.bin (.+)", row["measure"])
            yield (own[1], own[2], row) if own else (Path(report["model"]).stem.lower(), row["measure"], row)
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not what a comparison prints with --json") from None


def draw(bars: list[Bar], title: str, output: Path) -> None:
    figure, axes = plt.subplots(figsize=(10, 0.27 * len(bars) + 1.3), layout="constrained")
    for y, bar in enumerate(reversed(bars)):
        if bar.at_limit is not None and bar.at_limit > bar.times:
            axes.barh(y, bar.at_limit - 0.5, left=0.5, height=0.7, color="0.88", zorder=1)
        met = bar.times >= bar.goal.times
        axes.barh(y, bar.times - 0.5, left=0.5, height=0.7, color="C0" if met else "C1", zorder=2)
        axes.plot([bar.goal.times] * 2, [y - 0.42, y + 0.42], color="black", lw=2, zorder=3)
        axes.annotate(
            f"{bar.times:.2f}",
            (0.5, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color="white",
            fontsize=8,
        )
    axes.set_yticks(range(len(bars)), [bar.goal.label for bar in reversed(bars)])
    axes.set(
        xscale="log", xlim=(0.5, max(bar.at_limit or bar.times for bar in bars) * 1.1), ylim=(-0.6, len(bars) - 0.4)
    )
    axes.set_xticks([0.5, 1, 2, 3, 5, 10, 20, 50], ["0.5", "1", "2", "3", "5", "10", "20", "50"])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", which="major", color="0.9", zorder=0)
    axes.set_axisbelow(True)
    handles = [
        plt.Rectangle((0, 0), 1, 1, color="C0"),
        plt.Rectangle((0, 0), 1, 1, color="C1"),
        plt.Rectangle((0, 0), 1, 1, color="0.88"),
        plt.Line2D([], [], color="black", marker="|", ls="", ms=10, mew=2),
    ]
    names = ["reached", "below the goal", "at all of memory's or the multiplier's limit", "goal"]
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    axes.set_title(title, fontsize=10)
    figure.savefig(output, dpi=140)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="outputs of comparisons with --json")
    parser.add_argument("--title", default="times faster than llama.cpp and llama2.c")
    parser.add_argument("-o", "--output", type=Path, default=Path("goals.png"))
    args = parser.parse_args()
    try:
        draw(read_bars(args.results), args.title, args.output)
    except (ValueError, OSError) as error:
        sys.exit(f"goals: {error}")
    print(args.output)


if __name__ == "__main__":
    main()
