"""The figures of `gristmill bench serve` as tables for a person."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from gristmill.bench.serving.report import METRICS, TITLES
from gristmill.cli.bench_options import table_console
from gristmill.printable import printable

_BUSY = 0.85


def print_summary(summary: dict[str, Any], percentiles: tuple[float, ...]) -> None:
    console = table_console()
    console.print(_totals(summary))
    if summary["completed"]:
        console.print(_latencies(summary, percentiles))
    for error, count in summary["errors"].items():
        console.print(f"failed {count} times: {escape(printable(error))}", soft_wrap=True)
    if summary["completed"] and not summary["tokens_counted_by_server"]:
        console.print("the server does not count tokens: an answer's are its events with text", soft_wrap=True)
    if summary["client_cpu_share"] > _BUSY:
        share = f"{summary['client_cpu_share']:.0%}"
        console.print(
            f"the client itself was busy {share} of the time: a slower client measures itself", soft_wrap=True
        )


def _totals(summary: dict[str, Any]) -> Table:
    table = Table("", box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    rows = [
        ("requests answered", f"{summary['completed']}"),
        ("requests failed", f"{summary['failed']}"),
        ("open at once, most", f"{summary['max_concurrent_requests']}"),
        ("duration, s", f"{summary['duration']:.2f}"),
        ("tokens in, out", f"{summary['total_input_tokens']}, {summary['total_output_tokens']}"),
        ("requests/s", f"{summary['request_throughput']:.2f}"),
        ("tokens/s in", f"{summary['input_throughput']:.1f}"),
        ("tokens/s out", f"{summary['output_throughput']:.1f}"),
        ("tokens/s in all", f"{summary['total_token_throughput']:.1f}"),
    ]
    if summary["request_goodput"] is not None:
        bounds = ", ".join(f"{metric} {bound:g} ms" for metric, bound in summary["goodput"].items())
        rows.insert(6, (f"requests/s within {bounds}", f"{summary['request_goodput']:.2f}"))
    for row in rows:
        table.add_row(*row)
    return table


def _latencies(summary: dict[str, Any], percentiles: tuple[float, ...]) -> Table:
    table = Table("milliseconds", box=None, pad_edge=False)
    heads = {"mean": "mean", **{f"p{p:g}": f"p{p:g}" for p in percentiles}}
    for head in heads.values():
        table.add_column(head, justify="right", no_wrap=True)
    for metric in METRICS:
        found = [summary.get(f"{head}_{metric}_ms") for head in heads]
        if any(value is not None for value in found):
            table.add_row(TITLES[metric], *("" if value is None else f"{value:.2f}" for value in found))
    return table
