"""A word that an answer must not have -> the ids to look for. (The rule is vLLM's.)"""

from __future__ import annotations

from gristmill.tokenizer.interface import Tokenizer


def ids_of_word(tokenizer: Tokenizer, word: str) -> list[tuple[int, ...]]:
    """The ids of `word`, and those of the word after a space where they are others, as within a sentence."""
    word = word.lstrip()
    bare, spaced = (tuple(tokenizer.encode(text, add_special=False)) for text in (word, f" {word}"))
    if not bare:
        raise ValueError(f"bad_words: {word!r:.80} has no tokens in this vocabulary; leave it out")
    return [bare, spaced] if spaced[0] != bare[0] and len(spaced) == len(bare) else [bare]
