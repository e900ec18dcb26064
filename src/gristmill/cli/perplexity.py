"""`gristmill perplexity`: how well a model predicts a text, alone or beside another model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gristmill.cli import options
from gristmill.cli.loading import load
from gristmill.cli.streams import decoded_input, write_json
from gristmill.cli.writable import check_file
from gristmill.llama_logprob_file import open_base
from gristmill.llm import LLM
from gristmill.logprob_file import LogprobFile, file_size, refuse_existing, save
from gristmill.ops.cpu import default_threads
from gristmill.perplexity import (
    Divergence,
    Estimate,
    Windows,
    cut,
    diverge,
    exponential,
    join,
    mean,
    predict,
    score,
)

_WINDOW = 512

_EXAMPLES = """
\b
Examples:
  gristmill perplexity -m model.gguf -f wiki.test.raw
  gristmill perplexity -m model.gguf -f book.txt --ctx 2048 --stride 512 --json
  gristmill perplexity -m model-f16.gguf -f book.txt --chunks 20 --save-base book.logprobs
  gristmill perplexity -m model-q4.gguf -f book.txt --kl-base book.logprobs
"""

Show = Callable[[NDArray[np.float64]], object]
"""Is told the NLL of a window's tokens when they are known."""


@click.command(epilog=_EXAMPLES)
@options.model
@options.option("-f", "--file", type=click.File("rb"), default="-", help="text, UTF-8; - is stdin")
@options.option("--ctx", "context", type=int, help=f"tokens of a window [default: {_WINDOW}, or all the model takes]")
@options.option(
    "--stride",
    type=int,
    help="begin a window so many tokens after the last, and score as many at its end"
    " [default: windows follow each other and their second half is scored]",
)
@options.option("--chunks", type=click.IntRange(1), help="windows, from the start of the text [default: all]")
@options.option("--save-base", help="keep all log-probabilities in this new file, for --kl-base")
@options.option(
    "--save-type", type=click.Choice(["f16", "f32"]), default="f16", help="what --save-base keeps numbers in"
)
@options.option("--kl-base", help="compare with what this file, also llama-perplexity's, has of the same text")
@options.tokenizer
@options.threads
@options.kv_type
@options.quantize
@options.device
@options.gpu_memory_fraction
@options.as_json
def perplexity(
    model: str,
    file: BinaryIO,
    context: int | None,
    stride: int | None,
    chunks: int | None,
    save_base: str | None,
    save_type: str,
    kl_base: str | None,
    tokenizer: str | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    gpu_memory_fraction: float,
    as_json: bool,
) -> None:
    """Measure how well a model predicts a text.

    The text is cut into windows, each given to the model alone, beginning with BOS where the model wants one. Reported
    are the negative log-likelihood of the scored tokens (NLL, nats a token) and perplexity, its exponential, with
    standard errors. The figures can be compared with those of llama-perplexity.

    With --save-base and --kl-base a model is compared with another of the same vocabulary: KL(base || model) in nats,
    how often both find the same token likeliest, and the ratio of perplexities. The file takes two bytes for each
    scored token and each token of the vocabulary; windows are then those of the file. A file that llama-perplexity
    has written with --kl-divergence-base will do as well.
    """
    if save_base is not None and kl_base is not None:
        raise click.UsageError("give --save-base or --kl-base, not both")
    if save_base is not None:
        refuse_existing(Path(save_base))
        check_file("--save-base", Path(save_base))
    text = decoded_input(file)
    with ExitStack() as stack:
        base = stack.enter_context(open_base(Path(kl_base))) if kl_base is not None else None
        if base is not None:
            context, stride, chunks = _sizes_of(base, context, stride, chunks)
        llm = load(
            model, tokenizer, threads, context, kv_type, quantize, device, gpu_memory_fraction=gpu_memory_fraction
        )
        stack.enter_context(llm)
        bos_id = llm.tokenizer.bos_id if llm.tokenizer.adds_bos else None
        windows = cut(llm.tokenizer.encode(text), bos_id, context or min(_WINDOW, llm.max_context), stride, chunks)
        show = stack.enter_context(_progress(len(windows.tokens)))
        pool = stack.enter_context(ThreadPoolExecutor(threads or default_threads()))
        started = time.perf_counter()
        if base is not None:
            run = _compare(llm, windows, base, pool, show)
        elif save_base is not None:
            run = _save(llm, windows, Path(save_base), save_type, pool, show)
        else:
            run = _Run(_collect(score(llm, windows), show))
        report = run.report(windows, time.perf_counter() - started)
    if as_json:
        write_json(report)
    else:
        _print(report)


@dataclass(frozen=True, slots=True)
class _Run:
    """What was measured: float64 [n] nats a token, and what lies beside it in the base."""

    nll: NDArray[np.float64]
    divergence: Divergence | None = None

    def report(self, windows: Windows, seconds: float) -> dict[str, Any]:
        nll = mean(self.nll)
        report: dict[str, Any] = {
            **_named("perplexity", exponential(nll)),
            **_named("nll", nll),
            "tokens": len(self.nll),
            "windows": len(windows.tokens),
            "ctx": windows.context,
            "stride": windows.stride,
            "seconds": seconds,
            "tokens_per_s": windows.tokens.size / seconds,
        }
        if self.divergence is not None:
            report["base"] = _beside(self.divergence)
        return report


