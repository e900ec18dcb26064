"""Latencies of a run as one picture: what share of them is below a time. matplotlib is imported only to draw."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gristmill.bench.serving.load import Run
from gristmill.bench.serving.report import TITLES, values
from gristmill.formats.write_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"ttft": "#0072B2", "e2el": "#D55E00", "tpot": "#E69F00", "itl": "#009E73"}  # Okabe and Ito's
_DPI = 150


def check() -> None:
    """ImportError where nothing could be drawn: to be called before a long run."""
    import matplotlib  # noqa: F401


def draw(path: Path, run: Run, title: str) -> None:
    """A picture of the format that the path's ending names. ValueError where no request was answered."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    good = [outcome for outcome in run.outcomes if outcome.error is None]
    if not good:
        raise ValueError(f"{path}: no request was answered, so there is nothing to draw")
    pairs = (("ttft", "e2el"), ("tpot", "itl"))
    found = [{metric: values(good, metric) for metric in pair} for pair in pairs]
    found = [curves for curves in found if any(curves.values())]  # answers of one token have nothing between tokens
    figure = Figure(figsize=(5 * len(found), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, curves in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        for metric, seconds in curves.items():
            _curve(axes, [1000 * value for value in seconds], metric)
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("share below")
        axes.set_ylim(0, 1.02)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", fontsize=8)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=_DPI, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())


def _curve(axes: Axes, ms: Sequence[float], metric: str) -> None:
    if not ms:
        return
    ordered = np.sort(np.array(ms))
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    p99 = float(np.percentile(ordered, 99))
    axes.step(ordered, shares, where="post", color=_COLOURS[metric], label=f"{TITLES[metric]}, p99 {p99:.3g} ms")
    if ordered[0] > 0 and ordered[-1] > 50 * np.median(ordered):
        axes.set_xscale("log")
