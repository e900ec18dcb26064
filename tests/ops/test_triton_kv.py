"""What happens between projections and attention equals the reference, and nothing else of the cache is touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device import DEVICE, off, on

from gristmill.ops.interface import BLOCK_SIZE
from gristmill.ops.reference import ReferenceOps
from gristmill.ops.triton.kv import kv_layer, store_qkv

REFERENCE = ReferenceOps()
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("n_heads", "n_kv_heads", "head_dim"), [(4, 2, 32), (3, 1, 64), (2, 2, 128), (3, 3, 20)])
@pytest.mark.parametrize("norms", [(True, True), (False, False), (False, True)])
def test_store_qkv(dtype: torch.dtype, n_heads: int, n_kv_heads: int, head_dim: int, norms: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(head_dim)
    n_tokens, n_blocks = 6, 5
    qkv = on(rng.normal(size=(n_tokens, (n_heads + 2 * n_kv_heads) * head_dim)).astype(np.float32), dtype)
    q_norm, k_norm = (rng.uniform(0.5, 1.5, head_dim).astype(np.float32) if given else None for given in norms)
    angle = rng.uniform(-3, 3, (n_tokens, head_dim // 2)).astype(np.float32)
    angles = np.cos(angle) * np.float32(1.2), np.sin(angle) * np.float32(1.2)
    slots = rng.choice(n_blocks * BLOCK_SIZE, n_tokens, replace=False).astype(np.int32)
    expected_layer = REFERENCE.kv_layers(1, n_blocks, n_kv_heads, head_dim, "f32")[0]
    expected = REFERENCE.store_qkv(off(qkv), q_norm, k_norm, 1e-5, angles, expected_layer, slots)
    layer = kv_layer(n_blocks, n_kv_heads, head_dim, dtype, DEVICE)
    for cache in layer:
        cache.zero_()
    device_norms = [None if norm is None else on(norm) for norm in (q_norm, k_norm)]
    q = store_qkv(qkv, *device_norms, 1e-5, (on(angles[0]), on(angles[1])), layer, on(slots))
    np.testing.assert_allclose(off(q), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    for cache, exact in zip(layer, expected_layer, strict=True):
        np.testing.assert_allclose(off(cache).transpose(0, 2, 1, 3), exact, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    wanted = slots[3:4]
    alone = store_qkv(qkv[3:4], *device_norms, 1e-5, (on(angles[0][3:4]), on(angles[1][3:4])), layer, on(wanted))
    np.testing.assert_array_equal(off(alone), off(q)[3:4])
