"""What `gristmill trace` prints: tables for a person, a report for a script. It computes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gristmill.tokenizer.interface import Tokenizer
from gristmill.tracing.timeline import ANSWER, WAITING, Share, Step, Timeline
from gristmill.tracing.view import Row, View

_WIDE = 160  # columns, where the output is no terminal


class Names:
    """Tokens as they are shown: their text, or their ids where there is no vocabulary."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def text(self, *ids: int) -> str | None:
        """As a script wants it. None without a vocabulary, and beyond its end where the model's head is wider."""
        data = self._bytes(ids)
        return None if data is None else data.decode(errors="replace")

    def __call__(self, *ids: int) -> str:
        """On one line, spaces visible, and what cannot be printed or is half a character as its escape."""
        text = (self._bytes(ids) or b"").decode(errors="backslashreplace")
        shown = "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in text)
        return shown or " ".join(map(str, ids))

    def _bytes(self, ids: tuple[int, ...]) -> bytes | None:
        """Of tokens one after another, which may share a character."""
        known = self._tokenizer
        if known is None or any(i >= known.vocab_size for i in ids):
            return None
        return b"".join(known.token_bytes(i) or known.token_text(i).encode() for i in ids)


def view_report(view: View, names: Names) -> dict[str, Any]:
    trace = view.trace

    def tokens(ids: Iterable[int]) -> list[dict[str, Any]]:
        return [{"id": int(i), "text": names.text(int(i))} for i in ids]

    successor = trace.successor(view.position)
    lens = view.lens
    return {
        "tokens": [{"position": i, **token} for i, token in enumerate(tokens(trace.ids))],
        "prompt_tokens": trace.n_prompt,
        "next": tokens([trace.next_id])[0],
        "position": view.position,
        "embedded_norm": view.embedded_norm,
        "layers": [
            {
                "layer": i,
                "norm": float(norm),
                "attention_norm": float(attention),
                "ffn_norm": float(ffn),
                "experts": [{"expert": expert, "weight": weight} for expert, weight in view.experts[i]],
            }
            for i, (norm, attention, ffn) in enumerate(view.norms)
        ],
        "attention": [
            {
                "layer": row.layer,
                "head": "mean" if row.head is None else row.head,
                "window": view.config.windows[row.layer],
                "weights": row.weights.tolist(),
                "sink": row.sink,
            }
            for row in view.rows
        ],
        "lens": [
            {
                "layer": None if i == 0 else i - 1,
                "top": [
                    {**token, "probability": p} for token, p in zip(tokens(ids), probabilities.tolist(), strict=True)
                ],
                "next": {**tokens([successor])[0], "rank": int(lens.ranks[i]), "probability": float(p_next)},
            }
            for i, (ids, probabilities, p_next) in enumerate(
                zip(lens.top_ids, lens.probabilities, lens.next_probabilities, strict=True)
            )
        ],
    }


def print_view(view: View, names: Names, n_top: int) -> None:
    console = _console()
    _heading(console, "Tokens", f"the prompt's {view.trace.n_prompt}, then what the model chose; > is looked at")
    _show(console, _tokens(view, names))
    looked_at = f"token {view.position} {names(view.trace.ids[view.position])}"
    _heading(console, f"Layers: {looked_at}", "length of its residual stream, and of what each layer added to it")
    _show(console, _layers(view))
    of = f"layer {view.layer}, head by head" if view.layer is not None else "layer by layer"
    _heading(console, f"Attention: {looked_at}, {of}", "tokens it took most from: position, text, share")
    _show(console, _attention(view, names, n_top))
    _heading(console, f"Logit lens: {looked_at}", "what would come next if the model ended there")
    _show(console, _lens(view, names))


def _tokens(view: View, names: Names) -> Table:
    table = _table("", "position", "id", "text")
    trace = view.trace
    for i, token_id in enumerate(trace.ids):
        table.add_row(">" if i == view.position else "", str(i), str(token_id), names(token_id))
    table.add_row("", "next", str(trace.next_id), names(trace.next_id))
    return table


def _layers(view: View) -> Table:
    with_experts = any(view.experts)
    table = _table("layer", "residual", "attention", "feed-forward", *(("experts",) if with_experts else ()))
    table.add_row("embedding", f"{view.embedded_norm:.4g}")
    for i, row in enumerate(view.norms):
        experts = "  ".join(f"{expert} {_share(weight)}" for expert, weight in view.experts[i])
        table.add_row(str(i), *(f"{norm:.4g}" for norm in row), *((experts,) if with_experts else ()))
    return table


def _attention(view: View, names: Names, n_top: int) -> Table:
    with_sinks = any(row.sink is not None for row in view.rows)
    windows = view.config.windows
    by_head = view.layer is not None
    labels = ["head" if by_head else "layer", *(["window"] if any(windows) else []), *(["sink"] if with_sinks else [])]
    table = _table(*labels, *(str(i + 1) for i in range(min(n_top, view.position + 1))))
    for row in view.rows:
        label = ("mean" if row.head is None else str(row.head)) if by_head else str(row.layer)
        cells = [label, *([str(windows[row.layer] or "")] if any(windows) else [])]
        cells += [_share(row.sink) if row.sink is not None else ""] if with_sinks else []
        table.add_row(*cells, *_attended(view, row, names, n_top))
    return table


