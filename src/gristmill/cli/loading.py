"""Loads a model for a command, with a progress bar where someone is watching."""

from __future__ import annotations

import logging
import sys

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from gristmill.llm import LLM


def load(model: str, tokenizer: str | None, threads: int | None, context: int | None, kv_type: str, device: str) -> LLM:
    """The model, ready. What the user should know (weights that were converted, say) goes to stderr."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    console = Console(stderr=True)
    columns = (TextColumn("loading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("loading", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return LLM(
            model,
            device=device,
            threads=threads,
            max_context=context,
            kv_type=kv_type,
            tokenizer=tokenizer,
            progress=progress,
        )
