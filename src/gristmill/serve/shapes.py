"""Parts of OpenAI's answers that several routes share: usage, log-probabilities, ids. It knows no route."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from gristmill.serve.turn import Usage
from gristmill.tokenizer.interface import Tokenizer
from gristmill.types import TokenEvent


def new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_output,
        "total_tokens": usage.n_prompt + usage.n_output,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached},
    }


def text_of(tokenizer: Tokenizer, token_id: int) -> str:
    """For display; a vocabulary may be padded beyond what the tokenizer knows."""
    return tokenizer.token_text(token_id) if token_id < tokenizer.vocab_size else ""


def chat_logprobs(tokenizer: Tokenizer, events: list[TokenEvent], n_top: int) -> list[dict[str, Any]]:
    """Of each token of an answer, its thoughts, marks and calls included."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.token_bytes(token_id) if token_id < tokenizer.vocab_size else b""
        return {"token": text_of(tokenizer, token_id), "logprob": _finite(logprob), "bytes": list(data)}

    return [
        {
            **entry(event.token_id, event.logprob if event.logprob is not None else 0.0),
            "top_logprobs": [entry(i, logprob) for i, logprob in event.top_logprobs[:n_top]],
        }
        for event in events
    ]


def completion_logprobs(
    tokenizer: Tokenizer, events: list[TokenEvent], n_top: int, offset: int, first: int | None = None
) -> dict[str, Any]:
    """In the older form: parallel lists. `first`: a token before these that has no probability."""
    ids = [*([] if first is None else [first]), *(event.token_id for event in events)]
    texts = [text_of(tokenizer, token_id) for token_id in ids]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    none: list[Any] = [] if first is None else [None]
    tops = [_by_text(tokenizer, event.top_logprobs[:n_top]) for event in events]
    return {
        "tokens": texts,
        "token_logprobs": none + [_finite(e.logprob if e.logprob is not None else 0.0) for e in events],
        "top_logprobs": (none + tops) if n_top else None,
        "text_offset": offsets,
    }


def _by_text(tokenizer: Tokenizer, top: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Likeliest first, and of those that look alike, as parts of characters do, the likeliest."""
    found = dict[str, float]()
    for token_id, logprob in top:
        found.setdefault(text_of(tokenizer, token_id), _finite(logprob))
    return found


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says -9999 for what cannot be."""
    return max(logprob, -9999.0)
