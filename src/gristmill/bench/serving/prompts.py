"""What is asked: prompts of chosen lengths, or conversations of a ShareGPT file. It knows no server."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gristmill.tokenizer.interface import Tokenizer

# Each is one token, its space included, in the vocabularies of Qwen, Llama 2 and 3 and o200k.
_TEXT: Final = """
the and for with this that from have not but can all one time people year way day man thing woman life child
world school state family group country problem hand part place case week company system program question work
government number night point home water room mother area money story fact month lot right study book eye job
word business issue side kind head house service friend father power hour game line end member law car city
community name team minute idea body information back parent face others level office door health person art war
history party result change morning reason research girl guy moment air teacher force education
"""
_WORDS: Final = _TEXT.split()

SHAREGPT_MOST_INPUT: Final = 1024
SHAREGPT_MOST_TOTAL: Final = 2048
"""Longer conversations of a file are left out, as vLLM's benchmark does."""

_LEAST: Final = 4
_BYTES_A_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Span:
    """Lengths from low to high, each as likely."""

    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Prompt:
    """content: text, or ids for completions. n_input: its tokens as far as known here; n_output: most to answer."""

    content: str | list[int]
    n_input: int
    n_output: int


def synthetic(
    n: int, input_len: Span, output_len: Span, seed: int, tokenizer: Tokenizer | None, as_ids: bool
) -> list[Prompt]:
    """Random prompts, no two alike, so that no cache helps.

    With a tokenizer they have exactly the lengths drawn (as text, nearly: ids are decoded and encoded again); without
    one they are common words, of which each is a token in most vocabularies.
    """
    rng = random.Random(seed)
    return [
        Prompt(_content(rng, length, tokenizer, as_ids), length, output_len.draw(rng))
        for length in (input_len.draw(rng) for _ in range(n))
    ]


def _content(rng: random.Random, length: int, tokenizer: Tokenizer | None, as_ids: bool) -> str | list[int]:
    if tokenizer is None:
        return " ".join(rng.choices(_WORDS, k=length))
    special = frozenset((*tokenizer.special_ids.values(), *tokenizer.eos_ids))
    ids = list[int]()
    while len(ids) < length:
        token_id = rng.randrange(tokenizer.vocab_size)
        if token_id not in special:
            ids.append(token_id)
    if as_ids:
        return ids
    for _ in range(3):  # text of random ids is cut otherwise when it is read again, mostly into more
        text = tokenizer.decode(ids)
        again = tokenizer.encode(text, add_special=False)
        if len(again) <= length:
            break
        ids = again[:length]
    return text


def sharegpt(path: Path, n: int, output_len: Span | None, seed: int, tokenizer: Tokenizer | None) -> list[Prompt]:
    """The first two turns of n conversations: what was asked, and as many tokens as were answered.

    output_len  instead of the answers' lengths
    Without a tokenizer a token counts as four bytes. ValueError names the file and what is wrong with it.
    """
    rng = random.Random(seed)
    turns = [found for i, entry in enumerate(_entries(path)) if (found := _two_turns(path, i, entry)) is not None]
    rng.shuffle(turns)
    prompts = list[Prompt]()
    for asked, answered in turns:
        n_input = _count(asked, tokenizer)
        n_output = output_len.draw(rng) if output_len is not None else _count(answered, tokenizer)
        if n_input < _LEAST or (output_len is None and n_output < _LEAST):
            continue
        if n_input > SHAREGPT_MOST_INPUT or n_input + n_output > SHAREGPT_MOST_TOTAL:
            continue
        prompts.append(Prompt(asked, n_input, n_output))
        if len(prompts) == n:
            return prompts
    raise ValueError(
        f"{path}: {len(prompts)} conversations have two turns and a fitting length ({_LEAST} to {SHAREGPT_MOST_INPUT}"
        f" tokens, with the answer at most {SHAREGPT_MOST_TOTAL}), fewer than --num-prompts {n}"
    )


def _entries(path: Path) -> list[Any]:
    try:
        entries = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON: {str(error)[:100]}") from None
    if not isinstance(entries, list):
        raise ValueError(f"{path}: is no list of conversations")
    return entries


def _two_turns(path: Path, index: int, entry: Any) -> tuple[str, str] | None:
    """None for a conversation that has not two."""
    found = entry.get("conversations", entry.get("messages")) if isinstance(entry, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"{path}: entry {index} has no list `conversations` (or `messages`)")
    if len(found) < 2:
        return None
    texts = [turn.get("value", turn.get("content")) if isinstance(turn, dict) else None for turn in found[:2]]
    asked, answered = texts
    if not isinstance(asked, str) or not isinstance(answered, str):
        raise ValueError(f"{path}: entry {index} has a turn without a text `value` (or `content`)")
    try:
        (asked + answered).encode()
    except UnicodeEncodeError as error:  # JSON can spell what is no text
        code_point = ord(error.object[error.start])
        raise ValueError(f"{path}: entry {index} has the lone surrogate U+{code_point:04X}, which is no text") from None
    return asked, answered


def _count(text: str, tokenizer: Tokenizer | None) -> int:
    if tokenizer is None:
        return -(-len(text.encode()) // _BYTES_A_TOKEN)
    return len(tokenizer.encode(text, add_special=False))
