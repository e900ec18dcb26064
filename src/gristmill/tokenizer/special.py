"""Which tokens end an answer, by the texts that model families give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# End of text and end of turn, as Llama 2 and 3, Qwen, DeepSeek, Gemma, Phi and gpt-oss write them.
END_TEXTS: Final = (
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|return|>",
    "<|call|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
)


def find_end_ids(special_ids: Mapping[str, int], named: tuple[int, ...]) -> tuple[int, ...]:
    """Ids that end an answer: `named` by the model's files first, then those whose text says so, each once."""
    texts = [text for text in END_TEXTS if text in special_ids]
    if "<|return|>" in texts and "<|end|>" in texts:
        texts.remove("<|end|>")  # Harmony: it ends a message, and another message may follow
    return tuple(dict.fromkeys((*named, *(special_ids[text] for text in texts))))
