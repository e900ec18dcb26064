"""`gristmill trace`: what a model computes for a text, or what the scheduler does with several, for whoever learns."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gristmill.cli import options
from gristmill.cli.loading import load_decoder
from gristmill.cli.streams import read_text, write_json
from gristmill.cli.trace_tables import Names, print_timeline, print_view, timeline_report, view_report
from gristmill.cli.writable import check_file
from gristmill.formats.open import open_checkpoint
from gristmill.hub.store import locate
from gristmill.kv.cache import KvPlan, block_bytes, check_type, plan, windows_of
from gristmill.llm import pick_backend, spare_memory
from gristmill.models.decoder import Decoder
from gristmill.ops.interface import STEP_TOKENS, Ops
from gristmill.tokenizer.interface import MissingTokenizerError, Tokenizer
from gristmill.tokenizer.load import load_tokenizer
from gristmill.tracing import picture as pictures
from gristmill.tracing import timeline as timelines
from gristmill.tracing.forward import Tracer
from gristmill.tracing.view import lens_before, view

_ANSWER = 16

_EPILOG = """
\b
How to read it:
  A token travels through the layers as one vector, the residual stream: each layer
  reads it, and adds what attention and the feed-forward network make of it (Elhage
  et al., "A Mathematical Framework for Transformer Circuits", 2021).
  Norms are the lengths of these vectors. The stream grows as layers add to it, and
  every reader normalizes it first: so what counts is how long a contribution is
  beside the stream. A long one decides, a short one refines. The first token's
  stream is often far longer than the others': heads with nothing to look at look
  there (Xiao et al., arXiv:2309.17453; Sun et al., arXiv:2402.17762).
  Attention's weights are the shares of the earlier tokens in what a head takes for
  this token, and add up to 1. Where the model has sinks (gpt-oss), one of them
  takes the share that no token gets. A layer with a window sees no further back.
  The logit lens reads the stream after each layer as if it were the last one: the
  final norm, then the head (nostalgebraist, "interpreting GPT: the logit lens",
  2020, lesswrong.com/posts/AcKRB8wDpdaN6v6ru). Its last row is the model's own
  prediction, the rows above show how that comes about.
  In a timeline each step computes one batch: the next tokens of every request that
  runs, all of a prompt at once if the step has room, then one for each new token.

\b
Examples:
  gristmill trace -m model.gguf -p "Once upon a time"
  gristmill trace -m model.gguf -p "The capital of France is" --layer 3 -o trace.png
  gristmill trace -m model.gguf -p "One, two, three," -n 8 --position 5 --json
  gristmill trace -m model.gguf --timeline -p "First" -p "Second" --blocks 4 -o steps.png
