"""The CPU keeps the bits of every type, in silence."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from oracles import kquants

from gristmill.formats.open import open_checkpoint
from gristmill.models.build import build
from gristmill.ops.cpu import CpuOps

D, FF, VOCAB = 256, 512, 40
MATRICES = {
    "token_embd.weight": (VOCAB, D),
    "output.weight": (VOCAB, D),
    "blk.0.attn_q.weight": (D, D),
    "blk.0.attn_k.weight": (D, D),
    "blk.0.attn_v.weight": (D, D),
    "blk.0.attn_output.weight": (D, D),
    "blk.0.ffn_gate.weight": (FF, D),
    "blk.0.ffn_up.weight": (FF, D),
    "blk.0.ffn_down.weight": (D, FF),
}


def write(path: Path, qtype: Type) -> Path:
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        writer.add_tensor(name, np.ones(D, np.float32))
    for name, shape in MATRICES.items():
        values = rng.normal(size=shape).astype(np.float32)
        data = (kquants if qtype in kquants.QUANTIZERS else gguf.quants).quantize(values, qtype)
        writer.add_tensor(name, data, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("qtype", [Type.Q4_1, Type.Q5_0, *kquants.QUANTIZERS])
@pytest.mark.parametrize("n_exact", [0, 1 << 18])
def test_nothing_is_lost(tmp_path: Path, qtype: Type, n_exact: int, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = open_checkpoint(write(tmp_path / "m.gguf", qtype))
    ops = CpuOps(1, n_exact=n_exact, n_as_stored=1 << 18)
    build(checkpoint, ops)
    assert not caplog.messages
    for name in MATRICES:
        weight = checkpoint.get(name)
        rows = ops.embed(ops.put([weight]), np.arange(weight.shape[0], dtype=np.int32))
        np.testing.assert_array_equal(rows, kquants.dequantize(weight.data, qtype.name).reshape(weight.shape))
