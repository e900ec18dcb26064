"""A type that no kernel reads is stored again as Q8_0, and the user is told; all others keep their bits in silence."""

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


def test_it_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(open_checkpoint(write(tmp_path / "m.gguf", Type.Q2_K)), CpuOps(1, n_exact=0))
    assert caplog.messages == ["m.gguf: 9 q2_k tensors re-quantized to q8_0, no kernel reads that type"]


@pytest.mark.parametrize(
    ("qtype", "n_exact"), [(Type.Q8_0, 0), (Type.Q4_1, 0), (Type.Q3_K, 0), (Type.IQ4_XS, 0), (Type.Q2_K, 1 << 18)]
)
def test_it_is_silent_where_nothing_is_lost(
    tmp_path: Path, qtype: Type, n_exact: int, caplog: pytest.LogCaptureFixture
) -> None:
    build(open_checkpoint(write(tmp_path / "m.gguf", qtype)), CpuOps(1, n_exact=n_exact))
    assert not caplog.messages
