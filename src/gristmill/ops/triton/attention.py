"""Attention over the paged cache: few new tokens of a sequence by `attention_decode`, more by `attention_prompt`."""

from __future__ import annotations

import torch

from gristmill.ops.triton import attention_decode, attention_prompt
from gristmill.ops.triton.kv import KvLayer
from gristmill.types import Batch

Tensor = torch.Tensor


def attention(
    q: Tensor,
    layer: KvLayer,
    batch: Batch,
    block_tables: Tensor,
    window: int,
    sinks: Tensor | None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Causal grouped-query attention of q [T, H D] over each token's own sequence, scaled by 1 / sqrt(D): [T, H D] of
    dtype, or q's.

    layer         k and v [n_blocks, G, 16, D] of bfloat16, float16 or float32; products are of that type, sums float32
    batch         query_start int32 [S + 1] and seq_lens int32 [S] are read, on the device: the tokens of a sequence
                  are its last ones, in order, and there is at least one. A sequence of length 0 is padding: it gets
                  what the first sequence's first token gets
    block_tables  int32 [S, B]
    window        0 sees everything, w the last w positions
    sinks         float32 [H], a logit that joins the softmax's denominator
    """
    head_dim, n_kv_heads = layer[0].shape[3], layer[0].shape[1]
    y = torch.empty_like(q, dtype=dtype or q.dtype)
    lengths = batch.query_start, batch.seq_lens
    few = attention_decode.most_tokens(q.shape[1] // head_dim, n_kv_heads)
    if batch.least_tokens <= few:
        attention_decode.attend(q, layer, *lengths, block_tables, window, sinks, y)
    if len(q) > len(batch.seq_lens):  # some sequence has more than one token, perhaps many
        attention_prompt.attend(q, layer, *lengths, block_tables, window, sinks, few, y)
    return y
