"""What tokenizer.json and tokenizer_config.json say of a vocabulary, field by field. Writes no file.

Format: github.com/huggingface/tokenizers (serialized normalizers, pre_tokenizers, models, processors, decoders)."""

from __future__ import annotations

from typing import Any

from gristmill._tokenizer import Splitter
from gristmill.tokenizer.kinds import AFTER_SPACING, LEFT_STRIP, RIGHT_STRIP, SINGLE_WORD, SPECIAL
from gristmill.tokenizer.merges import has_byte_tokens, merges_of, token_texts
from gristmill.tokenizer.split import KNOWN_PATTERNS
from gristmill.tokenizer.vocabulary import NORMAL, SPACE_MARK, UNUSED, Vocabulary

Fields = dict[str, Any]


def tokenizer_fields(vocabulary: Vocabulary) -> Fields:
    """The content of tokenizer.json."""
    texts = token_texts(vocabulary)
    added = _added_tokens(vocabulary, texts)
    for token in added:
        texts[token["id"]] = token["content"]
    is_bytes = vocabulary.kind == "bpe"
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": ({"type": "NFC"} if vocabulary.nfc else None) if is_bytes else _char_normalizer(vocabulary),
        "pre_tokenizer": _byte_pre_tokenizer(vocabulary) if is_bytes else _metaspace(vocabulary),
        "post_processor": _post_processor(vocabulary, texts),
        "decoder": _byte_level(use_regex=True) if is_bytes else _char_decoder(vocabulary),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if is_bytes or vocabulary.unk_id is None else texts[vocabulary.unk_id],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": not is_bytes,
            "byte_fallback": not is_bytes and has_byte_tokens(vocabulary),
            "ignore_merges": is_bytes and (vocabulary.whole_word_first or vocabulary.is_ranked),
            "vocab": _model_vocabulary(vocabulary, texts),
            "merges": [f"{left} {right}" for left, right in merges_of(vocabulary)],
        },
    }


def config_fields(vocabulary: Vocabulary) -> Fields:
    """The content of tokenizer_config.json."""
    ids = {
        "bos_token": vocabulary.bos_id,
        "eos_token": vocabulary.eos_id,
        "unk_token": vocabulary.unk_id,
        "pad_token": vocabulary.pad_id,
    }
    by_id = {token.token_id: token.text for token in vocabulary.added}
    found: Fields = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": vocabulary.adds_bos,
        "add_eos_token": vocabulary.adds_eos,
    }
    found |= {name: by_id.get(i) or vocabulary.token_text(i) for name, i in ids.items() if i is not None}
    templates = vocabulary.chat_templates
    if set(templates) == {""}:
        found["chat_template"] = templates[""]
    elif templates:
        found["chat_template"] = [{"name": name or "default", "template": text} for name, text in templates.items()]
    return found


def _added_tokens(vocabulary: Vocabulary, texts: list[str]) -> list[Fields]:
    tokens = {token.token_id: _added(token.token_id, token.text, token.flags) for token in vocabulary.added}
    if not vocabulary.space_unless_there:
        # What is found once spaces are put is normalized itself, and may get one in front there.
        put = " " * vocabulary.space_first
        tokens |= {
            token.token_id: tokens[token.token_id] | {"content": token.text.removeprefix(put), "normalized": True}
            for token in vocabulary.added
            if token.flags & AFTER_SPACING and token.text.startswith(put) and token.text != put
        }
    named = (vocabulary.bos_id, *vocabulary.named_end_ids, vocabulary.unk_id, vocabulary.pad_id)
    for token_id in named:
        if token_id is not None and token_id not in tokens:
            tokens[token_id] = _added(token_id, texts[token_id], SPECIAL)
    return [tokens[token_id] for token_id in sorted(tokens)]


def _added(token_id: int, text: str, flags: int) -> Fields:
    return {
        "id": token_id,
        "content": text,
        "single_word": bool(flags & SINGLE_WORD),
        "lstrip": bool(flags & LEFT_STRIP),
        "rstrip": bool(flags & RIGHT_STRIP),
        "normalized": False,
        "special": bool(flags & SPECIAL),
    }


def _model_vocabulary(vocabulary: Vocabulary, texts: list[str]) -> dict[str, int]:
    """Texts and ids. The library gives added tokens that are not here the next ids: all are, unless that is right."""
    types = vocabulary.types
    if vocabulary.kind == "bpe":
        normal = {text: i for i, text in enumerate(texts) if types[i] == NORMAL}
        added = sorted({token.token_id for token in vocabulary.added if types[token.token_id] != NORMAL})
        if added == list(range(len(normal), len(normal) + len(added))):
            return normal
    found: dict[str, int] = {}
    for token_id, text in enumerate(texts):
        if types[token_id] != UNUSED:
            found.setdefault(text, token_id)
    return found


def _char_normalizer(vocabulary: Vocabulary) -> Fields | None:
    if vocabulary.space_unless_there:
        return None
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    if not vocabulary.space_first:
        return replace
    return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE_MARK}, replace]}


def _metaspace(vocabulary: Vocabulary) -> Fields | None:
    if not vocabulary.space_unless_there:
        return None
    scheme = "always" if vocabulary.space_after_added else "first" if vocabulary.space_first else "never"
    return {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme, "split": False}


def _char_decoder(vocabulary: Vocabulary) -> Fields:
    decoders: list[Fields] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if vocabulary.strips_first_space:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": decoders}


def _byte_level(*, use_regex: bool) -> Fields:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _byte_pre_tokenizer(vocabulary: Vocabulary) -> Fields:
    if vocabulary.splitter is Splitter.GPT2:
        return _byte_level(use_regex=True)
    known = KNOWN_PATTERNS.text(vocabulary.splitter)
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in (vocabulary.patterns if known is None else (known,))
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, _byte_level(use_regex=False)]}


def _post_processor(vocabulary: Vocabulary, texts: list[str]) -> Fields | None:
    byte_level = _byte_level(use_regex=True) if vocabulary.kind == "bpe" else None
    around = (*vocabulary.prefix_ids, *vocabulary.suffix_ids)
    if not around:
        return byte_level
    by_id = {i: texts[i] for i in around}

    def items(name: str, type_id: int) -> list[Fields]:
        def special(ids: tuple[int, ...]) -> list[Fields]:
            return [{"SpecialToken": {"id": by_id[i], "type_id": type_id}} for i in ids]

        text = {"Sequence": {"id": name, "type_id": type_id}}
        return [*special(vocabulary.prefix_ids), text, *special(vocabulary.suffix_ids)]

    template = {
        "type": "TemplateProcessing",
        "single": items("A", 0),
        "pair": [*items("A", 0), *items("B", 1)],
        "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for i, text in by_id.items()},
    }
    if byte_level is None:
        return template
    return {"type": "Sequence", "processors": [byte_level, template]}
