"""`gristmill bench serve`: latency and throughput of a server of OpenAI's API under load."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gristmill.bench.serving import picture
from gristmill.bench.serving.http import Address
from gristmill.bench.serving.load import Outcome, Pace, Run, Target, run
from gristmill.bench.serving.models import only_model
from gristmill.bench.serving.prompts import Prompt, Span, sharegpt, synthetic
from gristmill.bench.serving.report import detail, summarize
from gristmill.cli import options
from gristmill.cli.bench_serve_options import Bounds, JsonObject, Percentiles, Rate, SpanType
from gristmill.cli.bench_serve_own import own_server
from gristmill.cli.bench_serve_table import print_summary
from gristmill.cli.open_files import allow_open_files
from gristmill.cli.writable import check_file
from gristmill.formats.write_file import write_whole
from gristmill.printable import printable
from gristmill.serve.giving_way import giving_way
from gristmill.tokenizer.interface import Tokenizer

_EXAMPLES = """
\b
Examples:
  gristmill bench serve -m model.gguf --max-concurrency 16
  gristmill bench serve --base-url http://127.0.0.1:8000 --input-len 32:224 --output-len 32:96 --max-concurrency 16
  gristmill bench serve --base-url http://127.0.0.1:8000 --backend openai-chat --dataset sharegpt.json \\
    --request-rate 2 --goodput ttft:1000,tpot:50 --output-json result.json --plot result.png
"""

_OWN = ("slots", "context", "threads", "kv_type", "quantize", "device")
_WARMUP_SEED = 1 << 32
_WARMUP_TOKENS = 8
_OTHER_FILES = 64


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a run is made of, as the user said it."""

    num_prompts: int
    dataset: Path | None
    input_len: Span
    output_len: Span | None
    seed: int


