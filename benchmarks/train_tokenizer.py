"""Our tokenizer trainer beside SentencePiece's, on one text: seconds, and bytes a token over its lines. Run alone.

    python benchmarks/train_tokenizer.py text.txt --sizes 512 4096 32000

same: how many of the pieces that follow the bytes are the same in both, by id. Needs the sentencepiece package.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from pathlib import Path

import sentencepiece

from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.sentencepiece_file import read_sentencepiece
from gristmill.tokenizer.vocabulary import Vocabulary
from gristmill.train.sources import cut
from gristmill.train.tokenizer import N_FIXED, Settings, count_words, train


def theirs(path: Path, size: int, threads: int) -> Vocabulary:
    """SentencePiece with the settings that llama2.c uses, all lines and no normalization."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=str(path),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        max_sentence_length=1 << 30,
        num_threads=threads,
        minloglevel=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.model"
        file.write_bytes(model.getvalue())
        return read_sentencepiece(file)


def ours(path: Path, size: int, threads: int) -> Vocabulary:
    return train(count_words(cut([path], ""), "", threads=threads), Settings(size))


def bytes_per_token(vocabulary: Vocabulary, lines: list[str]) -> float:
    tokenizer = make_tokenizer(vocabulary)
    return sum(len(line.encode()) for line in lines) / sum(len(tokenizer.encode_array(line)) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 4096, 32000])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    lines = [line for line in args.text.read_text().split("\n") if line]
    print(f"{'ids':>6}  {'seconds':>8} {'theirs':>8} {'times':>6}  {'bytes/token':>11} {'theirs':>7}  same")
    for size in args.sizes:
        found, seconds = [], []
        for run in (ours, theirs):
            start = time.perf_counter()
            try:
                found.append(run(args.text, size, args.threads))
            except (ValueError, RuntimeError) as error:
                print(f"{size:>6}  {run.__name__}: {str(error).strip()[-150:]}")
                break
            seconds.append(time.perf_counter() - start)
        else:
            mine, other = (vocabulary.tokens[N_FIXED:] for vocabulary in found)
            same = sum(one.encode() == two for one, two in zip(mine, other, strict=True)) / len(mine)
            rates = [bytes_per_token(vocabulary, lines) for vocabulary in found]
            print(
                f"{size:>6}  {seconds[0]:>8.2f} {seconds[1]:>8.2f} {seconds[1] / seconds[0]:>6.1f}"
                f"  {rates[0]:>11.4f} {rates[1]:>7.4f}  {same:.2%}"
            )


if __name__ == "__main__":
    main()
