"""Merges, scores and ranks: the three ways that files say how tokens are put together, one turned into another.

What makes them the same thing: however a rule orders the joins of neighbours, a token is only ever made of the two
parts that its own text alone is merged into last. A join that makes it in a longer text comes after the joins inside
of it, which are those of the text alone, in the same order. So one merge a token says everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any, Final

from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.vocabulary import BYTE, NORMAL, Vocabulary, as_text, to_list

Pair = tuple[str, str]
_NEVER: Final = 1 << 60  # the rank of neighbours that do not join


def _byte_alphabet() -> str:
    """GPT-2's printable alphabet: a character for each byte."""
    others = iter(range(0x100, 0x144))
    printable = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET: Final = _byte_alphabet()


def token_texts(vocabulary: Vocabulary) -> list[str]:
    """Tokens by id as files other than tiktoken's spell them."""
    if not vocabulary.is_ranked:
        return [as_text(token) for token in to_list(vocabulary.tokens)]
    return [
        token.decode("latin-1").translate(BYTE_ALPHABET) if kind == NORMAL else token.decode()
        for token, kind in zip(to_list(vocabulary.tokens), vocabulary.types, strict=True)
    ]


def merges_of(vocabulary: Vocabulary) -> list[Pair]:
    """Merges by rank that encode as the vocabulary does; its own where it has some.

    Raises TokenizerError where no merges do: two tokens with one score, or characters that are no tokens.
    """
    if vocabulary.merges is not None:
        return [_split(merge) for merge in to_list(vocabulary.merges)]
    ranks = _ranks(vocabulary, token_texts(vocabulary))
    merges = list(_last_pairs(ranks, _by_whole(ranks)))
    if vocabulary.kind == "spm" and (bare := {c for pair in merges for part in pair for c in part} - ranks.keys()):
        raise TokenizerError(
            f"{vocabulary.where}: {vocabulary.fields}: the character {min(bare)!r} of some tokens is no token itself, "
            "which merges cannot say"
        )
    return merges


def scores_of(vocabulary: Vocabulary) -> list[float]:
    """Scores by id that encode as the vocabulary does; its own where it has some. SentencePiece kinds only.

    Raises TokenizerError where no scores do: scores say which tokens are made, and merges also from which two.
    """
    if vocabulary.scores is not None:
        return [float(score) for score in to_list(vocabulary.scores)]
    texts = token_texts(vocabulary)
    pair_ranks: dict[Pair, int] = {}
    for pair in merges_of(vocabulary):
        pair_ranks.setdefault(pair, len(pair_ranks))
    normal = [text for text, kind in zip(texts, vocabulary.types, strict=True) if kind == NORMAL]
    last = _last_pairs(dict.fromkeys(normal), _by_pair(pair_ranks))
    merges = sorted(last, key=lambda pair: pair_ranks[pair])
    made = dict.fromkeys(left + right for left, right in merges)
    ranks = {text: rank for rank, text in enumerate([*made, *(text for text in normal if text not in made)])}
    if merges != list(_last_pairs(ranks, _by_whole(ranks))):
        raise TokenizerError(
            f"{vocabulary.where}: {vocabulary.fields}: these merges are not SentencePiece's: scores cannot say which "
            "two tokens make a third, and here that matters; write tokenizer.json instead"
        )
    return [float(-ranks[text]) if kind == NORMAL else 0.0 for text, kind in zip(texts, vocabulary.types, strict=True)]


def has_unreachable_tokens(vocabulary: Vocabulary, merges: list[Pair]) -> bool:
    """Whether its `merges` do not make some token of several characters, which a whole word may still be."""
    texts = token_texts(vocabulary)
    normal = {text for text, kind in zip(texts, vocabulary.types, strict=True) if kind == NORMAL and len(text) > 1}
    if vocabulary.merges is not None:
        merges = list(_last_pairs(normal, _by_pair({pair: rank for rank, pair in enumerate(merges)})))
    return not normal <= {left + right for left, right in merges}


def _ranks(vocabulary: Vocabulary, texts: list[str]) -> dict[str, int]:
    """Texts that merging makes, and their ranks, the lowest first; of equal texts the first counts."""
    normal = [i for i, kind in enumerate(vocabulary.types) if kind == NORMAL]
    if vocabulary.scores is not None:
        scores = to_list(vocabulary.scores)
        normal.sort(key=lambda i: -scores[i])
        _check_ties(vocabulary, texts, [i for i in normal if len(texts[i]) > 1], scores)
    ranks: dict[str, int] = {}
    for token_id in normal:
        ranks.setdefault(texts[token_id], token_id if vocabulary.scores is None else len(ranks))
    return ranks


def _check_ties(vocabulary: Vocabulary, texts: list[str], ids: list[int], scores: list[float]) -> None:
    """Of neighbours with one score the left ones join first, of merges the first of the list: that has to be the same.

    It is where a character's runs have one score, as SentencePiece's added runs of spaces do.
    """
    for score, group in groupby(ids, lambda i: scores[i]):
        tied = list(dict.fromkeys(texts[i] for i in group))
        if len(tied) > 1 and not _runs_agree(tied):
            raise TokenizerError(
                f"{vocabulary.where}: {vocabulary.fields}: the tokens {tied[0]!r:.40} and {tied[1]!r:.40} both have "
                f"the score {score:g}, which merges cannot say"
            )


def _runs_agree(tied: list[str]) -> bool:
    if len({*"".join(tied)}) > 1:
        return False
    by_score, by_order = dict.fromkeys(tied, 0), {text: rank for rank, text in enumerate(tied)}
    runs = [tied[0][0] * n for n in range(2, 4 * max(map(len, tied)))]
    return all(_merge(run, _by_whole(by_score))[0] == _merge(run, _by_whole(by_order))[0] for run in runs)


RankOf = Callable[[str, str], int]


def _by_whole(ranks: dict[str, int]) -> RankOf:
    return lambda left, right: ranks.get(left + right, _NEVER)


def _by_pair(ranks: dict[Pair, int]) -> RankOf:
    return lambda left, right: ranks.get((left, right), _NEVER)


def _last_pairs(texts: Iterable[str], rank_of: RankOf) -> Iterator[Pair]:
    """For each text that is merged into one symbol: the two that were joined last. In the order of `texts`."""
    for text in texts:
        symbols, last = _merge(text, rank_of)
        if len(symbols) == 1 and last is not None:
            yield last


def _merge(text: str, rank_of: RankOf) -> tuple[list[str], Pair | None]:
    """The symbols that merging leaves of `text`, and the two that were joined last."""
    symbols, last = list(text), None
    ranks = [rank_of(left, right) for left, right in pairwise(symbols)]
    while ranks and (lowest := min(ranks)) != _NEVER:
        at = ranks.index(lowest)
        last = symbols[at], symbols[at + 1]
        symbols[at : at + 2] = [last[0] + last[1]]
        del ranks[at]
        if at < len(ranks):
            ranks[at] = rank_of(symbols[at], symbols[at + 1])
        if at > 0:
            ranks[at - 1] = rank_of(symbols[at - 1], symbols[at])
    return symbols, last


def _split(merge: Any) -> Pair:
    if isinstance(merge, str | bytes):
        left, _, right = as_text(merge).partition(" ")
        return left, right
    return as_text(merge[0]), as_text(merge[1])


def has_byte_tokens(vocabulary: Vocabulary) -> bool:
    """Whether characters that are no tokens fall back to their bytes."""
    return BYTE in vocabulary.types
