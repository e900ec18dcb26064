"""`gristmill generate`: one completion to stdout, its speed to stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from gristmill.cli import options
from gristmill.cli.loading import load_as, recommended
from gristmill.cli.sampling import params_of, sampling
from gristmill.outputs import Piece
from gristmill.types import Finish

_EXAMPLES = """
\b
Examples:
  gristmill generate -m model.gguf -p "Once upon a time" -n 100
  echo "The sea was" | gristmill generate -m stories15M.bin --temp 0
  gristmill generate -m model.gguf --prompt-ids 1,9038,2501 --json
  gristmill generate -m model.gguf --chat -p "What is a gristmill?" --system "Answer in one sentence."
  gristmill generate -m model.gguf --chat -p "Name a colour." --choice red --choice green --choice blue
  gristmill generate -m model.gguf --chat -p "A person, as JSON." --json-schema person.json --temp 0
  gristmill generate -m large.gguf -p "Once upon a time" --draft small.gguf
"""


@click.command(epilog=_EXAMPLES)
@options.model
@options.option("-p", "--prompt", help="text to continue [default: read from stdin]")
@options.option("--prompt-ids", help="token ids instead of text: 1,2,3")
@options.option("--chat", is_flag=True, help="the prompt is a user's message; the model's chat template goes around it")
@options.option("--system", help="system message of the chat; implies --chat")
@options.chat_template
@sampling
@options.loading
@options.as_json
def generate(
    model: str,
    prompt: str | None,
    prompt_ids: str | None,
    chat: bool,
    system: str | None,
    how: options.Loading,
    as_json: bool,
) -> None:
    """Continue a text."""
    if prompt is not None and prompt_ids is not None:
        raise click.UsageError("give --prompt or --prompt-ids, not both")
    chat = chat or system is not None
    if chat and prompt_ids is not None:
        raise click.UsageError("--chat and --system need text, not --prompt-ids")
    ctx = click.get_current_context()
    params = params_of(ctx)
    if params.logprobs is not None and not as_json:
        raise click.UsageError("--logprobs needs --json")
    text = prompt if prompt is not None or prompt_ids is not None else sys.stdin.read()
    started = time.perf_counter()
    llm = load_as(model, how)
    loaded = time.perf_counter()
    told = recommended(how, llm)
    dialogue = None
    if chat and text is not None:
        from gristmill.cli.generate_chat import Dialogue, ask

        asked = ask(llm, text, system)
        params = params_of(ctx, told.in_chat(asked.thinks))
        dialogue = Dialogue(llm, asked, params)
        ids = dialogue.ids
    else:
        params = params_of(ctx, told.said)
        ids = llm.encode(text) if text is not None else _parse_ids(prompt_ids or "")
    if not as_json and text is not None and not chat:
        _write(text)
    run = _Run(loaded - started)
    for piece in llm.pieces(ids, dialogue.params if dialogue is not None else params):
        run.add(piece, llm.packing_s)
        shown = dialogue.push(piece) if dialogue is not None else piece.text
        if not as_json:
            _write(shown if text is not None else f"{piece.event.token_id} ")
    if as_json:
        report = run.report(ids)
        click.echo(
            json.dumps({**report, "message": dialogue.message.body()} if dialogue else report, ensure_ascii=False)
        )
    else:
        _write("\n")
        if params.structured_outputs is not None and run.finish is Finish.LENGTH:
            click.echo("the answer is not complete: it was cut by --max-tokens, or the context is full", err=True)
        click.echo(run.summary(len(ids)), err=True)


class _Run:
    """Collects the pieces of one generation and the times at which they came."""

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._start = time.perf_counter()
        self._times: list[float] = []
        self._packing: list[float] = []
        self._pieces: list[Piece] = []

    def add(self, piece: Piece, packing_s: float) -> None:
        """packing_s: `LLM.packing_s` by now."""
        self._times.append(time.perf_counter() - self._start)
        self._packing.append(packing_s)
        self._pieces.append(piece)

    def stats(self, n_prompt: int) -> dict[str, Any]:
        """Prompt speed up to the first token; output speed from the first token on, without the packing of weights."""
        first, last = self._times[0], self._times[-1]
        packing = self._packing[-1] - self._packing[0]
        n_after = len(self._pieces) - 1
        return {
            "prompt_tokens": n_prompt,
            "prompt_tokens_per_s": n_prompt / first,
            "output_tokens": len(self._pieces),
            "output_tokens_per_s": n_after / (last - first - packing) if n_after else 0.0,
            "load_s": self._load_s,
            "packing_s": packing,
            "first_token_s": first,
        }

    @property
    def finish(self) -> Finish | None:
        return self._pieces[-1].finish

    def report(self, prompt_ids: list[int]) -> dict[str, Any]:
        finish = self.finish
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
        packed = f", {s['packing_s']:.2f} s more to pack it" if s["packing_s"] >= 0.005 else ""
        return (
            f"loaded in {s['load_s']:.2f} s{packed}"
            f" · prompt {s['prompt_tokens']} tokens, {s['prompt_tokens_per_s']:.1f} tok/s"
            f" · output {s['output_tokens']} tokens, {s['output_tokens_per_s']:.1f} tok/s"
        )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--prompt-ids must be numbers with commas between, not {text!r}") from None
