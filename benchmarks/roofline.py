"""Achieved speed against the machine's limits as a picture (a roofline: Williams et al., doi:10.1145/1498765.1498785).

    gristmill bench machine --json > machine.json
    gristmill bench model -m model-q8_0.gguf -b 1,4,16 --json > q8_0.json
    python benchmarks/roofline.py machine.json q8_0.json -o roofline.png

One point for each test of each file, named after the file; under the slope memory is the limit, under a flat line the
multiply-adds of that arithmetic. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

NAMES = {"f32": "fp32", "bf16": "bf16", "int8": "int8"}
MARKERS = {"pp": "s", "tg": "o"}
# Where a label may stand beside its point, in points; the first that is free is taken.
PLACES = ((6, -3), (6, 6), (6, -12), (-6, 6), (-6, -12), (6, 15), (6, -21), (-6, 15), (-6, -21), (6, 24), (6, -30))


@dataclass(frozen=True, slots=True)
class Limits:
    """GB/s of memory, GFLOP/s by arithmetic, with so many threads."""

    threads: int
    read: float
    peaks: dict[str, float]


@dataclass(frozen=True, slots=True)
class Point:
    """One test: operations for each byte read, and operations a second."""

    kind: str
    label: str
    intensity: float
    gflop_per_s: float


def read_limits(path: Path, threads: int | None) -> Limits:
    """Of the thread count asked for, otherwise of the most. ValueError for another file than `bench machine` writes."""
    report = _read(path)
    if not isinstance(report, dict) or "limits" not in report:
        raise ValueError(f"{path}: not what `gristmill bench machine --json` prints")
    found = {entry["threads"]: entry for entry in report["limits"]}
    count = threads or max(found)
    if count not in found:
        raise ValueError(f"{path}: measured with {sorted(found)} threads, not with {count}")
    peaks = {name: rate["best"] for name, rate in found[count]["peak_gflop_per_s"].items()}
    return Limits(count, found[count]["read_gb_per_s"]["best"], peaks)


def read_points(path: Path, threads: int) -> list[Point]:
    """Those measured with as many threads. ValueError for another file than `bench model` writes, or without any."""
    rows = _read(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "gflop_per_s" in row for row in rows):
        raise ValueError(f"{path}: not what `gristmill bench model --json` prints")
    points = [
        Point(row["test"][:2], label(row), row["gflop_per_s"] / row["gb_per_s"], row["gflop_per_s"])
        for row in rows
        if row["threads"] == threads
    ]
    if not points:
        raise ValueError(f"{path}: no test with {threads} threads; name another count with --threads")
    return points


def label(row: dict[str, Any]) -> str:
    parts = [row["test"]]
    if row["batch"] > 1:
        parts.append(f"×{row['batch']}")
    if row["depth"]:
        parts.append(f"at {row['depth']}")
    return " ".join(parts)


def draw(limits: Limits, files: Sequence[tuple[str, list[Point]]], output: Path) -> None:
    figure, axes = plt.subplots(figsize=(10, 6.5), layout="constrained")
    points = [point for _, found in files for point in found]
    low = min(min(p.intensity for p in points) / 2, 0.5)
    high = max(max(p.intensity for p in points) * 4, max(limits.peaks.values()) / limits.read * 8)
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set_ylim(min(min(p.gflop_per_s for p in points) / 2, low * limits.read), max(limits.peaks.values()) * 2)
    draw_limits(axes, limits, low, high)
    for number, (name, found) in enumerate(files):
        for kind in MARKERS:
            chosen = [p for p in found if p.kind == kind]
            x, y = [p.intensity for p in chosen], [p.gflop_per_s for p in chosen]
            axes.scatter(x, y, marker=MARKERS[kind], color=f"C{number}", s=36, zorder=3)
        axes.plot([], [], "o", color=f"C{number}", label=name)
    axes.plot([], [], MARKERS["pp"], color="0.4", label="prompt")
    axes.plot([], [], MARKERS["tg"], color="0.4", label="generation")
    axes.set_xlabel("operations for each byte read (a multiply-add is two)")
    axes.set_ylabel("GFLOP/s (int8: GOP/s)")
    axes.grid(which="major", color="0.9", zorder=0)
    axes.legend(loc="lower right", frameon=False)
    figure.canvas.draw()
    place_labels(axes, [(p, f"C{number}") for number, (_, found) in enumerate(files) for p in found])
    figure.savefig(output, dpi=140)
    plt.close(figure)


def draw_limits(axes: Axes, limits: Limits, low: float, high: float) -> None:
    highest = max(limits.peaks.values())
    knee = highest / limits.read
    axes.plot([low, knee], [low * limits.read, highest], color="0.3", lw=1.5)
    axes.annotate(
        f"memory, {limits.read:.0f} GB/s ({limits.threads} threads)",
        (knee / 1.3, highest / 1.3),
        xytext=(-6, 6),
        ha="right",
        textcoords="offset points",
        rotation=45,
        rotation_mode="anchor",
        transform_rotates_text=True,
        color="0.3",
    )
    for name, peak in limits.peaks.items():
        axes.plot([peak / limits.read, high], [peak, peak], color="0.3", lw=1.5, ls="-" if peak == highest else "--")
        text = f"{NAMES.get(name, name)}, {peak:.0f}"
        axes.annotate(text, (high, peak), xytext=(-4, 4), textcoords="offset points", ha="right", color="0.3")


def place_labels(axes: Axes, points: Sequence[tuple[Point, str]]) -> None:
    """Each beside its point where no other label or point is."""
    taken = [_around(axes, point) for point, _ in points]
    renderer = axes.figure.canvas.get_renderer()
    for point, color in sorted(points, key=lambda each: each[0].intensity):
        for x, y in PLACES:
            text = axes.annotate(
                point.label,
                (point.intensity, point.gflop_per_s),
                xytext=(x, y),
                textcoords="offset points",
                ha="left" if x > 0 else "right",
                color=color,
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )
            box = text.get_window_extent(renderer)
            if (x, y) == PLACES[-1] or not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _around(axes: Axes, point: Point) -> Bbox:
    x, y = axes.transData.transform((point.intensity, point.gflop_per_s))
    return Bbox.from_bounds(x - 4, y - 4, 8, 8)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", type=Path, help="output of `gristmill bench machine --json`")
    parser.add_argument("models", type=Path, nargs="+", help="outputs of `gristmill bench model --json`")
    parser.add_argument("--threads", type=int, help="thread count to show [default: the most in MACHINE]")
    parser.add_argument("-o", "--output", type=Path, default=Path("roofline.png"))
    args = parser.parse_args()
    try:
        limits = read_limits(args.machine, args.threads)
        draw(limits, [(path.stem, read_points(path, limits.threads)) for path in args.models], args.output)
    except (ValueError, OSError) as error:
        sys.exit(f"roofline: {error}")
    print(args.output)


if __name__ == "__main__":
    main()
