"""A trace as one picture. It owns colours and layout, and computes nothing; matplotlib is imported only to draw.

Colours are Okabe and Ito's (jfly.uni-koeln.de/color), and maps whose lightness changes evenly, so that everyone can
tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gristmill.formats.write_file import write_whole
from gristmill.tracing.forward import Lens
from gristmill.tracing.timeline import AGAIN, ANSWER, PROMPT, WAITING, Share, Timeline
from gristmill.tracing.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
LENS_COLUMNS = 14
"""Positions of the logit lens for whose text there is room."""

Name = Callable[[int], str]
"""A token's text on one line."""

_DPI = 150
_N_TICKS = 48
_LENS_MAP, _SHARE_MAP = "cividis", "Blues"
_BLUE, _ORANGE, _SKY, _RED, _GREEN, _INK = "#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#222222"
_COLOURS = {PROMPT: _BLUE, ANSWER: _ORANGE, AGAIN: _RED, WAITING: "#E2E2E2"}
_KINDS = {PROMPT: "prompt", ANSWER: "answer", AGAIN: "computed again", WAITING: "waits"}


def draw_view(path: Path, view: View, lenses: Sequence[Lens], names: Name) -> None:
    """lenses: of the last positions up to the view's, in order."""
    n_layers, label = view.config.n_layers, _label(names(view.trace.ids[view.position]), 24)
    above, below = max(2.8, 0.3 * (n_layers + 1)), max(2.4, 0.25 * len(view.rows))
    figure = _figure(
        15, above + below + 2.0, f"{view.config.arch}, {n_layers} layers: token {view.position}, “{label}”"
    )
    grid = figure.add_gridspec(2, 2, width_ratios=(2.4, 1), height_ratios=(above, below))
    _draw_lens(figure.add_subplot(grid[0, 0]), view, lenses, names)
    _draw_norms(figure.add_subplot(grid[0, 1]), view)
    _draw_attention(figure.add_subplot(grid[1, 0]), view, names)
    last = figure.add_subplot(grid[1, 1])
    if any(view.experts):
        _draw_experts(last, view)
    else:
        _draw_next(last, view, names)
    _save(figure, path)