"""


class _NumberOr(options.ParamType):
    """A number, or the word for its absence."""

    def __init__(self, word: str) -> None:
        self.name = f"{word}|number"
        self._word = word

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{self._word}|N]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == self._word or isinstance(value, int):
            found: int | str = value
            return found
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {self._word!r}", param, ctx)


@click.command(epilog=_EPILOG)
@options.model
@options.option("-p", "--prompt", "prompts", multiple=True, help="text [default: stdin, but for its last line end]")
@options.option("--prompt-ids", multiple=True, help="token ids instead of text: 1,2,3")
@options.option(
    "-n",
    "--max-tokens",
    type=click.IntRange(0),
    help=f"tokens to generate, always the likeliest [default: 0, of a timeline {_ANSWER}]",
)
@options.option("--position", type=int, default=-1, help="the token to look at, from 0; -1 is the last")
@options.option(
    "--layer", type=_NumberOr("all"), default="all", help="attention in every layer, or head by head in layer N, from 0"
)
@options.option(
    "--head", type=_NumberOr("mean"), help="attention of head N, from 0, or of all heads on average  [default: mean]"
)
@options.option("--top", type=click.IntRange(1, 50), default=5, help="tokens to list, the likeliest or most attended")
@options.option("--timeline", is_flag=True, help="show the steps in which several prompts are answered together")
@options.option("--slots", type=click.IntRange(1), default=16, help="with --timeline: requests that run at once")
@options.option("--step-tokens", type=click.IntRange(1), default=STEP_TOKENS, help="with --timeline: tokens of a step")
@options.option(
    "--blocks",
    type=click.IntRange(1),
    help="with --timeline: blocks of 16 positions in the cache; few make requests wait and be preempted"
    "  [default: enough]",
)
@options.option("-o", "--output", help="draw a picture too, in this .png, .svg or .pdf")
@options.tokenizer
@options.threads
@options.kv_type
@options.quantize
@options.processor
@options.as_json
def trace(
    model: str,
    prompts: tuple[str, ...],
    prompt_ids: tuple[str, ...],
    max_tokens: int | None,
    position: int,
    layer: int | str,
    head: int | str | None,
    top: int,
    timeline: bool,
    slots: int,
    step_tokens: int,
    blocks: int | None,
    output: str | None,
    tokenizer: str | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    as_json: bool,
) -> None:
    """Show what a model computes for a text, layer by layer, as the engine runs it.

    For one token (--position): the norms of its residual stream, the experts that computed it, how it looked back at
    the others, and what each layer would predict. With --timeline instead: how the scheduler runs several prompts.
    """
    if timeline:
        options.refuse_given(("position", "layer", "head", "top"), "is not for a --timeline: leave one of them out")
    else:
        options.refuse_given(("slots", "step_tokens", "blocks"), "is for a --timeline: give that too")
    if prompts and prompt_ids:
        raise click.UsageError("give --prompt or --prompt-ids, not both")
    if not timeline and len(prompts) + len(prompt_ids) > 1:
        raise click.UsageError("one prompt is traced at a time; several go with --timeline")
    if timeline and max_tokens == 0:
        raise click.UsageError("a timeline needs at least one token to generate: -n 1")
    picture = Path(output) if output is not None else None
    if picture is not None:
        _check_picture(picture)
    vocabulary, encoded = _encode(model, tokenizer, prompts, prompt_ids)
    ops = pick_backend(device, threads)
    decoder = load_decoder(model, ops, quantize)
    check_type(decoder.config, kv_type)
    eos_ids, names = vocabulary.eos_ids if vocabulary else (), Names(vocabulary)
    if timeline:
        n_tokens = _ANSWER if max_tokens is None else max_tokens
        slots = min(slots, len(encoded), step_tokens)
        kv_plan = _plan(ops, decoder, kv_type, max(map(len, encoded)) + n_tokens, slots, step_tokens, blocks)
        done = timelines.run(
            decoder, ops, kv_plan, kv_type, encoded, n_tokens, eos_ids, max_sequences=slots, step_tokens=step_tokens
        )
        _print(as_json, lambda: timeline_report(done, names), lambda: print_timeline(done, names))
        if picture is not None:
            pictures.draw_timeline(picture, done)
    else:
        tracer = Tracer(decoder, ops, kv_type)
        computed = tracer.run(encoded[0], max_tokens or 0, eos_ids)
        at, only = computed.position(position), layer if isinstance(layer, int) else None
        seen = view(tracer, computed, at, only, head, top)
        _print(as_json, lambda: view_report(seen, names), lambda: print_view(seen, names, top))
        if picture is not None:
            pictures.draw_view(picture, seen, lens_before(tracer, computed, at, pictures.LENS_COLUMNS), names)
    if picture is not None:
        click.echo(f"wrote {picture}", err=True)


def _print(as_json: bool, report: Callable[[], dict[str, Any]], tables: Callable[[], None]) -> None:
    if as_json:
        write_json(report())
    else:
        tables()


def _encode(
    model: str, tokenizer: str | None, prompts: tuple[str, ...], prompt_ids: tuple[str, ...]
) -> tuple[Tokenizer | None, list[list[int]]]:
    """The vocabulary, None where there is none and prompts are ids; and the ids of each prompt."""
    try:
        vocabulary = load_tokenizer(open_checkpoint(locate(model)), Path(tokenizer) if tokenizer is not None else None)
    except MissingTokenizerError as error:
        if not prompt_ids:
            raise ValueError(f"{error}; or give token ids with --prompt-ids") from None
        return None, [_parse_ids(text) for text in prompt_ids]
    if prompt_ids:
        return vocabulary, [_parse_ids(text) for text in prompt_ids]
    return vocabulary, [vocabulary.encode(text) for text in prompts or (read_text(),)]


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--prompt-ids must be numbers with commas between, not {text!r}") from None


def _plan(
    ops: Ops, decoder: Decoder, kv_type: str, context: int, slots: int, step_tokens: int, blocks: int | None
) -> KvPlan:
    """A cache of so many blocks, or with room for all."""
    if blocks is None:
        return plan(ops, decoder.config, kv_type, context, slots, step_tokens, spare_memory(0))
    windows = windows_of(decoder.config)
    n_bytes, room = blocks * sum(block_bytes(ops, decoder.config, kv_type, w) for w in windows), spare_memory(0)
    if n_bytes > room:
        raise ValueError(
            f"--blocks {blocks} take {n_bytes / 2**20:.0f} MiB as {kv_type}, and {room / 2**20:.0f} MiB may be used:"
            " give fewer"
        )
    return KvPlan(windows, (blocks,) * len(windows), 0)


def _check_picture(path: Path) -> None:
    """Before anything is computed."""
    if path.suffix.lower() not in pictures.SUFFIXES:
        raise click.UsageError(f"--output {path}: a picture ends in one of {', '.join(pictures.SUFFIXES)}")
    check_file("--output", path)
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--output needs matplotlib, which is not installed: pip install 'gristmill[trace]'")
