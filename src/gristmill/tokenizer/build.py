"""From a vocabulary to the tokenizer that works with it. Knows no file format."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gristmill._tokenizer import Codec
from gristmill.tokenizer import kinds
from gristmill.tokenizer.core import CodecTokenizer, SpecialTokens
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.normalize import nfc
from gristmill.tokenizer.split import Split, make_splitter
from gristmill.tokenizer.vocabulary import BYTE, NORMAL, UNUSED, Vocabulary, to_list

_KIND_TABLE: Final = bytes({NORMAL: kinds.TEXT, BYTE: kinds.BYTE}.get(kind, kinds.LITERAL) for kind in range(256))


def make_tokenizer(vocabulary: Vocabulary) -> CodecTokenizer:
    """The tokenizer of a vocabulary. Raises TokenizerError naming file and field where the parts do not fit."""
    try:
        codec = _make_codec(vocabulary)
        for token in vocabulary.added:
            codec.add_phrase(token.text, token.token_id, token.flags)
    except (ValueError, TypeError) as error:
        problem = "holds a lone surrogate" if isinstance(error, UnicodeEncodeError) else error
        raise TokenizerError(f"{vocabulary.where}: {vocabulary.fields}: {problem}") from None
    special = SpecialTokens(
        vocabulary.bos_id,
        vocabulary.eos_ids,
        vocabulary.prefix_ids,
        vocabulary.suffix_ids,
        MappingProxyType(vocabulary.special_ids),
    )
    return CodecTokenizer(
        codec,
        special,
        textless=frozenset(np.flatnonzero(np.frombuffer(vocabulary.types, np.uint8) == UNUSED).tolist()),
        strips_first_space=vocabulary.strips_first_space,
        normalize=nfc if vocabulary.nfc else None,
        split=_make_split(vocabulary),
    )


def _make_codec(vocabulary: Vocabulary) -> Codec:
    tokens, types = _strings(vocabulary.tokens), vocabulary.types.translate(_KIND_TABLE)
    if vocabulary.kind == "bpe":
        if vocabulary.is_ranked:
            return Codec.ranked(tokens, types, vocabulary.splitter)
        merges = _strings(vocabulary.merges)
        return Codec.byte_level(tokens, types, merges, vocabulary.splitter, vocabulary.whole_word_first)
    unknown = -1 if vocabulary.unk_id is None else vocabulary.unk_id
    if vocabulary.scores is not None:
        return Codec.scored(
            tokens,
            types,
            to_list(vocabulary.scores),
            space_first=vocabulary.space_first,
            space_after_phrase=vocabulary.space_after_added,
            unknown=unknown,
        )
    return Codec.char_level(
        tokens,
        types,
        _strings(vocabulary.merges),
        space_first=vocabulary.space_first,
        space_after_phrase=vocabulary.space_after_added,
        space_unless_there=vocabulary.space_unless_there,
        unknown=unknown,
    )


def _make_split(vocabulary: Vocabulary) -> Split | None:
    if not vocabulary.patterns:
        return None
    try:
        return make_splitter(list(vocabulary.patterns))
    except ValueError as error:
        raise TokenizerError(
            f"{vocabulary.where}: the pre-tokenizer's pattern is no regular expression that is understood: {error}"
        ) from None


def _strings(array: Any) -> Any:
    """What the codec takes: one buffer with places where the array is such (no object for each string), else a list."""
    arrays = getattr(array, "arrays", None)
    return arrays() if arrays is not None else to_list(array)
