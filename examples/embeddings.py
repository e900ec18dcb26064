"""Compares texts by the model's hidden states: cosine similarities, by the mean of all tokens and by the last one.

python examples/embeddings.py model.gguf "A cat sleeps." "A kitten naps." "Shares fell."
"""

import sys

import numpy as np

from gristmill import LLM


def main(model: str, *texts: str) -> None:
    with LLM(model) as llm:
        states = [llm.embed(llm.encode(text)) for text in texts]  # float32 [tokens, d_model] each
    show("mean of all tokens", np.stack([rows.mean(axis=0) for rows in states]), texts)
    show("last token", np.stack([rows[-1] for rows in states]), texts)


def show(title: str, vectors: np.ndarray, texts: tuple[str, ...]) -> None:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    print(title)
    for text, row in zip(texts, unit @ unit.T, strict=True):
        print("  ".join(f"{cosine:6.3f}" for cosine in row), "", text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
