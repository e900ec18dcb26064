"""What the comparisons with other engines share: processes, medians of rounds taken in turns, one table.

Standard library only: a child's peak memory starts at that of the process that started it, so this one must stay small.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Measure = Callable[[], Mapping[str, float]]
"""One round: what is measured -> its value."""

SHARE = ", share of the limit"
"""What follows a measure's name where the value is how much of memory's or the multiplier's limit it takes."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished process: what it printed, how long it took, the most memory that it held."""

    stdout: str
    stderr: str
    wall_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """Something to compare: one round of each engine, which must measure the same things."""

    name: str
    theirs: Measure
    ours: Measure
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one measure; `better` is how many times better gristmill is, whichever direction is good.

    share  of the machine's limit that gristmill takes, memory's or the multiplier's, whichever is nearer; None: unknown
    """

    measure: str
    theirs: float
    gristmill: float
    better: float
    share: float | None = None


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> Run:
    """RuntimeError with the end of its stderr when the command fails.

    Python may keep what it compiles, as it does where a program is installed: compiling all sources takes 50 ms.
    """
    given = {**os.environ, **(env or {})}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=given)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, process.returncode = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))  # a single token may be half a character
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)[:200]} ended with {process.returncode}:\n{texts[1][-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(texts[0], texts[1], wall_s, usage.ru_maxrss * unit)


def bench_model(gristmill: Sequence[str], *args: object) -> list[dict[str, Any]]:
    """Rows of one `gristmill bench model --json`."""
    rows: list[dict[str, Any]] = json.loads(run([*gristmill, "bench", "model", *map(str, args), "--json"]).stdout)
    return rows


def speed(label: str, row: Mapping[str, float]) -> dict[str, float]:
    """A row of `bench model` as what `compare` takes."""
    return {label: row["tokens_per_s"], label + SHARE: max(row["share_of_bandwidth"], row["share_of_peak"])}


def chosen(parser: argparse.ArgumentParser, given: str, known: Sequence[str]) -> list[str]:
    """What --parts names, with commas between, `all` being all. One that is not known ends the program."""
    names = list(known) if given == "all" else given.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--parts: {unknown[0]!r} is not one of {', '.join(known)}, all")
    return names


def compare(parts: Iterable[Part], rounds: int) -> list[Row]:
    """A B A B ..., then medians, one part after the other. ValueError without any round."""
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, not {rounds}")
    rows = []
    for part in parts:
        theirs, ours = [], []
        for i in range(rounds):
            print(f"{part.name}: round {i + 1} of {rounds}", file=sys.stderr, flush=True)
            theirs.append(part.theirs())
            ours.append(part.ours())
        for measure in theirs[0]:
            a, b = (statistics.median(each[measure] for each in found) for found in (theirs, ours))
            shares = [each[measure + SHARE] for each in ours if measure + SHARE in each]
            share = statistics.median(shares) if shares else None
            rows.append(Row(measure, a, b, b / a if part.higher_is_better else a / b, share))
    return rows


def as_json(rows: Sequence[Row], their_name: str, settings: Mapping[str, object]) -> str:
    plain = [
        {"measure": r.measure, their_name: r.theirs, "gristmill": r.gristmill, "better": r.better, "share": r.share}
        for r in rows
    ]
    return json.dumps({**settings, "rows": plain}, indent=2)


def table(rows: Sequence[Row], their_name: str) -> str:
    width = max(len(row.measure) for row in rows) + 2
    shares = f"{'of the limit':>14}{'at all of it':>14}" if any(row.share is not None for row in rows) else ""
    lines = [f"{'':{width}}{their_name:>12}{'gristmill':>12}{'times better':>14}{shares}"]
    for r in rows:
        line = f"{r.measure:{width}}{r.theirs:12.2f}{r.gristmill:12.2f}{r.better:13.2f}x"
        lines.append(line if r.share is None else f"{line}{r.share:14.0%}{r.better / r.share:13.2f}x")
    return "\n".join(lines)


def own_command() -> str:
    """gristmill of this Python, as a shell would be given it."""
    return f"{shlex.quote(sys.executable)} -m gristmill"
