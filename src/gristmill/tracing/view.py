"""One position of a trace, put together for whoever shows it. It knows no text and no colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gristmill.tracing.forward import F64, Lens, Trace, Tracer, norms
from gristmill.tracing.recorder import F32
from gristmill.types import ModelConfig

Experts = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """How a head looked back, or all heads of a layer on average (None).

    weights  [position + 1]; with the sink's (None where there are no sinks) they add up to 1
    """

    layer: int
    head: int | None
    weights: F32
    sink: float | None


@dataclass(frozen=True, slots=True)
class View:
    """layer: the only one that rows are of. embedded_norm, norms [L, 3]: see forward.norms.

    experts  of each layer, none where there are no experts
    """

    trace: Trace
    config: ModelConfig
    position: int
    layer: int | None
    embedded_norm: float
    norms: F64
    rows: tuple[Row, ...]
    lens: Lens
    experts: tuple[Experts, ...]


def view(tracer: Tracer, trace: Trace, position: int, layer: int | None, head: int | str | None, n_top: int) -> View:
    """What `position` (from 0) did.

    layer  attention of this one; None: of all
    head   of this one; "mean": all heads on average; None: that, and of one layer each head too
    Raises ValueError for a layer or a head that the model does not have.
    """
    c = tracer.config
    if layer is not None and not 0 <= layer < c.n_layers:
        raise ValueError(f"layer {layer} is not one of the model's {c.n_layers}: give 0 to {c.n_layers - 1}, or all")
    if isinstance(head, int) and not 0 <= head < c.n_heads:
        raise ValueError(f"head {head} is not one of the model's {c.n_heads}: give 0 to {c.n_heads - 1}, or mean")
    heads = [head if isinstance(head, int) else None]
    if layer is not None and head is None:
        heads += range(c.n_heads)
    rows = list[Row]()
    for i in range(c.n_layers) if layer is None else (layer,):
        found = tracer.attention(trace, i, position)
        for h in heads:
            chosen = slice(None) if h is None else slice(h, h + 1)
            sink = None if found.sinks is None else float(found.sinks[chosen].mean())
            rows.append(Row(i, h, found.weights[chosen].mean(axis=0), sink))
    return View(
        trace,
        c,
        position,
        layer,
        float(np.linalg.norm(trace.record.embedded[position])),
        norms(trace, position),
        tuple(rows),
        tracer.lens(trace, position, n_top),
        tuple(tracer.experts(trace, i, position) for i in range(c.n_layers)),
    )


def lens_before(tracer: Tracer, trace: Trace, position: int, most: int) -> list[Lens]:
    """The likeliest token after each layer at `position` and up to most - 1 positions before it, in order."""
    return [tracer.lens(trace, i, 1) for i in range(max(0, position + 1 - most), position + 1)]
