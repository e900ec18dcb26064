"""Loads a model for a command, with a progress bar where someone is watching."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gristmill.formats.open import open_checkpoint
from gristmill.formats.quantize import quantize_type
from gristmill.llm import LLM
from gristmill.models.build import Progress as Report
from gristmill.models.build import build
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import Ops


def load(
    model: str,
    tokenizer: str | None,
    threads: int | None,
    context: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    chat_template: str | None = None,
    speculate: int = 0,
    draft: str | None = None,
    max_sequences: int = 1,
) -> LLM:
    """The model, for so many requests at once. What the user should know (converted weights, say) goes to stderr."""
    with _progress() as progress:
        return LLM(
            model,
            device=device,
            threads=threads,
            max_context=context,
            max_sequences=max_sequences,
            kv_type=kv_type,
            quantize=quantize,
            tokenizer=tokenizer,
            chat_template=chat_template,
            speculate=speculate,
            draft=draft,
            progress=progress,
        )


def load_decoder(model: str, ops: Ops, quantize: str) -> Decoder:
    """The forward pass alone, without a vocabulary or a cache."""
    target = quantize_type(quantize)
    with _progress() as progress:
        return build(open_checkpoint(Path(model)), ops, progress, target)


@contextmanager
def _progress() -> Iterator[Report | None]:
    """Moves a bar on a terminal; None where stderr is none."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn("loading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("loading", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
