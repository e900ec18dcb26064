"""Float32 logits and greedy tokens of every family are those of transformers, whichever way the folder is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.families import CONFIGS, save
from oracles.oracle import Oracle

from gristmill import LLM, SamplingParams

Save = Callable[[Path], Oracle]
N_POSITIONS = 200
N_PROMPT, N_GREEDY = 12, 64
TOLERANCE = 1e-4  # float32 sums in another order: logits of deviation 2 differ by 1e-5 at most

STYLE_4 = ("llama3.1", "mistral", "qwen2-tied", "qwen2-window", "qwen3-tied", "qwen3-yarn", "qwen3-moe", "gpt-oss")
CASES: Mapping[str, Save] = {
    **{name: partial(save, name) for name in CONFIGS},
    **{f"{name}, transformers 4": partial(save, name, style=4) for name in STYLE_4},
    "llama2-gqa-tied, shards": partial(save, "llama2-gqa-tied", max_shard_size="300KB"),
    "qwen3-moe, shards": partial(save, "qwen3-moe", max_shard_size="300KB"),
    "llama3, float16": partial(save, "llama3", dtype=torch.float16),
}


@pytest.mark.parametrize("name", CASES)
def test_logits(name: str, checkpoint: Callable[[str, Save], Oracle]) -> None:
    oracle = checkpoint(name, CASES[name])
    ids = oracle.text(N_POSITIONS)
    with LLM(oracle.path, device="cpu", threads=2, kv_type="f32") as llm:
        logits = llm.logits(ids)
    assert logits.dtype == np.float32
    assert logits.shape == (N_POSITIONS, oracle.config.vocab_size)
    assert np.abs(logits - oracle.logits(ids)).max() < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens(name: str, checkpoint: Callable[[str, Save], Oracle]) -> None:
    oracle = checkpoint(name, CASES[name])
    prompt, continuation = oracle.clear_greedy(N_PROMPT, N_GREEDY)
    with LLM(oracle.path, device="cpu", threads=2, kv_type="f32") as llm:
        params = SamplingParams(temperature=0, max_tokens=N_GREEDY, ignore_eos=True)
        assert llm.generate([prompt], params)[0].outputs[0].token_ids == continuation
