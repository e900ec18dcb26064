"""How well models predict stories, each story alone, in a table.

python scripts/stories unseen.txt --count 300 --seed 99
python benchmarks/story_perplexity.py unseen.txt -m stories-f32.gguf -m stories-q8_0.gguf
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gristmill import LLM
from gristmill.bundled import STORY_MODEL


def stories(file: Path, separator: str) -> list[str]:
    return [story for part in file.read_text().split(separator) if (story := part.strip())]


def nll(llm: LLM, texts: list[str]) -> tuple[float, int]:
    """Mean negative log-likelihood in nats a token, and how many tokens that is the mean of; a long text is cut."""
    scores = [llm.score(llm.tokenizer.encode(text)[: llm.max_context]) for text in texts]
    return -sum(float(score.sum()) for score in scores) / sum(map(len, scores)), sum(map(len, scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="texts")
    parser.add_argument("-m", "--model", type=Path, action="append", help="may be given several times")
    parser.add_argument("--separator", default="<|endoftext|>", help="what stands between stories")
    arguments = parser.parse_args()
    table = Table("model", "bytes", *(f"{file.name}: nats a token, perplexity" for file in arguments.files))
    for model in arguments.model or [STORY_MODEL]:
        cells = []
        with LLM(model) as llm:
            for file in arguments.files:
                mean, n = nll(llm, stories(file, arguments.separator))
                cells.append(f"{mean:.4f}, {math.exp(mean):.3f} ({n:,} tokens)")
        table.add_row(model.name, f"{model.stat().st_size:,}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
