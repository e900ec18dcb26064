"""Prints an answer while it is written.

python examples/stream.py model.gguf "Once upon a time"
"""

import sys

from gristmill import LLM, SamplingParams


def main(model: str, prompt: str) -> None:
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=100, seed=1)
    with LLM(model) as llm:
        print(prompt, end="", flush=True)
        for piece in llm.stream(prompt, params):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
