"""`gristmill generate`: one completion to stdout, its speed to stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from gristmill.cli import options
from gristmill.cli.loading import load
from gristmill.llm import LLM
from gristmill.outputs import Piece
from gristmill.types import SamplingParams

_EXAMPLES = """
\b
Examples:
  gristmill generate -m model.gguf -p "Once upon a time" -n 100
  echo "The sea was" | gristmill generate -m stories15M.bin --temp 0
  gristmill generate -m model.gguf --prompt-ids 1,9038,2501 --json
  gristmill generate -m model.gguf --chat -p "What is a gristmill?" --system "Answer in one sentence."
"""


@click.command(epilog=_EXAMPLES)
@options.model
@options.option("-p", "--prompt", help="text to continue [default: read from stdin]")
@options.option("--prompt-ids", help="token ids instead of text: 1,2,3")
@options.option("--chat", is_flag=True, help="the prompt is a user's message; the model's chat template goes around it")
@options.option("--system", help="system message of the chat; implies --chat")
@options.option("--chat-template", help="a Jinja2 file to use instead of the model's own template")
@options.option("-n", "--max-tokens", type=int, default=256, help="most tokens to write; -1: until the context is full")
@options.option("--temp", type=float, default=0.8, help="0 always takes the likeliest token")
@options.option("--top-k", type=int, default=40, help="keep the k likeliest; 0 keeps all")
@options.option("--top-p", type=float, default=0.95, help="keep the likeliest that make up this share")
@options.option("--min-p", type=float, default=0.05, help="drop what is less likely than this share of the likeliest")
@options.option("--seed", type=int, help="the same seed gives the same text [default: a new one each time]")
@options.option("--stop", multiple=True, help="text that ends the answer; may be given several times")
@options.option("--logprobs", type=int, help="with --json: logprobs of this many alternatives a token")
@options.option("--ignore-eos", is_flag=True, help="go on after an end-of-text token")
@options.tokenizer
@options.context
@options.threads
@options.kv_type
@options.quantize
@options.device
@options.as_json
def generate(
    model: str,
    prompt: str | None,
    prompt_ids: str | None,
    chat: bool,
    system: str | None,
    chat_template: str | None,
    max_tokens: int,
    temp: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int | None,
    stop: tuple[str, ...],
    logprobs: int | None,
    ignore_eos: bool,
    tokenizer: str | None,
    context: int | None,
    threads: int | None,
    kv_type: str,
    quantize: str,
    device: str,
    as_json: bool,
) -> None:
    """Continue a text."""
    if prompt is not None and prompt_ids is not None:
        raise click.UsageError("give --prompt or --prompt-ids, not both")
    chat = chat or system is not None
    if chat and prompt_ids is not None:
        raise click.UsageError("--chat and --system need text, not --prompt-ids")
    if logprobs is not None and not as_json:
        raise click.UsageError("--logprobs needs --json")
    params = SamplingParams(
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=None if max_tokens == -1 else max_tokens,
        stop=stop,
        logprobs=logprobs,
        ignore_eos=ignore_eos,
    )
    text = prompt if prompt is not None or prompt_ids is not None else sys.stdin.read()
    started = time.perf_counter()
    llm = load(model, tokenizer, threads, context, kv_type, quantize, device, chat_template)
    loaded = time.perf_counter()
    ids = _encode(llm, text, system, chat) if text is not None else _parse_ids(prompt_ids or "")
    if not as_json and text is not None and not chat:
        _write(text)
    run = _Run(loaded - started)
    for piece in llm.pieces(ids, params):
        run.add(piece)
        if not as_json:
            _write(piece.text if text is not None else f"{piece.event.token_id} ")
    if as_json:
        click.echo(json.dumps(run.report(llm, ids), ensure_ascii=False))
    else:
        _write("\n")
        click.echo(run.summary(len(ids)), err=True)


class _Run:
    """Collects the pieces of one generation and the times at which they came."""

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._start = time.perf_counter()
        self._times: list[float] = []
        self._pieces: list[Piece] = []

    def add(self, piece: Piece) -> None:
        self._times.append(time.perf_counter() - self._start)
        self._pieces.append(piece)

    def stats(self, n_prompt: int) -> dict[str, Any]:
        """Prompt speed up to the first token, output speed from the first token on."""
        first, last = self._times[0], self._times[-1]
        n_after = len(self._pieces) - 1
        return {
            "prompt_tokens": n_prompt,
            "prompt_tokens_per_s": n_prompt / first,
            "output_tokens": len(self._pieces),
            "output_tokens_per_s": n_after / (last - first) if n_after else 0.0,
            "load_s": self._load_s,
            "first_token_s": first,
        }

    def report(self, llm: LLM, prompt_ids: list[int]) -> dict[str, Any]:
        finish = self._pieces[-1].finish
        report: dict[str, Any] = {
            "prompt_ids": prompt_ids,
            "output_ids": [piece.event.token_id for piece in self._pieces],
            "text": "".join(piece.text for piece in self._pieces),
            "finish_reason": finish.value if finish else None,
            "stats": self.stats(len(prompt_ids)),
        }
        if self._pieces[0].event.logprob is not None:
            report["logprobs"] = [
                {"id": e.token_id, "logprob": e.logprob, "top": [{"id": i, "logprob": p} for i, p in e.top_logprobs]}
                for e in (piece.event for piece in self._pieces)
            ]
        return report

    def summary(self, n_prompt: int) -> str:
        s = self.stats(n_prompt)
        return (
            f"loaded in {s['load_s']:.2f} s · prompt {s['prompt_tokens']} tokens, {s['prompt_tokens_per_s']:.1f} tok/s"
            f" · output {s['output_tokens']} tokens, {s['output_tokens_per_s']:.1f} tok/s"
        )


def _encode(llm: LLM, text: str, system: str | None, chat: bool) -> list[int]:
    if not chat:
        return llm.encode(text)
    messages = [{"role": "system", "content": system}] if system is not None else []
    return llm.encode_chat([*messages, {"role": "user", "content": text}])


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--prompt-ids must be numbers with commas between, not {text!r}") from None
