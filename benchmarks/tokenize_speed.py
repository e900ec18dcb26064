"""How fast a vocabulary tokenizes, on one thread. Run it alone.

    python benchmarks/tokenize_speed.py vocab.gguf text.txt

first: nothing cached; warm: the same again; dense: 1 MB of the text without its spaces; letter: 1 MB of one letter.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from gristmill.formats.open import open_checkpoint
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.files import load_path
from gristmill.tokenizer.load import load_tokenizer


def load(path: Path) -> CodecTokenizer:
    return load_tokenizer(open_checkpoint(path)) if path.suffix == ".gguf" else load_path(path)


def rate(tokenizer: CodecTokenizer, text: str) -> float:
    """MB/s of one encode."""
    start = time.perf_counter()
    tokenizer.encode_array(text)
    return len(text.encode()) / 1e6 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("text", type=Path)
    args = parser.parse_args()
    text = args.text.read_text()
    start = time.perf_counter()
    tokenizer = load(args.vocabulary)
    print(f"{args.vocabulary.name}: opened in {(time.perf_counter() - start) * 1e3:.0f} ms; MB/s:")
    texts = {"first": text, "warm": text, "dense": re.sub(r"\s", "", text)[:1_000_000], "letter": "a" * 1_000_000}
    print("  ".join(f"{name} {rate(tokenizer, part):.0f}" for name, part in texts.items()))


if __name__ == "__main__":
    main()