def _attended(view: View, row: Row, names: Names, n_top: int) -> Iterator[str]:
    for position in np.argsort(-row.weights, kind="stable")[:n_top].tolist():
        if row.weights[position] > 0:
            yield f"{position} {names(view.trace.ids[position])} {_share(row.weights[position])}"


def _lens(view: View, names: Names) -> Table:
    lens, successor = view.lens, view.trace.successor(view.position)
    n_top = lens.top_ids.shape[1]
    table = _table("after", *(str(i + 1) for i in range(n_top)), f"rank of {names(successor)}")
    for i, (ids, probabilities) in enumerate(zip(lens.top_ids.tolist(), lens.probabilities.tolist(), strict=True)):
        cells = (f"{names(token_id)} {_share(p)}" for token_id, p in zip(ids, probabilities, strict=True))
        rank = f"{lens.ranks[i]}, {_share(lens.next_probabilities[i])}"
        table.add_row("embedding" if i == 0 else str(i - 1), *cells, rank)
    return table


def timeline_report(timeline: Timeline, names: Names) -> dict[str, Any]:
    return {
        "requests": [
            {"prompt_ids": list(prompt), "output_ids": list(answer), "text": names.text(*answer)}
            for prompt, answer in zip(timeline.prompts, timeline.answers, strict=True)
        ],
        "blocks": timeline.n_blocks,
        "steps": [
            {
                "step": i,
                "ms": step.ms,
                "tokens": step.n_tokens,
                "blocks_used": step.blocks_used,
                "requests": [asdict(share) for share in step.shares],
            }
            for i, step in enumerate(timeline.steps)
        ],
    }


def print_timeline(timeline: Timeline, names: Names) -> None:
    console = _console()
    _heading(console, "Requests", "tokens of prompt and of answer")
    table = _table("request", "prompt", "answer", "answer's text")
    for i, (prompt, answer) in enumerate(zip(timeline.prompts, timeline.answers, strict=True)):
        table.add_row(str(i), str(len(prompt)), str(len(answer)), names(*answer))
    console.print(table)
    _heading(console, "Steps", "positions that each request computes in a step; steps that go on alike are one row")
    requests = (f"request {i}" for i in range(len(timeline.prompts)))
    table = _table("step", "ms", "tokens", "blocks", *requests)
    for first, steps in _folded(timeline.steps):
        last = first + len(steps) - 1
        step = steps[0]
        cells = [""] * len(timeline.prompts)
        for share, end in zip(step.shares, steps[-1].shares, strict=True):
            cells[share.request] = _cell(share, end)
        each = "" if first == last else " each"
        ms = f"{sum(s.ms for s in steps) / len(steps):.2f}{each}"
        numbers = f"{first}" if first == last else f"{first}-{last}"
        table.add_row(numbers, ms, f"{step.n_tokens}{each}", f"{step.blocks_used}/{timeline.n_blocks}", *cells)
    _show(console, table)


def _folded(steps: tuple[Step, ...]) -> Iterator[tuple[int, list[Step]]]:
    """Steps in which every request goes on as in the step before, together; with the number of the first."""
    number = 0

    def key(numbered: tuple[int, Step]) -> object:
        i, step = numbered
        quiet = all(s.kind in (ANSWER, WAITING) and not (s.preempted or s.n_cached or s.finished) for s in step.shares)
        return (step.blocks_used, [(s.request, s.kind, s.n_tokens) for s in step.shares]) if quiet else i

    for _, group in groupby(enumerate(steps), key):
        alike = [step for _, step in group]
        yield number, alike
        number += len(alike)


def _cell(share: Share, end: Share) -> str:
    if share.kind == WAITING:
        return "preempted" if share.preempted else "waits"
    first, last = share.first, end.first + end.n_tokens - 1
    computed = f"{share.kind} {first}" if first == last else f"{share.kind} {first}-{last}"
    notes = [f"cached 0-{share.n_cached - 1}"] if share.n_cached else []
    return ", ".join([*notes, computed, *(["done"] if end.finished else [])])


def _share(p: float) -> str:
    return f"{p:.0%}" if p >= 0.0995 else f"{p:.1%}" if p >= 0.0005 else "<0.1%"


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)


def _heading(console: Console, title: str, note: str) -> None:
    console.print(Text.assemble("\n", (title, "bold"), "  ", (note, "dim")))


def _show(console: Console, table: Table) -> None:
    """No word is broken: where they have no room side by side, the terminal breaks the lines."""
    for column in table.columns:
        words = (word for cell in (column.header, *column.cells) for word in str(cell).split())
        column.min_width = max(map(cell_len, words), default=None)
    console.print(table, crop=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        is_number = column in ("position", "id", "residual", "attention")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
        if i == 0:
            table.columns[0].no_wrap = True
    return table
