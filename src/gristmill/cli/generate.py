"""`gristmill generate`: one completion to stdout, its speed to stderr."""

from __future__ import annotations

import time
from typing import Any

import click

from gristmill.cli import options
from gristmill.cli.loading import load_as, recommended
from gristmill.cli.sampling import naming_options, params_of, sampling
from gristmill.cli.streams import read_text, write, write_json
from gristmill.cli.timed import tokens_per_s
from gristmill.outputs import Timed
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
@options.option("-p", "--prompt", help="text to continue [default: stdin, but for its last line end]")
@options.option("--prompt-ids", help="token ids instead of text: 1,2,3")
@options.option("--parse-special", is_flag=True, help="let texts of special tokens in the prompt become these tokens")
@options.option("--chat", is_flag=True, help="the prompt is a user's message; the model's chat template goes around it")
@options.option("--system", help="system message of the chat; implies --chat")
@options.option("--chat-template", help="a Jinja2 file to use instead of the model's own template; implies --chat")
@sampling
@options.loading
@options.as_json
def generate(
    model: str,
    prompt: str | None,
    prompt_ids: str | None,
    parse_special: bool,
    chat: bool,
    system: str | None,
    how: options.Loading,
    as_json: bool,
) -> None:
    """Continue a text."""
    if prompt is not None and prompt_ids is not None:
        raise click.UsageError("give --prompt or --prompt-ids, not both")
    chat = chat or system is not None or how.chat_template is not None
    if chat and prompt_ids is not None:
        raise click.UsageError("--chat, --system and --chat-template need text, not --prompt-ids")
    if parse_special and (chat or prompt_ids is not None):
        raise click.UsageError("--parse-special is for a prompt's text, and neither for --chat nor for --prompt-ids")
    ctx = click.get_current_context()
    params = params_of(ctx)
    if params.logprobs is not None and not as_json:
        raise click.UsageError("--logprobs needs --json")
    text = prompt if prompt is not None or prompt_ids is not None else read_text()
    started = time.perf_counter()
    llm = load_as(model, how)
    loaded = time.perf_counter()
    told = recommended(how, llm)
    dialogue = None
    echo = ""  # of the prompt, which waits for the first token: until then the request may be refused
    if chat and text is not None:
        from gristmill.cli.generate_chat import Dialogue, ask

        asked = ask(llm, text, system)
        params = params_of(ctx, told.in_chat(asked.thinks))
        dialogue = Dialogue(llm, asked, params)
        ids = dialogue.ids
    else:
        params = params_of(ctx, told.said)
        ids = llm.encode(text, parse_special=parse_special) if text is not None else _parse_ids(prompt_ids or "")
        echo = text or ""
    run = _Run(loaded - started)
    with naming_options():
        for token in llm.timed_pieces(ids, dialogue.params if dialogue is not None else params):
            run.add(token)
            shown = dialogue.push(token.piece) if dialogue is not None else token.piece.text
            if not as_json:
                write(echo + (shown if text is not None else f"{token.piece.event.token_id} "))
                echo = ""
    if as_json:
        report = run.report(ids)
        write_json({**report, "message": dialogue.message.body()} if dialogue else report)
    else:
        write("\n")
        if params.structured_outputs is not None and run.finish is Finish.LENGTH:
            click.echo("the answer is not complete: it was cut by --max-tokens, or the context is full", err=True)
        click.echo(run.summary(len(ids)), err=True)


class _Run:
    """Collects the tokens of one generation."""

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._start = time.perf_counter()
        self._tokens: list[Timed] = []

    def add(self, token: Timed) -> None:
        self._tokens.append(token)

    def stats(self, n_prompt: int) -> dict[str, Any]:
        """Prompt speed up to the first token; output speed from the first token on, without the packing of weights,
        None where these are too few."""
        first, last = self._tokens[0], self._tokens[-1]
        packing = last.packing_s - first.packing_s
        first_s = first.at - self._start
        return {
            "prompt_tokens": n_prompt,
            "prompt_tokens_per_s": n_prompt / first_s,
            "output_tokens": len(self._tokens),
            "output_tokens_per_s": tokens_per_s(len(self._tokens) - 1, last.at - first.at - packing),
            "load_s": self._load_s,
            "packing_s": packing,
            "first_token_s": first_s,
        }

    @property
    def finish(self) -> Finish | None:
        return self._tokens[-1].piece.finish

    def report(self, prompt_ids: list[int]) -> dict[str, Any]:
        finish, pieces = self.finish, [token.piece for token in self._tokens]
        report: dict[str, Any] = {
            "prompt_ids": prompt_ids,
            "output_ids": [piece.event.token_id for piece in pieces],
            "text": "".join(piece.text for piece in pieces),
            "finish_reason": finish.value if finish else None,
            "stats": self.stats(len(prompt_ids)),
        }
        if pieces[0].event.logprob is not None:
            report["logprobs"] = [
                {"id": e.token_id, "logprob": e.logprob, "top": [{"id": i, "logprob": p} for i, p in e.top_logprobs]}
                for e in (piece.event for piece in pieces)
            ]
        return report

    def summary(self, n_prompt: int) -> str:
        s = self.stats(n_prompt)
        packed = f", {s['packing_s']:.2f} s more to pack it" if s["packing_s"] >= 0.005 else ""
        speed = "-" if s["output_tokens_per_s"] is None else f"{s['output_tokens_per_s']:.1f}"
        return (
            f"loaded in {s['load_s']:.2f} s{packed}"
            f" · prompt {s['prompt_tokens']} tokens, {s['prompt_tokens_per_s']:.1f} tok/s"
            f" · output {s['output_tokens']} tokens, {speed} tok/s"
        )


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--prompt-ids must be numbers with commas between, not {text!r}") from None
