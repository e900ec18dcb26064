"""A checkpoint and the torch model that says what it computes, with texts on which float32 engines cannot differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PretrainedConfig, PreTrainedModel

MIN_MARGIN = 1e-3  # between the two best logits of a greedy step: a smaller one is a coin toss between float32 engines
MIN_ROUTER_MARGIN = 2e-5  # between the last expert chosen and the first that was not, for the same reason


def router_of(layer: torch.nn.Module) -> torch.nn.Module | None:
    """What ranks the experts of a decoder's layer: gpt-oss's `router`, Qwen3's `gate`; None where there are none."""
    if not hasattr(layer.mlp, "experts"):
        return None
    return layer.mlp.router if hasattr(layer.mlp, "router") else layer.mlp.gate


@dataclass(frozen=True, slots=True)
class Oracle:
    """A checkpoint and the torch model (float32, eager attention) that holds exactly the numbers of its files."""

    path: Path
    model: PreTrainedModel
    config: PretrainedConfig

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """float32 [T, vocab]: what follows each prefix of `ids`."""
        with torch.inference_mode():
            result: NDArray[np.float32] = self.model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
        return result

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int] | None:
        """The best `n_tokens` continuations, by a full forward pass each (no cache); None if any is a near tie."""
        ids = list(prompt)
        for _ in range(n_tokens):
            last = self.logits(ids)[-1]
            second, first = np.partition(last, -2)[-2:]
            if first - second <= MIN_MARGIN:
                return None
            ids.append(int(last.argmax()))
        return ids[len(prompt) :]

    def router_margins(self, ids: list[int]) -> NDArray[np.float32]:
        """[T]: the least gap, over layers, of the last chosen expert's logit to the next; infinity without experts."""
        k = getattr(self.config, "num_experts_per_tok", None)
        if k is None:
            return np.full(len(ids), np.inf, np.float32)
        gaps: list[NDArray[np.float32]] = []

        def note(_module: torch.nn.Module, _inputs: Any, outputs: tuple[torch.Tensor, ...]) -> None:
            ranked = outputs[0].sort(dim=-1, descending=True).values
            gaps.append((ranked[:, k - 1] - ranked[:, k]).numpy())

        hooks = [router_of(layer).register_forward_hook(note) for layer in self.model.model.layers]
        self.logits(ids)
        for hook in hooks:
            hook.remove()
        return np.min(gaps, axis=0)

    def text(self, n_tokens: int, seed: int = 0) -> list[int]:
        """Random ids, the first from `seed` on whose routing no float32 engine can see differently."""
        for attempt in range(seed, seed + 100):
            ids: list[int] = np.random.default_rng(attempt).integers(self.config.vocab_size, size=n_tokens).tolist()
            if self.router_margins(ids).min() > MIN_ROUTER_MARGIN:
                return ids
        raise AssertionError(f"{self.path.name}: no text of {n_tokens} tokens routes clearly")

    def clear_greedy(self, n_prompt: int, n_tokens: int) -> tuple[list[int], list[int]]:
        """A random prompt and its greedy continuation, the first in which no step is a near tie."""
        for attempt in range(100):
            prompt = self.text(n_prompt, seed=1000 + 100 * attempt)
            continuation = self.greedy(prompt, n_tokens)
            if continuation and self.router_margins(prompt + continuation).min() > MIN_ROUTER_MARGIN:
                return prompt, continuation
        raise AssertionError(f"{self.path.name}: no greedy run of {n_tokens} tokens without a near tie")
