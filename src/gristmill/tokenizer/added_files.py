"""Tokens that files beside tokenizer.model add to it: added_tokens.json, and tokenizer_config.json's
added_tokens_decoder, as transformers reads them. tokenizer.json mostly has them itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.json_fields import Fields, read_optional
from gristmill.tokenizer.kinds import SPECIAL
from gristmill.tokenizer.tokenizer_json import check_id, flags_of
from gristmill.tokenizer.vocabulary import CONTROL, UNUSED, USER_DEFINED, AddedToken, Vocabulary

_NAMING = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def add_tokens(vocabulary: Vocabulary, path: Path) -> Vocabulary:
    """`vocabulary`, which is of `path`, with what the files beside that add. TokenizerError where they contradict
    it."""
    tokens = [token if isinstance(token, bytes) else token.encode() for token in vocabulary.tokens]
    types, scores = bytearray(vocabulary.types), list(vocabulary.scores or ())
    added = {token.token_id: token for token in vocabulary.added}
    n_known = len(tokens)
    for token in list_added(path.parent):
        token_id = token.token_id
        try:
            text = token.text.encode()
        except UnicodeEncodeError:
            problem = f"the added token {token_id} has a lone surrogate: it is not Unicode text"
            raise TokenizerError(f"{path.parent}: {problem}") from None
        if token_id < n_known:
            if tokens[token_id] != text:
                known = vocabulary.token_text(token_id)
                problem = f"give the id {token_id} to {token.text!r:.80}, which is {known!r:.80} in {path.name}"
                raise TokenizerError(f"{path.parent}: the added tokens {problem}")
            added.setdefault(token_id, token)
            continue
        n_new = max(token_id + 1 - len(tokens), 0)
        tokens += [b""] * n_new
        types += bytes([UNUSED]) * n_new
        scores += [0.0] * n_new
        tokens[token_id] = text
        types[token_id] = CONTROL if token.flags & SPECIAL else USER_DEFINED
        added[token_id] = token
    return replace(vocabulary, tokens=tokens, types=bytes(types), scores=scores, added=tuple(added.values()))


def list_added(folder: Path) -> Iterator[AddedToken]:
    """What both files list; where both have an id, the configuration says how it claims text."""
    plain, named, config = (
        read_optional(folder / name)
        for name in ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")
    )
    names = frozenset((*_special_texts(named), *_special_texts(config)))
    found = dict[int, AddedToken]()
    for text, value in plain.values.items():
        token_id = check_id(plain, repr(text)[:80], value)
        if not text:
            raise plain.fail(repr(text), f"is an empty text for the id {token_id}")
        found[token_id] = AddedToken(text, token_id, SPECIAL if text in names else 0)
    decoder = Fields({}, "")
    if config.get("added_tokens_decoder") is not None:
        decoder = config.child("added_tokens_decoder")
    for key in decoder.values:
        token = decoder.child(key)
        text = token.need_text("content")
        token_id = check_id(
            decoder, repr(key)[:80], int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key
        )
        found[token_id] = AddedToken(text, token_id, flags_of(token, is_special=text in names))
    yield from found.values()


def _special_texts(fields: Fields) -> Iterator[str]:
    yield from filter(None, map(fields.token_text, _NAMING))
    more = fields.get("additional_special_tokens")
    for item in more if isinstance(more, list) else ():
        text = item.get("content") if isinstance(item, dict) else item
        if isinstance(text, str):
            yield text