def _beside(found: Divergence) -> dict[str, Any]:
    quantiles = {"kl_median": 0.5, "kl_99": 0.99, "kl_999": 0.999, "kl_max": 1.0}
    return {
        **_named("perplexity", exponential(mean(found.base_nll))),
        **_named("perplexity_ratio", exponential(mean(found.nll - found.base_nll))),
        **_named("kl", mean(found.kl)),
        **{name: float(np.quantile(found.kl, share)) for name, share in quantiles.items()},
        **_named("same_top", mean(found.same_top)),
    }


def _named(name: str, of: Estimate) -> dict[str, float]:
    return {name: of.value, f"{name}_error": of.error}


def _compare(llm: LLM, windows: Windows, base: LogprobFile, pool: ThreadPoolExecutor, show: Show) -> _Run:
    base.check(llm.config.vocab_size, windows)
    parts = list[Divergence]()
    for part in diverge(llm, windows, base.distributions(), pool):
        parts.append(part)
        show(part.nll)
    whole = join(parts)
    return _Run(whole.nll, whole)


def _save(llm: LLM, windows: Windows, path: Path, kind: str, pool: ThreadPoolExecutor, show: Show) -> _Run:
    dtype: type[np.floating] = np.float16 if kind == "f16" else np.float32
    size = file_size(llm.config.vocab_size, windows, np.dtype(dtype).itemsize)
    click.echo(f"{path} takes {size / 2**20:,.1f} MiB for {len(windows.tokens)} windows", err=True)
    saved = save(path, llm.config.vocab_size, windows, dtype, predict(llm, windows, dtype, pool))
    return _Run(_collect((each.nll for each in saved), show))


def _collect(found: Iterator[NDArray[np.float64]], show: Show) -> NDArray[np.float64]:
    parts = list[NDArray[np.float64]]()
    for nll in found:
        parts.append(nll)
        show(nll)
    return np.concatenate(parts)


def _sizes_of(
    base: LogprobFile, context: int | None, stride: int | None, chunks: int | None
) -> tuple[int, int | None, int]:
    """Of the base's windows, which the options may repeat; there may be fewer --chunks."""
    windows = base.windows
    overlap = None if windows.stride == windows.context else windows.stride
    for name, given, kept in (("ctx", context, windows.context), ("stride", stride, overlap)):
        if given is not None and given != kept:
            how = f"without --{name}" if kept is None else f"with --{name} {kept}, not {given}"
            raise click.UsageError(f"{base.path} was saved {how}; leave it out")
    n = len(windows.tokens)
    if chunks is not None and chunks > n:
        raise click.UsageError(f"{base.path} was saved with {n} windows, fewer than --chunks {chunks}")
    return windows.context, overlap, chunks or n


@contextmanager
def _progress(n_windows: int) -> Iterator[Show]:
    """A bar with the perplexity so far, where someone is watching."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("perplexity", total=n_windows)
        found = list[NDArray[np.float64]]()

        def show(nll: NDArray[np.float64]) -> None:
            found.append(nll)
            so_far = exponential(mean(np.concatenate(found)))
            bar.update(task, advance=1, description=f"perplexity {so_far.value:.4f}")

        yield show


def _print(report: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, key in (("perplexity", "perplexity"), ("NLL, nats a token", "nll")):
        table.add_row(name, f"{_figure(report[key])} ± {_figure(report[f'{key}_error'])}")
    base = report.get("base")
    if base is not None:
        of_base = f"{_figure(base['perplexity'])} ± {_figure(base['perplexity_error'])}"
        table.add_row("perplexity of the base", of_base)
        table.add_row("ratio to the base's", f"{base['perplexity_ratio']:.6f} ± {base['perplexity_ratio_error']:.6f}")
        table.add_row("mean KL(base || model)", f"{base['kl']:.6f} ± {base['kl_error']:.6f}")
        for name, key in (("median", "kl_median"), ("99 %", "kl_99"), ("99.9 %", "kl_999"), ("greatest", "kl_max")):
            table.add_row(f"  {name}", f"{base[key]:.6f}")
        table.add_row("same likeliest token", f"{base['same_top']:.3%} ± {base['same_top_error']:.3%}")
    console = Console(highlight=False)
    console.print(table)
    step = "" if report["stride"] == report["ctx"] else f", {report['stride']} apart"
    console.print(
        f"{report['tokens']} tokens scored in {report['windows']} windows of {report['ctx']}{step};"
        f" {report['tokens_per_s']:.1f} tok/s",
        soft_wrap=True,
    )


def _figure(value: float) -> str:
    return f"{value:.4f}" if value < 1e6 else f"{value:.5g}"
