"""Parts of OpenAI's answers that several routes share: usage, log-probabilities, ids. It knows no route."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from gristmill.serve.turn import Step, Usage
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.stream import StreamDecoder
from gristmill.types import TokenEvent


def new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def usage_of(usage: Usage, n_reasoning: int = 0) -> dict[str, Any]:
    """n_reasoning: tokens of thoughts among the output."""
    return {
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_output,
        "total_tokens": usage.n_prompt + usage.n_output,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached},
        "completion_tokens_details": {"reasoning_tokens": n_reasoning},
    }


class RunningUsage:
    """The usage of each answer so far, for the events of a call that wants it there.

    n_prompt  tokens of each answer's prompt
    """

    def __init__(self, n_prompt: Sequence[int]) -> None:
        self._usages = [Usage(n) for n in n_prompt]

    def add(self, step: Step) -> None:
        self._usages[step.index].n_output += len(step.events)
        if step.events:
            self._usages[step.index].n_cached = step.events[0].n_cached

    def of(self, index: int) -> dict[str, Any]:
        return usage_of(self._usages[index])


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


class Places:
    """Where a completion's tokens begin in its text, given in order; the parts of one character all where it does.

    echoed  what of the text is the prompt
    begun   whether tokens were given
    """

    def __init__(self, tokenizer: Tokenizer, echoed: str, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._echoed = echoed
        self._prompt = StreamDecoder(tokenizer, at_start=True)
        self._answer = StreamDecoder(tokenizer, skip_special=skip_special)
        self._at = 0
        self._at_answer = len(echoed)
        self.begun = False

    def of_prompt(self, token_id: int) -> int:
        at, self.begun = self._at, True
        special = text_of(self._tokenizer, token_id)  # the prompt's text may spell it out
        is_spelled = bool(special) and self._tokenizer.is_special(token_id) and self._echoed.startswith(special, at)
        length = len(special) if is_spelled else len(self._prompt.push(token_id))
        self._at = min(at + length, len(self._echoed))
        return at

    def of_answer(self, token_id: int) -> int:
        at, self.begun = self._at_answer, True
        self._at_answer += len(self._answer.push(token_id))
        return at


def completion_logprobs(
    tokenizer: Tokenizer, events: list[TokenEvent], n_top: int, offsets: list[int], first: int | None = None
) -> dict[str, Any]:
    """In the older form: parallel lists. `first`: a token before these that has no probability."""
    ids = [*([] if first is None else [first]), *(event.token_id for event in events)]
    none: list[Any] = [] if first is None else [None]
    tops = [_by_text(tokenizer, event.top_logprobs[:n_top]) for event in events]
    return {
        "tokens": [text_of(tokenizer, token_id) for token_id in ids],
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
