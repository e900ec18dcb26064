"""Which format a model writes, by its chat template and its vocabulary. It knows no format's grammar."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gristmill.dialogue.types import Kind

_IN_TEMPLATES: Final = (
    (("<|channel|>", "<|message|>"), Kind.HARMONY),
    (("<｜tool▁call▁begin｜>",), Kind.DEEPSEEK),
    (("<tool_call>", "<function=", "<parameter="), Kind.QWEN3_CODER),
    (("<tool_call>",), Kind.QWEN),
    (("<|start_header_id|>",), Kind.LLAMA),
    (("<｜Assistant｜>",), Kind.DEEPSEEK),
    (("<|im_start|>",), Kind.QWEN),
)
_IN_VOCABULARIES: Final = (
    (("<|channel|>", "<|message|>"), Kind.HARMONY),
    (("<｜Assistant｜>",), Kind.DEEPSEEK),
    (("<|start_header_id|>",), Kind.LLAMA),
    (("<|im_start|>",), Kind.QWEN),
)


def detect(template: str | None, special_tokens: Collection[str] = ()) -> Kind:
    """What a model writes whose chat template is `template`, else one with these special tokens (see
    `Tokenizer.special_ids`); PLAIN where neither says it. ChatML is read as Qwen's, with thoughts and Hermes' calls.
    """
    for marks, kind in _IN_TEMPLATES if template is not None else ():
        if template is not None and all(mark in template for mark in marks):
            return kind
    for marks, kind in _IN_VOCABULARIES:
        if all(mark in special_tokens for mark in marks):
            return kind
    return Kind.PLAIN
