"""`gristmill inspect`: what a model file holds and how much memory it will want. It never runs the model."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gristmill.cli import options
from gristmill.cli.streams import one_line, write_json
from gristmill.formats.checkpoint import Checkpoint, ModelFormatError
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType, quantize_type
from gristmill.hub.store import locate
from gristmill.kv.cache import plan
from gristmill.llm import pick_context
from gristmill.models.build import bytes_as_loaded, check, scale_bytes, stored_bytes
from gristmill.ops.cpu import N_EXACT, CpuOps
from gristmill.types import ModelConfig

_SHOWN = 200
"""Characters of a value, for a person."""
_WIDE = 1000
"""Columns where the output is no terminal: a line for each tensor, whatever its name."""

_EXAMPLES = """
\b
Examples:
  gristmill inspect model.gguf
  gristmill inspect model.gguf --ctx 32768 --slots 4
  gristmill inspect model.safetensors --quantize int8
  gristmill inspect model.gguf --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("named", metavar="[MODEL]", required=False)
@options.model
@options.context
@options.option("--slots", type=click.IntRange(1, 65536), default=1, help="sequences held at once")
@options.kv_type
@options.quantize
@options.option("--tensors/--no-tensors", default=True, help="list every tensor")
@options.as_json
def inspect(
    named: str | None,
    model: str,
    context: int | None,
    slots: int,
    kv_type: str,
    quantize: str,
    tensors: bool,
    as_json: bool,
) -> None:
    """Show a model's metadata, tensors, types, and the memory it needs."""
    if named is not None:
        options.refuse_given(("model",), "and MODEL both name a model: give one of the two")
    target = quantize_type(quantize)
    checkpoint = open_checkpoint(locate(named or model))
    report = describe(checkpoint, context, slots, kv_type, target)
    if as_json:
        write_json(report)
    else:
        _print(report, tensors)


def describe(
    checkpoint: Checkpoint, context: int | None, slots: int, kv_type: str, target: QType | None
) -> dict[str, Any]:
    """What a model is and needs, as `--json` prints it. problem: why it cannot be run; None where it can."""
    rows, bytes_by_type, n_parameters = [], Counter[str](), 0
    for name in checkpoint.names():
        weight = checkpoint.get(name)
        n_bytes = stored_bytes(weight) + scale_bytes(weight)
        rows.append({"name": name, "type": weight.qtype.label, "shape": list(weight.shape), "bytes": n_bytes})
        bytes_by_type[weight.qtype.label] += n_bytes
        n_parameters += weight.n_elements
    report: dict[str, Any] = {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "parameters": n_parameters,
        "bytes_by_type": dict(bytes_by_type),
        "metadata": {key: _plain(value) for key, value in checkpoint.metadata.items()},
        "tensors": rows,
    }
    if not rows:
        return report
    try:
        config = check(checkpoint)
    except ModelFormatError as error:
        report["problem"] = one_line(error)
    else:
        report["problem"] = None
        report["config"] = _config(config)
        loaded = bytes_as_loaded(checkpoint, config, target, N_EXACT)
        report["memory"] = _memory(config, sum(loaded.values()), pick_context(config, context), slots, kv_type)
        report["memory"]["bytes_by_type"] = loaded
    return report


def _memory(config: ModelConfig, weights: int, context: int, slots: int, kv_type: str) -> dict[str, Any]:
    ops = CpuOps(1)
    kv = plan(ops, config, kv_type, context, slots, ops.step_tokens, sys.maxsize).n_bytes
    return {"context": context, "slots": slots, "weights_bytes": weights, "kv_bytes": kv, "total_bytes": weights + kv}


def _config(config: ModelConfig) -> dict[str, Any]:
    fields = {name: getattr(config, name) for name in config.__slots__ if name not in ("rope", "windows", "moe")}
    fields["windows"] = sorted(set(config.windows))
    if config.moe:
        fields["experts"] = config.moe.n_experts
        fields["active_experts"] = config.moe.n_active
    return fields


def _plain(value: Any) -> Any:
    """Metadata for a person: long arrays as their length and first items."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str | int | float | bool | dict) or value is None:
        return value
    items = [_plain(item) for item in value[:8]]
    return items if len(value) <= 8 else {"length": len(value), "first": items}


def _print(report: dict[str, Any], with_tensors: bool) -> None:
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False, width=width)
    rest = f"  {report['format']}, {_count(report['parameters'])} parameters"
    console.print(Text.assemble((_safe(report["path"]), "bold"), rest))
    table = Table(Column("metadata", overflow="fold"), Column(overflow="fold"), box=None, pad_edge=False)
    for key, value in report["metadata"].items():
        table.add_row(_safe(key), _safe(value))
    console.print(table)
    if with_tensors and report["tensors"]:
        heads = (Column(f"\n{head}", overflow="fold") for head in ("tensor", "type", "shape", "bytes"))
        table = Table(*heads, box=None, pad_edge=False)
        for row in report["tensors"]:
            table.add_row(_safe(row["name"]), row["type"], " x ".join(map(str, row["shape"])), _bytes(row["bytes"]))
        console.print(table)
    if report.get("problem") is not None:
        console.print(f"\ncannot be run: {report['problem']}")
    if "memory" in report:
        m = report["memory"]
        by_type = ", ".join(f"{label} {_bytes(n)}" for label, n in m["bytes_by_type"].items())
        console.print(f"\nweights  {_bytes(m['weights_bytes'])}  ({by_type})")
        console.print(f"cache    {_bytes(m['kv_bytes'])}  ({m['context']} tokens, {m['slots']} at once)")
        console.print(f"together {_bytes(m['total_bytes'])}")


def _safe(value: Any) -> str:
    """One line, control characters escaped: a file's text must not draw on the terminal."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:_SHOWN])
    return shown + "…" * (len(text) > _SHOWN)


def _bytes(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.1f} {unit}" if unit != "B" else f"{n} B"
        n = n / 1024  # type: ignore[assignment]
    return f"{n:.2f} GiB"


def _count(n: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return str(n)
