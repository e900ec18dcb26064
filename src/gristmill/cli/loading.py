"""Loads a model for a command, with a progress bar where someone is watching."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.cli.options import Loading
from gristmill.formats.qtypes import quantize_type
from gristmill.hub.store import locate
from gristmill.printable import printable

if TYPE_CHECKING:  # imported when needed: it takes 0.1 s
    from gristmill.llm import LLM
    from gristmill.models.build import Progress as Report
    from gristmill.models.decoder import Decoder
    from gristmill.models.sampling import Recommended
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
    gpu_memory_fraction: float = 0.9,
    lazy: bool = False,
) -> LLM:
    """The model, for so many requests at once. What the user should know (converted weights, say) goes to stderr."""
    with loading_bars() as bars, _uncollected():
        from gristmill.llm import LLM

        return LLM(
            model,
            device=device,
            gpu_memory_fraction=gpu_memory_fraction,
            threads=threads,
            max_context=context,
            max_sequences=max_sequences,
            kv_type=kv_type,
            quantize=quantize,
            tokenizer=tokenizer,
            chat_template=chat_template,
            lazy=lazy,
            speculate=speculate,
            draft=draft,
            progress=bars.loading,
            warming=bars.warming,
        )


def load_as(model: str, how: Loading) -> LLM:
    """For one request at a time, the first of them soon, as the command line says."""
    return load(
        model,
        how.tokenizer,
        how.threads,
        how.context,
        how.kv_type,
        how.quantize,
        how.device,
        how.chat_template,
        how.speculate,
        how.draft,
        gpu_memory_fraction=how.gpu_memory_fraction,
        lazy=True,
    )


def recommended(how: Loading, llm: LLM) -> Recommended:
    """How the model's makers would have tokens chosen, where the command line asks for it."""
    from gristmill.models.sampling import Recommended

    return llm.recommended() if how.generation_config == "auto" else Recommended()


def load_decoder(model: str, ops: Ops, quantize: str) -> Decoder:
    """The forward pass alone, without a vocabulary or a cache."""
    from gristmill.formats.open import open_checkpoint
    from gristmill.models.build import build

    target = quantize_type(quantize)
    with progress_bar() as progress:
        return build(open_checkpoint(locate(model)), ops, progress, target)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that is made here is garbage before it is done: the collector need not look through it meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Lines(logging.Formatter):
    """What a log says of a file or a request cannot steer the terminal, nor pass for a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = printable(super().format(record)).splitlines() or [""]
        return "\n".join([first, *(f"  | {line}" for line in rest)])


def log_to_stderr() -> None:
    """Warnings and errors, each from the beginning of a line; those that follow it are set in."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(_Lines("%(message)s"))


@dataclass(frozen=True, slots=True)
class Bars:
    """Of bytes loaded and, on a card, of kernels compiled before the first request. None where nobody is watching."""

    loading: Report | None
    warming: Report | None


@contextmanager
def loading_bars() -> Iterator[Bars]:
    """One bar at a time: the second takes the place of the first."""
    with ExitStack() as shown:
        loading = shown.enter_context(progress_bar())
        second: list[Report | None] = []

        def warming(done: int, total: int) -> None:
            if not second:
                shown.close()
                second.append(shown.enter_context(progress_bar("compiling kernels", of_bytes=False)))
            if second[0] is not None:
                second[0](done, total)

        yield Bars(loading, None if loading is None else warming)


@contextmanager
def progress_bar(doing: str = "loading", of_bytes: bool = True) -> Iterator[Report | None]:
    """Moves a bar on a terminal; None where stderr is none. Warnings go there too."""
    log_to_stderr()
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    amounts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn(doing), BarColumn(), *amounts, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