def draw_timeline(path: Path, timeline: Timeline) -> None:
    n_requests, n_steps = len(timeline.prompts), len(timeline.steps)
    width = min(30.0, max(11.0, 2.5 + 0.28 * n_steps))
    lanes = 0.7 + 0.42 * n_requests
    figure = _figure(width, lanes + 4.2, f"{n_requests} requests in {n_steps} steps")
    gantt, blocks, ms = figure.subplots(3, 1, sharex=True, height_ratios=(lanes, 1.1, 1.1))
    _draw_requests(gantt, timeline, room=(width - 2.5) / n_steps)
    steps = np.arange(n_steps)
    blocks.bar(steps, [step.blocks_used for step in timeline.steps], width=1, color=_SKY)
    blocks.axhline(timeline.n_blocks, color=_INK, linewidth=1, linestyle="--")
    blocks.set_ylim(0, timeline.n_blocks * 1.15)
    _heading(blocks, f"Cache blocks in use, of {timeline.n_blocks} (16 positions each)")
    ms.bar(steps, [step.ms for step in timeline.steps], width=0.86, color=_GREEN)
    _heading(ms, "Milliseconds")
    ms.set_xlabel("step")
    ms.set_xlim(-0.6, n_steps - 0.4)
    _whole(ms.xaxis)
    _whole(blocks.yaxis)
    for axes in (blocks, ms):
        _plain(axes)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """In the format that the path's ending names."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=_DPI, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())


def _draw_lens(axes: Axes, view: View, lenses: Sequence[Lens], names: Name) -> None:
    """The likeliest next token after each layer; colours are its probability."""
    first = view.position + 1 - len(lenses)
    p = np.array([lens.probabilities[:, 0] for lens in lenses]).T  # [L + 1, columns]
    _map(axes, p, _LENS_MAP, "probability")
    size = 9.5 if len(lenses) <= 10 else 8.5
    for column, lens in enumerate(lenses):
        for row, token_id in enumerate(lens.top_ids[:, 0].tolist()):
            colour = "white" if p[row, column] < 0.5 else "black"
            text = _label(names(token_id), 9)
            axes.text(column, row, text, ha="center", va="center", size=size, color=colour, parse_math=False)
    _token_ticks(axes, range(first, view.position + 1), view, names)
    _layer_ticks(axes, view, with_embedding=True)
    _heading(axes, "Logit lens: the likeliest next token if the model ended after this layer")


def _draw_norms(axes: Axes, view: View) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    layers = np.arange(1, view.config.n_layers + 1)
    residual = [view.embedded_norm, *view.norms[:, 0]]
    axes.plot(residual, np.arange(len(residual)), color=_INK, marker="o", markersize=4, label="residual")
    axes.plot(view.norms[:, 1], layers, color=_BLUE, marker="s", markersize=4, linestyle="--", label="attention")
    axes.plot(view.norms[:, 2], layers, color=_RED, marker="^", markersize=5, linestyle=":", label="feed-forward")
    shown = np.concatenate([residual, view.norms[:, 1:].reshape(-1)])
    spread = shown.max() / max(shown.min(), 1e-30)
    if spread > 30:
        axes.set_xscale("log")
        if spread < 1000:  # matplotlib's own labels of so few decades overlap
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
    axes.set_ylim(-0.5, view.config.n_layers + 0.5)
    _layer_ticks(axes, view, with_embedding=True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(
        frameon=False,
        fontsize=8.5,
        loc="upper center",
        bbox_to_anchor=(0.45, 0),
        borderaxespad=2.4,
        ncols=3,
        columnspacing=1,
    )
    _plain(axes)
    _heading(axes, "Norms: the stream, and what is added")


def _draw_attention(axes: Axes, view: View, names: Name) -> None:
    weights = np.array([row.weights for row in view.rows])
    sinks = [row.sink for row in view.rows if row.sink is not None]
    if sinks:
        weights = np.concatenate([weights, np.array(sinks)[:, None]], axis=1)
    _map(axes, weights, _SHARE_MAP, "share", most=max(float(weights.max()), 1e-6))
    _token_ticks(axes, range(view.position + 1), view, names, ["sink"] if sinks else [])
    if view.layer is None:
        _layer_ticks(axes, view, with_embedding=False)
        heads = "all heads on average" if view.rows[0].head is None else f"head {view.rows[0].head}"
        _heading(axes, f"Attention: how much it took from each token, {heads}")
    else:
        labels = ["mean" if row.head is None else str(row.head) for row in view.rows]
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylabel("head")
        _heading(axes, f"Attention in layer {view.layer}: how much each head took from each token")


def _draw_experts(axes: Axes, view: View) -> None:
    assert view.config.moe is not None
    weights = np.zeros((view.config.n_layers, view.config.moe.n_experts))
    for layer, chosen in enumerate(view.experts):
        for expert, weight in chosen:
            weights[layer, expert] = weight
    _map(axes, weights, _SHARE_MAP, "weight", most=1.0)
    _layer_ticks(axes, view, with_embedding=False)
    axes.set_xlabel("expert")
    _whole(axes.xaxis)
    _heading(axes, "Experts that computed it")


def _draw_next(axes: Axes, view: View, names: Name) -> None:
    following = _label(names(view.trace.successor(view.position)), 16)
    rows = np.arange(view.config.n_layers + 1)
    axes.barh(rows, view.lens.next_probabilities, color=_SKY)
    for row, (p, rank) in enumerate(zip(view.lens.next_probabilities, view.lens.ranks, strict=True)):
        axes.text(p + 0.01, row, f"{_percent(p)}, rank {rank}", va="center", size=7.5, color=_INK)
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylim(-0.6, view.config.n_layers + 0.6)
    _layer_ticks(axes, view, with_embedding=True)
    _plain(axes)
    _heading(axes, f"Logit lens on what did come next, “{following}”")


def _draw_requests(axes: Axes, timeline: Timeline, room: float) -> None:
    """room: inches of a step."""
    from matplotlib.patches import Patch, Rectangle

    for x, step in enumerate(timeline.steps):
        for share in step.shares:
            y = share.request
            box = Rectangle((x - 0.47, y - 0.36), 0.94, 0.72, facecolor=_COLOURS[share.kind], edgecolor="none")
            axes.add_patch(box)
            if text := _count(share):
                white = share.kind in (PROMPT, AGAIN)
                size = min(8.0, 72 * room / (0.75 * max(len(line) for line in text.split("\n"))))
                if size > 3:
                    axes.text(x, y, text, ha="center", va="center", size=size, color="white" if white else _INK)
            if share.preempted:
                axes.plot([x], [y], marker="X", markersize=8, color=_RED, markeredgecolor="white")
            if share.finished:
                axes.plot([x + 0.53, x + 0.53], [y - 0.4, y + 0.4], color=_INK, linewidth=2.5)
    axes.set_ylim(len(timeline.prompts) - 0.4, -0.6)
    axes.set_yticks(range(len(timeline.prompts)), [f"request {i}" for i in range(len(timeline.prompts))])
    kinds = {share.kind for step in timeline.steps for share in step.shares}
    handles: list[Any] = [Patch(color=_COLOURS[kind], label=name) for kind, name in _KINDS.items() if kind in kinds]
    handles += [_line("X", "preempted")] if any(s.preempted for step in timeline.steps for s in step.shares) else []
    handles += [_line("|", "done")]
    axes.legend(
        handles=handles,
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handlelength=1.2,  # all entries have room beside the heading
        columnspacing=1.2,
        loc="lower right",
        bbox_to_anchor=(1, 1),
    )
    _plain(axes)
    axes.tick_params(bottom=False)
    _heading(axes, "Tokens that each request computes (+ from the cache)")


def _line(marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    colour = _RED if marker == "X" else _INK
    return Line2D([], [], marker=marker, markersize=9, markeredgewidth=2, color=colour, linestyle="", label=label)


def _count(share: Share) -> str:
    """In the box of a step; nothing for the one token of an answer."""
    if share.kind in (ANSWER, WAITING):
        return f"+{share.n_cached}" if share.n_cached else ""
    return f"{share.n_tokens}\n+{share.n_cached}" if share.n_cached else str(share.n_tokens)


def _figure(width: float, height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", parse_math=False)
    return figure


def _map(axes: Axes, values: NDArray[Any], colours: str, label: str, most: float = 1.0) -> None:
    """Rows from below, as layers stand on each other."""
    image = axes.imshow(values, aspect="auto", origin="lower", cmap=colours, vmin=0, vmax=most, interpolation="nearest")
    axes.set_xticks(np.arange(values.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(values.shape[0] + 1) - 0.5, minor=True)
    if values.shape[1] <= 2 * _N_TICKS:
        axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.01, 0, 0.014, 1)), label=label)
    bar.outline.set_visible(False)


def _token_ticks(axes: Axes, positions: range, view: View, names: Name, more: Sequence[str] = ()) -> None:
    """Each token below its column: its position and text."""
    n = len(positions)
    step = -(-n // _N_TICKS)
    shown = [*range(0, n, step), *range(n, n + len(more))]
    labels = [f"{positions[i]}  {_label(names(view.trace.ids[positions[i]]), 10)}" for i in range(0, n, step)]
    turned = len(shown) > 8
    ticks = axes.set_xticks(shown, [*labels, *more], fontsize=8, rotation=55 if turned else 0)
    for tick in ticks:
        label = tick.label1
        label.set_parse_math(False)
        if turned:
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def _layer_ticks(axes: Axes, view: View, with_embedding: bool) -> None:
    names = [*(["embedding"] if with_embedding else []), *map(str, range(view.config.n_layers))]
    step = -(-len(names) // 40)
    axes.set_yticks(range(0, len(names), step), names[::step], fontsize=8)
    axes.set_ylabel("layer")


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, parse_math=False)


def _whole(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _percent(p: float) -> str:
    return f"{p:.0%}" if p >= 0.0995 else f"{p:.1%}" if p >= 0.0005 else "<0.1%"


def _label(text: str, most: int) -> str:
    """As much of a text as has room, boxes for what the font cannot draw."""
    from matplotlib.font_manager import findfont, get_font

    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    drawn = "".join(c if ord(c) in glyphs else "□" for c in text)
    return drawn if len(drawn) <= most else drawn[: most - 1] + "…"