@click.command(epilog=_EXAMPLES)
@options.option("-m", "--model", help="model file or folder to serve; with --base-url the name of a model there")
@options.option("--base-url", help="a server that runs already: http://host:port")
@options.api_key
@options.option(
    "--backend",
    type=click.Choice(["openai", "openai-chat"]),
    default="openai",
    help="/v1/completions or /v1/chat/completions",
)
@options.option("--endpoint", help="another path at the server than the backend's own")
@options.option("--num-prompts", type=click.IntRange(1, 10_000_000), default=100, help="requests that are measured")
@options.option("--num-warmups", type=click.IntRange(0, 100_000), default=1, help="requests before them, not counted")
@options.option("--dataset", type=click.Path(dir_okay=False, path_type=Path), help="conversations, ShareGPT's JSON")
@options.option("--input-len", type=SpanType(), default="512", help="tokens of random prompts; LOW:HIGH draws evenly")
@options.option("--output-len", type=SpanType(), help="tokens to answer, likewise [default: 128; with --dataset: its]")
@options.option("--ignore-eos/--no-ignore-eos", default=None, help="answer to the full length [default: no --dataset]")
@options.option("--temperature", type=options.FiniteRange(0), default=0.0, help="of every request")
@options.option("--extra-body", type=JsonObject(), default="{}", help="more fields of every request")
@options.option("--stream/--no-stream", default=True, help="without streams there is no time to first token")
@options.option("--request-rate", type=Rate(), default="inf", help="requests a second; inf sends all at once")
@options.option(
    "--burstiness", type=options.FiniteRange(0, 1e6, min_open=True), default=1.0, help="1 is Poisson, less burstier"
)
@options.option("--max-concurrency", type=click.IntRange(1, 100_000), help="requests that are open at once")
@options.option("--request-timeout", type=options.FiniteRange(0, min_open=True), default=3600.0, help="seconds for one")
@options.option("--seed", type=click.IntRange(0), default=0, help="of prompts, lengths and times")
@options.option("--goodput", type=Bounds(), help="count the requests within bounds: ttft:1000,tpot:50,e2el:9000 (ms)")
@options.option("--metric-percentiles", type=Percentiles(), default="50,90,99", help="which are shown")
@options.option(
    "--output-json", type=click.Path(dir_okay=False, path_type=Path), help="all figures, each request's too"
)
@options.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="a picture of the latencies (PNG, SVG)")
@options.option("--slots", type=click.IntRange(1, 4096), default=16, help="of the server that is started for -m")
@options.tokenizer
@options.context
@options.threads
@options.kv_type
@options.quantize
@options.device
@options.as_json
def serve(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    backend: str,
    endpoint: str | None,
    num_prompts: int,
    num_warmups: int,
    dataset: Path | None,
    input_len: Span,
    output_len: Span | None,
    ignore_eos: bool | None,
    temperature: float,
    extra_body: dict[str, Any],
    stream: bool,
    request_rate: float,
    burstiness: float,
    max_concurrency: int | None,
    request_timeout: float,
    seed: int,
    goodput: dict[str, float] | None,
    metric_percentiles: tuple[float, ...],
    output_json: Path | None,
    plot: Path | None,
    slots: int,
    tokenizer: str | None,
    context: int | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    as_json: bool,
) -> None:
    """Measure a server of OpenAI's API: latencies, throughput, goodput. With -m one is started, and ended after.

    Names are those of vLLM's `bench serve`. Random prompts have exactly the lengths asked for where the vocabulary is
    here (-m without --base-url, or --tokenizer), and are common words, about a token each, otherwise; totals are what
    the server counts. ITL is the time between events with text, of which one may carry several tokens. All times
    include the network and, for the first requests, connecting. On a server's own machine this leaves the cores to it.
    """
    if output_json is not None:
        check_file("--output-json", output_json)
    if plot is not None:
        _check_plot(plot)
    if base_url is None and model is None:
        raise click.UsageError("give --base-url of a server, or -m FILE to start one")
    if base_url is not None:
        options.refuse_given(_OWN, "is for a server that is started here, not for --base-url")
        options.check_key(api_key)
    if not stream and goodput is not None and goodput.keys() - {"e2el"}:
        raise click.UsageError("--goodput: of answers that are no streams only e2el is known")
    asked = _Asked(num_prompts, dataset, input_len, output_len, seed)
    vocabulary = _vocabulary(model if base_url is None else None, tokenizer)
    prompts = _prompts(asked, vocabulary, as_ids=backend == "openai")
    warmups = _warmups(num_warmups, asked, prompts, vocabulary, as_ids=backend == "openai")
    pace = Pace(request_rate, burstiness, max_concurrency, seed, request_timeout)
    ends_early = dataset is not None if ignore_eos is None else not ignore_eos
    fields = {"temperature": temperature, **({} if ends_early else {"ignore_eos": True}), **extra_body}
    own = _serve_args(model or "", slots, tokenizer, context, threads, kv_type, quantize, device)
    allow_open_files(min(num_prompts, max_concurrency or num_prompts) + num_warmups + _OTHER_FILES)
    with own_server(own) if base_url is None else nullcontext(base_url) as url:
        name, key = (model, api_key) if base_url is not None else (None, None)
        target = _target(url, name, key, backend == "openai-chat", endpoint, fields, stream)
        _warm_up(target, warmups)
        with _shown(len(prompts)) as done, giving_way():  # where the server is on this machine, it comes first
            measured = asyncio.run(run(target, prompts, pace, done))
    summary = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": backend,
        "base_url": url,
        "model_id": target.body["model"],
        "num_prompts": num_prompts,
        "request_rate": str(request_rate) if request_rate == float("inf") else request_rate,
        "burstiness": burstiness,
        "max_concurrency": max_concurrency,
        "goodput": goodput,
        **summarize(measured, goodput or {}, metric_percentiles, stream),
    }
    _tell(summary, measured, metric_percentiles, output_json, as_json)
    if plot is not None and summary["completed"]:
        picture.draw(plot, measured, f"{summary['model_id']}, {num_prompts} requests, {_pace_name(pace)}")
    if not summary["completed"]:
        sys.exit(1)


def _tell(
    summary: dict[str, Any], measured: Run, percentiles: tuple[float, ...], output_json: Path | None, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps(summary, indent=1))
    else:
        print_summary(summary, percentiles)
    if output_json is not None:  # last, as the disk may be full by now
        write_whole(output_json, (json.dumps({**summary, "requests": detail(measured)}) + "\n").encode())


