"""A tokenizer as llguidance asks for one: bytes of each id, and text to ids. It knows no grammar, and imports none of
the library."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.tokenizer.interface import Tokenizer, TokenizerError


class GuideVocabulary:
    """What llguidance asks of a tokenizer: public attributes as it reads them, and a call that never raises, since
    that would be a panic there.

    tokens             bytes of each id of the model, vocab_size of them
    special_token_ids  ids that are never text: the tokenizer's special tokens, and eos_ids
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        n_known = min(tokenizer.vocab_size, vocab_size)
        special = {i for i in range(n_known) if tokenizer.is_special(i)} | set(eos_ids)
        texts = [tokenizer.token_bytes(i) for i in range(n_known)]
        # The library takes 0xFF for the mark of a special token. No UTF-8 has it, so no grammar misses such tokens.
        self.tokens = [b"" if i not in special and text[:1] == b"\xff" else text for i, text in enumerate(texts)]
        self.tokens += [b""] * (vocab_size - n_known)  # nothing is spelled with these, so they are never allowed
        self.special_token_ids = sorted(special)
        self.eos_token_id = eos_ids[0]
        self.bos_token_id = None
        self.is_tokenizer_wrapper = True
        self._tokenizer = tokenizer
        self._special = special
        self._ids = {text: i for i, text in enumerate(self.tokens) if text and i not in special}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """Ids whose bytes together are those of `text`, the usual ones where possible."""
        data = text.encode()
        try:
            ids = self._tokenizer.encode(text, add_special=False)
        except TokenizerError:
            ids = []
        if self._spells(ids, data):
            return ids
        return self._cut(data)  # a space that SentencePiece puts in front, normalization

    def _spells(self, ids: list[int], data: bytes) -> bool:
        if any(i >= len(self.tokens) or i in self._special for i in ids):
            return False
        return b"".join(self.tokens[i] for i in ids) == data

    def _cut(self, data: bytes) -> list[int]:
        """The longest tokens from the left; nothing where the vocabulary lacks a byte."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            end = next((end for end in ends if data[at:end] in self._ids), None)
            if end is None:
                return []
            ids.append(self._ids[data[at:end]])
            at = end
        return ids
