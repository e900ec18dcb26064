"""A text from a model in training, to see how it goes: every token by a forward pass over the whole text."""

from __future__ import annotations

import torch

from gristmill.ops.reference import sample
from gristmill.tokenizer.interface import Tokenizer
from gristmill.train.model import Model

TEMPERATURE, TOP_P = 0.8, 0.95


@torch.no_grad()
def sample_text(model: Model, tokenizer: Tokenizer, first_id: int, prompt: str, n_tokens: int, seed: int) -> str:
    """Up to n_tokens after the prompt, to the end of the document or of the context. Its text, the prompt included."""
    ids = [first_id, *tokenizer.encode(prompt, add_special=False)]
    device = next(model.parameters()).device
    ends = {first_id, *tokenizer.eos_ids}
    for _ in range(min(n_tokens, model.config.max_context - len(ids))):
        tokens = torch.tensor([ids], device=device)
        logits = model.logits(tokens, slice(len(ids) - 1, len(ids)))[0].float().cpu().numpy()
        chosen = sample(logits[: tokenizer.vocab_size], TEMPERATURE, 0, TOP_P, 0.0, seed, len(ids))
        if chosen in ends:
            break
        ids.append(chosen)
    return tokenizer.decode(ids[1:])
