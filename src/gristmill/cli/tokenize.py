"""`gristmill tokenize`: text to token ids and back, from any file that holds a vocabulary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

import click

from gristmill.cli import options
from gristmill.cli.streams import decoded_input, write, write_json
from gristmill.formats.open import open_checkpoint
from gristmill.hub.store import locate
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.load import load_tokenizer

_EXAMPLES = """
\b
Examples:
  echo -n "Hello world" | gristmill tokenize -m model.gguf
  gristmill tokenize -m ggml-vocab-qwen2.gguf notes.txt --json
  echo "9707 1879" | gristmill tokenize -m model.gguf --decode
"""


@click.command(epilog=_EXAMPLES)
@options.model
@click.argument("file", type=click.File("rb"), default="-")
@options.option("--decode", is_flag=True, help="read ids and print their text")
@options.option("--special/--no-special", default=True, help="add BOS and EOS where the model's files ask for them")
@options.option("--parse-special", is_flag=True, help="let texts of special tokens become their ids")
@options.tokenizer
@options.as_json
def tokenize(
    model: str,
    file: BinaryIO,
    decode: bool,
    special: bool,
    parse_special: bool,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Print the token ids of a text (from FILE or stdin), or the text of ids."""
    if decode:
        options.refuse_given(("special",), "and --no-special are for text, not for --decode: leave them out")
        options.refuse_given(("parse_special",), "is for text, not for --decode: leave it out")
    vocabulary = _load(model, tokenizer)
    text = decoded_input(file)
    if decode:
        ids = _ids(text)
        n_ids = vocabulary.vocab_size
        if beyond := [i for i in ids if i >= n_ids]:  # a model may have some
            click.echo(f"no text for {len(beyond)} of the ids, such as {beyond[0]}: not in 0 .. {n_ids - 1}", err=True)
        text = vocabulary.decode(ids)
        if as_json:
            write_json({"text": text})
        else:
            write(text)
        return
    ids = vocabulary.encode(text, add_special=special, parse_special=parse_special)
    if as_json:
        write_json({"ids": ids, "tokens": [vocabulary.token_text(i) for i in ids]})
    else:
        click.echo(" ".join(map(str, ids)))


def _load(model: str, override: str | None) -> Tokenizer:
    return load_tokenizer(open_checkpoint(locate(model)), Path(override) if override else None)


def _ids(text: str) -> list[int]:
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    if wrong := [word for word in words if not re.fullmatch("-?[0-9]+", word)]:
        raise click.UsageError(f"ids must be numbers: {wrong[0]!r:.100} is none")
    return [int(word) for word in words]
