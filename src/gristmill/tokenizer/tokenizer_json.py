"""Hugging Face's tokenizer.json: what it asks for, checked, and refused by name where it is not implemented.

Format: github.com/huggingface/tokenizers (serialized normalizers, pre_tokenizers, models, processors, decoders)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gristmill._tokenizer import Splitter
from gristmill.tokenizer.build import make_tokenizer
from gristmill.tokenizer.core import CodecTokenizer
from gristmill.tokenizer.interface import TokenizerError
from gristmill.tokenizer.json_fields import Fields, read_json
from gristmill.tokenizer.kinds import AFTER_SPACING, LEFT_STRIP, RIGHT_STRIP, SINGLE_WORD, SPECIAL
from gristmill.tokenizer.split import KNOWN_PATTERNS
from gristmill.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE_MARK,
    UNUSED,
    USER_DEFINED,
    AddedToken,
    Vocabulary,
)

_MAX_ID = 1 << 22


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What lies beside tokenizer.json: its bos, eos and flags win over what the template in it says. Of the tokens that
    it adds, those count that tokenizer.json lacks, as in transformers."""

    bos: str | None = None
    eos_ids: tuple[int, ...] = ()
    eos: str | None = None
    pad: str | None = None
    adds_bos: bool | None = None
    adds_eos: bool | None = None
    added: tuple[AddedToken, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Texts of tokens, each once."""
        return tuple(dict.fromkeys(text for text in (self.bos, self.eos, self.pad) if text is not None))


@dataclass(frozen=True, slots=True)
class _Steps:
    """How text becomes words: all that normalizer and pre_tokenizer say."""

    byte_level: bool
    splitter: Splitter = Splitter.NONE
    patterns: tuple[str, ...] = ()
    nfc: bool = False
    space_first: bool = False
    space_each: bool = False  # also in front of text that follows an added token
    space_unless_there: bool = False
    normalizes_spaces: bool = False  # the normalizer puts them, which Metaspace does later


def load_tokenizer_json(path: Path, beside: ModelFiles | None = None) -> CodecTokenizer:
    """The tokenizer of a tokenizer.json with a BPE model."""
    return make_tokenizer(read_tokenizer_json(path, beside))


def read_tokenizer_json(path: Path, beside: ModelFiles | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer.json with a BPE model. Raises TokenizerError naming the field that is unusable."""
    beside = beside or ModelFiles()
    fields = read_json(path)
    model = fields.child("model")
    _check_model(model)
    steps = _read_steps(fields)
    added = tuple(_read_added(fields, steps, beside))
    added += tuple(_read_named(model, beside, {token.token_id for token in added}))
    added += tuple(_listed_beside(model, beside, added))
    texts, types = _read_vocabulary(model, added, byte_level=steps.byte_level)
    whole_word_first = model.flag("ignore_merges", False)
    unk_id = None
    if not steps.byte_level:
        _check_char_level(model, whole_word_first)
        unk_id = _find_unknown(model)
    vocabulary = Vocabulary(
        "bpe" if steps.byte_level else "spm",
        texts,
        types,
        str(path),
        "$.model.vocab or merges",
        merges=_read_merges(model),
        splitter=steps.splitter,
        patterns=steps.patterns,
        whole_word_first=whole_word_first,
        nfc=steps.nfc,
        space_first=steps.space_first,
        space_after_added=steps.space_each,
        space_unless_there=steps.space_unless_there,
        strips_first_space=_strips_first_space(fields),
        added=added,
        unk_id=unk_id,
    )
    return _with_special(fields, vocabulary, beside)


def _check_model(model: Fields) -> None:
    if model.text("type", "BPE") != "BPE":
        raise model.fail("type", f"is {model.text('type')!r}; supported is 'BPE'")
    if model.get("dropout"):
        raise model.fail("dropout", "is set: ids would be random")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise model.fail(name, f"is {model.get(name)!r:.80}; not supported")


def flags_of(token: Fields, *, is_special: bool) -> int:
    """How an added token claims text. is_special: also where it does not say so itself."""
    flags = SPECIAL if token.flag("special", False) or is_special else 0
    flags |= LEFT_STRIP if token.flag("lstrip", False) else 0
    flags |= RIGHT_STRIP if token.flag("rstrip", False) else 0
    return flags | (SINGLE_WORD if token.flag("single_word", False) else 0)


def check_id(fields: Fields, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_ID:
        raise fields.fail(name, f"is {value!r:.80}; ids are whole numbers from 0 to {_MAX_ID - 1}")
    return value


def _read_added(fields: Fields, steps: _Steps, beside: ModelFiles) -> Iterator[AddedToken]:
    """Special are also those that files beside name. Others that are normalized get their spaces as the text does, and
    are found in what became of it."""
    for token in fields.children("added_tokens"):
        text = token.need_text("content")
        flags = flags_of(token, is_special=text in beside.names)
        if token.flag("normalized", False) and steps.normalizes_spaces and not flags:
            text, flags = " " * steps.space_first + text.replace(SPACE_MARK, " "), AFTER_SPACING
        yield AddedToken(text, check_id(token, "id", token.get("id")), flags)


def _read_named(model: Fields, beside: ModelFiles, known: set[int]) -> Iterator[AddedToken]:
    """Tokens of the vocabulary that are special only because files beside it name them."""
    vocabulary = model.get("vocab")
    for text in beside.names:
        if isinstance(vocabulary, dict) and text in vocabulary:
            token_id = check_id(model, f"vocab[{text!r:.80}]", vocabulary[text])
            if token_id not in known:
                yield AddedToken(text, token_id, SPECIAL)


def _listed_beside(model: Fields, beside: ModelFiles, known: tuple[AddedToken, ...]) -> Iterator[AddedToken]:
    """Tokens of files beside it that it does not add, but for those whose text or id is another's."""
    texts, ids = {token.text for token in known}, {token.token_id for token in known}
    new = [token for token in beside.added if token.text not in texts and token.token_id not in ids]
    vocabulary = model.get("vocab")
    if not new or not isinstance(vocabulary, dict):
        return
    taken = {token_id for token_id in vocabulary.values() if isinstance(token_id, int)}
    for token in new:
        token_id = vocabulary.get(token.text)
        if token_id == token.token_id or (token_id is None and token.token_id not in taken):
            yield token


def _read_vocabulary(model: Fields, added: tuple[AddedToken, ...], *, byte_level: bool) -> tuple[list[str], bytes]:
    """Texts by id and their types; ids that nobody has are empty and unused."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise model.fail("vocab", "is missing or no object of tokens and ids")
    for text, token_id in vocabulary.items():
        check_id(model, f"vocab[{text!r:.80}]", token_id)
    n_ids = 1 + max(max(vocabulary.values()), max((token.token_id for token in added), default=0))
    texts = [""] * n_ids
    types = bytearray([UNUSED]) * n_ids
    for text, token_id in vocabulary.items():
        if types[token_id] != UNUSED:
            raise model.fail("vocab", f"gives the id {token_id} to {texts[token_id]!r:.80} and to {text!r:.80}")
        texts[token_id] = text
        types[token_id] = NORMAL
    if not byte_level and model.flag("byte_fallback", False):
        for byte in range(256):
            token_id = vocabulary.get(f"<0x{byte:02X}>")
            if token_id is not None:
                types[token_id] = BYTE
    for token in added:
        if types[token.token_id] == UNUSED or token.flags & SPECIAL:
            texts[token.token_id] = token.text
            types[token.token_id] = CONTROL if token.flags & SPECIAL else USER_DEFINED
    return texts, bytes(types)


def _read_merges(model: Fields) -> list[Any]:
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise model.fail("merges", "is missing or no list")
    return merges


def _check_char_level(model: Fields, whole_word_first: bool) -> None:
    if whole_word_first:
        raise model.fail("ignore_merges", "is only supported for byte-level models")
    if not model.flag("byte_fallback", False) and not model.flag("fuse_unk", False):
        raise model.fail("fuse_unk", "= false is only supported with byte_fallback")


def _find_unknown(model: Fields) -> int | None:
    text = model.text("unk_token")
    if text is None:
        return None
    token_id = model.get("vocab").get(text)
    if token_id is None:
        raise model.fail("unk_token", f"is {text!r:.80}, which the vocabulary does not hold")
    return int(token_id)


def _read_steps(fields: Fields) -> _Steps:
    normalizers = fields.sequence("normalizer", "normalizers")
    pre_tokenizers = fields.sequence("pre_tokenizer", "pretokenizers")
    kinds = [pre.text("type") for pre in pre_tokenizers]
    if "ByteLevel" in kinds:
        return _read_byte_level(normalizers, pre_tokenizers)
    if not normalizers and not pre_tokenizers:
        raise fields.fail("pre_tokenizer", "is missing, and no normalizer handles spaces")
    return _read_char_level(normalizers, pre_tokenizers)


def _read_byte_level(normalizers: list[Fields], pre_tokenizers: list[Fields]) -> _Steps:
    for normalizer in normalizers:
        if normalizer.text("type") != "NFC":
            raise normalizer.fail("type", f"is {normalizer.text('type')!r}; supported is 'NFC'")
    nfc = bool(normalizers)
    *splits, last = pre_tokenizers
    if last.text("type") != "ByteLevel":
        raise last.fail("type", "comes after ByteLevel; supported are Split steps and then ByteLevel")
    if last.flag("add_prefix_space", False):
        raise last.fail("add_prefix_space", "is not supported")
    patterns = [_read_split(split) for split in splits]
    if last.flag("use_regex", True):
        patterns.append(KNOWN_PATTERNS.gpt2)
    native = KNOWN_PATTERNS.find(patterns[0]) if len(patterns) == 1 else None
    if native is not None:
        return _Steps(True, native, nfc=nfc)
    return _Steps(True, patterns=tuple(patterns), nfc=nfc)


def _read_split(split: Fields) -> str:
    if split.text("type") == "Digits":
        return KNOWN_PATTERNS.digit if split.flag("individual_digits", False) else KNOWN_PATTERNS.digit + "+"
    if split.text("type") != "Split":
        raise split.fail("type", f"is {split.text('type')!r}; supported are 'Split', 'Digits' and 'ByteLevel'")
    if split.text("behavior") != "Isolated" or split.flag("invert", False):
        raise split.fail("behavior", f"is {split.text('behavior')!r}; supported is 'Isolated' without invert")
    return split.child("pattern").need_text("Regex")


def _read_char_level(normalizers: list[Fields], pre_tokenizers: list[Fields]) -> _Steps:
    """SentencePiece models: spaces become U+2581, either by the normalizer or by a Metaspace step."""
    prepends = replaces = False
    for normalizer in normalizers:
        kind = normalizer.text("type")
        if kind == "Prepend" and normalizer.text("prepend") == SPACE_MARK and not replaces:
            prepends = True
        elif kind == "Replace" and _is_space_replacement(normalizer):
            replaces = True
        else:
            raise normalizer.fail("type", f"is {kind!r}; supported are Prepend and Replace that put U+2581")
    if not pre_tokenizers:
        if not replaces:
            raise normalizers[0].fail("type", "leaves spaces as they are, and there is no pre_tokenizer")
        return _Steps(False, space_first=prepends, space_each=prepends, normalizes_spaces=True)
    meta = pre_tokenizers[0]
    if len(pre_tokenizers) > 1 or meta.text("type") != "Metaspace" or prepends or replaces:
        raise meta.fail("type", f"is {meta.text('type')!r}; supported are ByteLevel and a lone Metaspace")
    if meta.text("replacement", SPACE_MARK) != SPACE_MARK or meta.flag("split", True):
        raise meta.fail("split", "must be false, with U+2581 as the replacement")
    scheme = meta.text("prepend_scheme", "always")
    if scheme not in ("always", "first", "never"):
        raise meta.fail("prepend_scheme", f"is {scheme!r}; must be always, first or never")
    return _Steps(False, space_first=scheme != "never", space_each=scheme == "always", space_unless_there=True)


def _is_space_replacement(normalizer: Fields) -> bool:
    return normalizer.child("pattern").text("String") == " " and normalizer.text("content") == SPACE_MARK


def _strips_first_space(fields: Fields) -> bool:
    for decoder in fields.sequence("decoder", "decoders"):
        kind = decoder.text("type")
        if kind == "Strip" and decoder.text("content") == " " and decoder.get("start"):
            return True
        if kind == "Metaspace" and decoder.text("prepend_scheme", "always") != "never":
            return True
    return False


def _with_special(fields: Fields, vocabulary: Vocabulary, beside: ModelFiles) -> Vocabulary:
    special_ids = vocabulary.special_ids
    prefix, suffix = _read_template(fields)
    bos_id = special_ids.get(beside.bos) if beside.bos is not None else (prefix[0] if prefix else None)
    eos_id = special_ids.get(beside.eos) if beside.eos is not None else None
    if beside.adds_bos is not None and bos_id is not None:
        prefix = tuple(token_id for token_id in prefix if token_id != bos_id)
        prefix = (bos_id, *prefix) if beside.adds_bos else prefix
    if beside.adds_eos is not None and eos_id is not None:
        suffix = tuple(token_id for token_id in suffix if token_id != eos_id)
        suffix = (*suffix, eos_id) if beside.adds_eos else suffix
    n_ids = vocabulary.n_tokens
    if any(token_id >= n_ids for token_id in (*prefix, *suffix, *beside.eos_ids)):
        raise TokenizerError(
            f"{fields.where}: post_processor or eos_token_id name an id outside of the vocabulary of {n_ids} tokens"
        )
    return replace(
        vocabulary,
        bos_id=bos_id,
        pad_id=special_ids.get(beside.pad) if beside.pad is not None else None,
        named_end_ids=tuple(dict.fromkeys((*(() if eos_id is None else (eos_id,)), *beside.eos_ids))),
        prefix_ids=prefix,
        suffix_ids=suffix,
    )


def _read_template(fields: Fields) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids before and after a single text, from the TemplateProcessing step of the post_processor."""
    prefix: list[int] = []
    suffix: list[int] = []
    for processor in fields.sequence("post_processor", "processors"):
        kind = processor.text("type")
        if kind == "ByteLevel":
            continue
        if kind != "TemplateProcessing":
            raise processor.fail("type", f"is {kind!r}; supported are TemplateProcessing and ByteLevel")
        tokens = processor.child("special_tokens")
        target = prefix
        for item in processor.children("single"):
            if item.get("Sequence") is not None:
                target = suffix
            else:
                name = item.child("SpecialToken").need_text("id")
                ids = tokens.child(name).get("ids")
                if not isinstance(ids, list):
                    raise tokens.fail(name, "has no ids")
                target.extend(check_id(tokens, name, token_id) for token_id in ids)
    return tuple(prefix), tuple(suffix)