def _prompts(asked: _Asked, vocabulary: Tokenizer | None, as_ids: bool) -> list[Prompt]:
    if asked.dataset is not None:
        if options.given("input_len"):
            raise click.UsageError("--input-len is for random prompts, not for --dataset")
        return sharegpt(asked.dataset, asked.num_prompts, asked.output_len, asked.seed, vocabulary)
    lengths = asked.output_len or Span(128, 128)
    return synthetic(asked.num_prompts, asked.input_len, lengths, asked.seed, vocabulary, as_ids)


def _warmups(n: int, asked: _Asked, prompts: list[Prompt], vocabulary: Tokenizer | None, as_ids: bool) -> list[Prompt]:
    """Random prompts and short answers, no longer than those that count: a context that holds these holds them."""
    shortest = min(prompt.n_input for prompt in prompts)
    lengths = asked.input_len if asked.dataset is None else Span(shortest, shortest)
    n_output = min(_WARMUP_TOKENS, *(prompt.n_output for prompt in prompts))
    return synthetic(n, lengths, Span(n_output, n_output), asked.seed + _WARMUP_SEED, vocabulary, as_ids)


def _vocabulary(model: str | None, tokenizer: str | None) -> Tokenizer | None:
    """The model's that is to be served, or the one that was named."""
    from gristmill.formats.open import open_checkpoint
    from gristmill.hub.store import locate
    from gristmill.tokenizer.files import load_path
    from gristmill.tokenizer.load import load_tokenizer

    if model is not None:
        return load_tokenizer(open_checkpoint(locate(model)), Path(tokenizer) if tokenizer is not None else None)
    if tokenizer is None:
        return None
    if tokenizer.endswith(".gguf"):
        return load_tokenizer(open_checkpoint(Path(tokenizer)))
    return load_path(Path(tokenizer))


def _target(
    url: str,
    name: str | None,
    api_key: str | None,
    chat: bool,
    endpoint: str | None,
    fields: dict[str, Any],
    stream: bool,
) -> Target:
    address = Address.parse(url)
    root = address.path.removesuffix("/v1")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    path = endpoint or f"{root}/v1/{'chat/completions' if chat else 'completions'}"
    if name is None:
        name = asyncio.run(only_model(address, f"{root}/v1/models", headers))
    return Target(address, path, headers, {"model": name, **fields}, chat, stream)


def _warm_up(target: Target, prompts: list[Prompt]) -> None:
    """ValueError where the server refuses: nothing could be measured."""
    if prompts:
        first = asyncio.run(run(target, prompts, Pace(timeout_s=600.0))).outcomes[0]
        if first.error is not None:
            raise ValueError(
                f"{target.address.name}{target.path}: the first warm-up request failed: {printable(first.error)}"
            )


@contextmanager
def _shown(n: int) -> Iterator[Callable[[Outcome], None]]:
    """How far it is, on stderr: a bar where someone is watching, some lines otherwise."""
    console, n_done, n_failed = Console(stderr=True, highlight=False, emoji=False), 0, 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=2)
    with bar:
        task = bar.add_task("requests", total=n)

        def done(outcome: Outcome) -> None:
            nonlocal n_done, n_failed
            n_done += 1
            n_failed += outcome.error is not None
            text = f"requests, {n_failed} failed" if n_failed else "requests"
            bar.update(task, completed=n_done, description=text)
            if not console.is_terminal and n_done * 4 // n != (n_done - 1) * 4 // n:
                console.print(f"{n_done} of {n} {text}", soft_wrap=True)

        yield done


def _serve_args(
    model: str,
    slots: int,
    tokenizer: str | None,
    context: int | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
) -> list[str]:
    given = {"--tokenizer": tokenizer, "--ctx": context, "--threads": threads}
    args = ["-m", model, "--slots", str(slots), "--kv-type", kv_type, "--quantize", quantize, "--device", device]
    args += ["--max-queue", "100000"]  # what is measured is a queue too
    return args + [part for name, value in given.items() if value is not None for part in (name, str(value))]


def _check_plot(path: Path) -> None:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise click.UsageError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    check_file("--plot", path)
    try:
        picture.check()
    except ImportError as error:
        raise click.ClickException(f"--plot: {error.name} is missing: pip install 'gristmill[bench]'") from None


def _pace_name(pace: Pace) -> str:
    rate = "all at once" if pace.requests_per_s == float("inf") else f"{pace.requests_per_s:g} a second"
    return rate if pace.max_concurrency is None else f"{rate}, {pace.max_concurrency} open"
