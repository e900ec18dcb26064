"""Tiny random models that speak each of the five published chat formats: its template, and its marks as tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import small_model
from dialogue.harmony_oracle import DATA, RANKS
from served import Running, serving

from gristmill import LLM
from gristmill.serve.app import Settings

CONTEXT = 4096
_PLAIN = False  # added tokens that are no special ones: text may show them, and a parser sees them


@dataclass(frozen=True)
class Five:
    """marks: tokens beyond bytes, each with whether it is special. end: the last. closes: what ends a thought."""

    template: str
    marks: dict[str, bool] = field(default_factory=dict)
    end: str = ""
    bos: str | None = None
    closes: str = ""


_HERMES = {"<tool_call>": _PLAIN, "</tool_call>": _PLAIN}
_CHATML = {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True}
_THINK = {"<think>": _PLAIN, "</think>": _PLAIN}
_R1 = [f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")]
_R1 += [f"<｜tool▁{name}｜>" for name in ("outputs▁begin", "outputs▁end", "output▁begin", "output▁end")]
FIVE = {
    "qwen2.5": Five("Qwen-Qwen2.5-7B-Instruct", _CHATML | _HERMES, "<|im_end|>"),
    "qwen3": Five("Qwen-Qwen3-0.6B", _CHATML | _HERMES | _THINK, "<|im_end|>", closes="</think>"),
    "r1": Five(
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        dict.fromkeys(("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"), True)
        | _THINK
        | dict.fromkeys(_R1, _PLAIN),
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
        closes="</think>",
    ),
    "llama3": Five(
        "meta-llama-Llama-3.1-8B-Instruct",
        dict.fromkeys(
            ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"), True
        ),
        "<|eot_id|>",
        "<|begin_of_text|>",
    ),
    "harmony": Five("openai-gpt-oss-120b", closes="<|end|>"),
}


def template(name: str) -> Path:
    path = DATA / "templates" / f"{FIVE[name].template}.jinja"
    if not path.exists():
        pytest.skip(f"{path} is not there; set GRISTMILL_DATA")
    return path


def load(name: str, folder: Path, max_sequences: int = 4) -> LLM:
    """A model of this format; gpt-oss has its own decoder and its own vocabulary, the others' one of bytes."""
    options: dict[str, Any] = {"threads": 1, "max_sequences": max_sequences, "chat_template": template(name)}
    if name == "harmony":
        return LLM(_gpt_oss(folder), tokenizer=RANKS, kv_type="f16", max_context=CONTEXT, **options)
    model = small_model.write_model(folder / "tiny.bin", CONTEXT, 256 + len(FIVE[name].marks))
    _write_tokenizer(folder, FIVE[name])
    return LLM(model, kv_type="f32", max_context=CONTEXT, **options)


def _write_tokenizer(folder: Path, five: Five) -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 256 + i, "content": t, "special": s} | flags for i, (t, s) in enumerate(five.marks.items())]
    vocabulary = {character: i for i, character in enumerate(_byte_characters())}
    bpe = {"type": "BPE", "unk_token": None, "byte_fallback": False, "vocab": vocabulary, "merges": []}
    whole = {"added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level, "model": bpe}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    ends = {"eos_token": five.end, "bos_token": five.bos, "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(ends))


def _byte_characters() -> list[str]:
    """GPT-2's: the printable ones stand for themselves, the others for what follows U+00FF."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(i if i in own else next(others)) for i in range(256)]


def _gpt_oss(folder: Path) -> Path:
    if not RANKS.exists():
        pytest.skip(f"{RANKS} is not there; set GRISTMILL_DATA")
    families = pytest.importorskip("oracles.families")
    sizes = {"vocab_size": 201088, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
    families.build(families.gpt_oss(**sizes, eos_token_id=[200002, 200012])).save_pretrained(folder / "model")
    return folder / "model"


@contextmanager
def running(name: str, folder: Path) -> Iterator[Running]:
    with load(name, folder) as llm, serving(llm, Settings(names=("tiny",))) as server:
        yield server


def short(llm: LLM, name: str, thought: float | None = None) -> dict[str, float]:
    """Biases for a random model to come to an end: no white space, and a thought that closes, the sooner the more."""
    tokenizer = llm.tokenizer
    spaces = (i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i).isspace())
    found = {str(i): -100.0 for i in spaces}
    closing = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}.get(FIVE[name].closes)
    bias = thought if thought is not None else 26.0 if name == "harmony" else 12.0  # its vocabulary is far larger
    return found | ({str(closing): bias} if closing is not None else {})
