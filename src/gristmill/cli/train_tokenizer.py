"""`gristmill train-tokenizer`: a vocabulary from text, written in every form that models take."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gristmill.cli import options
from gristmill.cli.writable import check_folder
from gristmill.formats.write_gguf import write_gguf
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.tokenizer.write import to_gguf_metadata, write_llama2c, write_tokenizer_json
from gristmill.tokenizer.write_sentencepiece import write_sentencepiece
from gristmill.train.sources import SEPARATOR, cut, find_files
from gristmill.train.tokenizer import Report, Settings, count_tokens, count_words, train

_EXAMPLES = """
\b
Examples:
  gristmill train-tokenizer stories.txt --vocab-size 4096 -o tokenizer
  gristmill train-tokenizer TinyStories/ --vocab-size 2048 --coverage 0.9995 -o tok2048 --json
  gristmill tokenize -m tok2048/vocabulary.gguf stories.txt
"""
_PIECE_BYTES = 8 << 20


@click.command(epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True)
@options.option("-o", "--out", required=True, help="folder for tokenizer.bin, .model and .json, and vocabulary.gguf")
@options.option("--vocab-size", type=int, default=4096, help="ids in all, bytes and characters among them")
@options.option("--coverage", type=float, default=1.0, help="share of the text whose characters are ids of their own")
@options.option("--split-digits/--no-split-digits", default=True, help="make each digit an id of its own")
@options.option("--max-piece", type=int, default=16, help="longest piece, in characters")
@options.option(
    "--separator", default=SEPARATOR, help="what stands between a text file's documents; \\n is a line's end"
)
@options.threads
@options.as_json
def train_tokenizer(
    files: tuple[str, ...],
    out: str,
    vocab_size: int,
    coverage: float,
    split_digits: bool,
    max_piece: int,
    separator: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Learn a SentencePiece BPE vocabulary with byte fallback from FILES.

    FILES are texts, .jsonl with `text`, TinyStories' .json with `story`, or folders of these. What comes out is, piece
    for piece, what SentencePiece's trainer gives without normalization. Models of llama2.c, transformers and llama.cpp
    can use it: OUT holds a file for each.
    """
    from gristmill.ops.cpu import default_threads

    settings = Settings(vocab_size, coverage, split_digits, max_piece)
    folder = Path(out)
    check_folder("--out", folder)
    started = time.perf_counter()
    separator = separator.replace("\\n", "\n")
    groups = cut(find_files(files), separator, _PIECE_BYTES)
    with _bar("reading") as report:
        words = count_words(groups, separator, threads=threads or default_threads(), report=report)
    if not words.n_words:
        raise ValueError(f"there is no text in {', '.join(files)}")
    with _bar("merging") as report:
        vocabulary = train(words, settings, report)
    seconds = time.perf_counter() - started
    written = [str(path) for path in _write(vocabulary, folder)]
    n_tokens = count_tokens(words, vocabulary)
    summary = {
        "vocab_size": vocabulary.n_tokens,
        "text_bytes": words.n_bytes,
        "tokens": n_tokens,
        "bytes_per_token": round(words.n_bytes / n_tokens, 4),
        "words": words.n_words,
        "seconds": round(seconds, 3),
        "files": written,
    }
    if as_json:
        click.echo(json.dumps(summary))
        return
    click.echo(
        f"{vocabulary.n_tokens} ids from {words.n_bytes:,} bytes of text in {seconds:.1f} s: "
        f"{words.n_bytes / n_tokens:.3f} bytes a token",
        err=True,
    )
    click.echo("\n".join(written))


def _write(vocabulary: Vocabulary, folder: Path) -> list[Path]:
    """The vocabulary in every form, each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("tokenizer.bin", "tokenizer.model", "tokenizer.json", "tokenizer_config.json", "vocabulary.gguf")
    binary, model, tokenizer_json, _, gguf = paths = [folder / name for name in names]
    write_llama2c(vocabulary, binary)
    write_sentencepiece(vocabulary, model)
    write_tokenizer_json(vocabulary, tokenizer_json)
    write_gguf(gguf, {"general.architecture": "llama", **to_gguf_metadata(vocabulary)}, ())
    return paths


@contextmanager
def _bar(what: str) -> Iterator[Report | None]:
    """Moves a bar on a terminal; None where stderr is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
