"""What a person and a script see of a run: a progress bar, log.csv, log.jsonl and loss.png. It knows no torch."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from gristmill.printable import printable

if TYPE_CHECKING:
    from gristmill.train.loop import StepReport

CSV, JSONL, PICTURE = "log.csv", "log.jsonl", "loss.png"
DRAW_EVERY_S = 20.0
COLUMNS = ("step", "tokens", "loss", "val_loss", "lr", "grad_norm", "seconds", "tokens_per_s")


class RunReport:
    """Writes the logs of `folder` and shows `steps` steps on `console`. From `step` on: later rows of an earlier run,
    whose steps are about to be done again, are dropped."""

    def __init__(self, folder: Path, console: Console, steps: int, step: int, log_every: int) -> None:
        self._folder, self._console, self._log_every, self._steps = folder, console, log_every, steps
        self._jsonl = folder / JSONL
        kept = [row for row in read_log(folder) if row["step"] <= step]
        folder.mkdir(parents=True, exist_ok=True)
        self._jsonl.write_text("".join(json.dumps(row) + "\n" for row in kept))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: TaskID = self._bar.add_task("training", total=steps, completed=step)
        self._drawn = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[RunReport]:
        """With the bar; afterwards, however it ended, the logs as a table and a picture."""
        with self._bar:
            try:
                yield self
            finally:
                self._write_table()

    def stepped(self, report: StepReport) -> None:
        self._append(asdict(report))
        self._bar.update(
            self._task,
            completed=report.step,
            description=f"loss {report.loss:.4f} · {report.tokens_per_s:,.0f} tok/s",
        )
        if report.step % self._log_every == 0 and not self._console.is_terminal:
            self._print(
                f"step {report.step} of {self._steps}: loss {report.loss:.4f}, lr {report.lr:.2e},"
                f" {report.tokens_per_s:,.0f} tok/s"
            )

    def evaluated(self, step: int, val_loss: float, is_best: bool) -> None:
        self._append({"step": step, "val_loss": val_loss})
        self._print(
            f"step {step}: [bold]validation loss {val_loss:.4f}[/bold]{' (the best so far)' if is_best else ''}"
        )
        if time.monotonic() - self._drawn > DRAW_EVERY_S:
            self._write_table()

    def sampled(self, step: int, text: str) -> None:
        self._append({"step": step, "sample": text})
        self._print(Text(printable(text), "dim"))

    def _write_table(self) -> None:
        """log.csv, a row a step, and loss.png where matplotlib is there."""
        rows = table(read_log(self._folder))
        with (self._folder / CSV).open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        draw(rows, self._folder / PICTURE)
        self._drawn = time.monotonic()

    def _append(self, row: dict[str, Any]) -> None:
        with self._jsonl.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _print(self, text: str | Text) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of log.jsonl, none where there is no such file; a last line that was cut off is left out."""
    path = folder / JSONL
    rows = list[dict[str, Any]]()
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a step: what was logged of its training and of its evaluation."""
    by_step = dict[int, dict[str, Any]]()
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    return list(by_step.values())


def draw(rows: list[dict[str, Any]], path: Path) -> bool:
    """A picture of both losses. False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for field, label, style in (("loss", "training", "-"), ("val_loss", "validation", "o-")):
        points = [(row["step"], row[field]) for row in rows if row.get(field) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1, markersize=4)
            axes.legend()
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a token")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return True
