"""llama2.c checkpoints: what export.py writes, every tensor comes back byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from format_files import (
    LLAMA2C_FIELDS,
    llama2c_shapes,
    llama2c_state,
    llama2c_v0,
    llama2c_v1,
    llama2c_v2,
    quantize_groups,
)

from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType

FIELD_NAMES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_float_versions(tmp_path: Path, version: int, shared: bool) -> None:
    state = llama2c_state(LLAMA2C_FIELDS, shared)
    path = tmp_path / "model.bin"
    path.write_bytes((llama2c_v0, llama2c_v1)[version](LLAMA2C_FIELDS, state))
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "llama2c"
    assert set(checkpoint.names()) == set(state)
    expected = dict(zip(FIELD_NAMES, LLAMA2C_FIELDS, strict=True))
    assert checkpoint.metadata == expected | {"version": version, "group_size": 0, "shared_classifier": shared}
    for name, values in state.items():
        weight = checkpoint.get(name)
        assert (weight.name, weight.qtype, weight.shape) == (name, QType.F32, values.shape)
        assert weight.data.tobytes() == values.tobytes()
        np.testing.assert_array_equal(dequantize(weight), values)
    with pytest.raises(KeyError):
        checkpoint.get("no such tensor")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("group_size", [1, 4, 8, 24])  # 24 crosses rows of 8 and of 12
def test_int8_version(tmp_path: Path, group_size: int, shared: bool) -> None:
    fields = (24, 48, 2, 3, 1, 7, 16) if group_size == 24 else LLAMA2C_FIELDS
    state = llama2c_state(fields, shared)
    path = tmp_path / "model.bin"
    path.write_bytes(llama2c_v2(fields, state, group_size))
    checkpoint = open_checkpoint(path)
    assert set(checkpoint.names()) == set(llama2c_shapes(fields, shared))
    assert checkpoint.metadata["group_size"] == group_size
    for name, values in state.items():
        weight = checkpoint.get(name)
        assert weight.shape == values.shape
        if values.ndim == 1:
            assert weight.qtype is QType.F32
            assert weight.data.tobytes() == values.tobytes()
            continue
        codes, scales = quantize_groups(values, group_size)
        assert weight.qtype is QType.Q8_GROUPS
        assert weight.data.tobytes() == codes.tobytes()
        assert weight.scales is not None
        assert weight.scales.dtype == np.float32
        assert weight.scales.flags.aligned
        assert weight.scales.tobytes() == scales.tobytes()
        expected = (codes.astype(np.float32) * scales[:, None]).reshape(values.shape)
        np.testing.assert_array_equal(dequantize(weight), expected)


@pytest.mark.parametrize("dim", [640, 896, 1152])
def test_a_width_that_begins_like_a_pickle(tmp_path: Path, dim: int) -> None:
    fields = (dim, 2, 1, 1, 1, 3, 2)
    path = tmp_path / "model.bin"
    path.write_bytes(llama2c_v0(fields, llama2c_state(fields, True)))
    assert path.read_bytes()[0] == 0x80
    assert open_checkpoint(path).metadata["dim"] == dim


def test_trained_checkpoint(data: Path) -> None:
    path = data / "models" / "stories260K.bin"
    checkpoint = open_checkpoint(path)
    floats = np.fromfile(path, dtype="<f4", offset=28)
    np.testing.assert_array_equal(dequantize(checkpoint.get("tok_embeddings.weight")).ravel(), floats[: 512 * 64])
    # From the back: the rotary tables (2 x 512 positions x 4 pairs), before them the final norm.
    tables = floats[-2 * 512 * 4 :].reshape(2, 512, 4)
    np.testing.assert_allclose(tables[0] ** 2 + tables[1] ** 2, 1, atol=1e-6)
    norm = dequantize(checkpoint.get("norm.weight"))
    np.testing.assert_array_equal(norm, floats[-2 * 512 * 4 - 64 : -2 * 512 * 4])
    assert (norm > 0.1).all()
    assert all(np.isfinite(dequantize(checkpoint.get(name))).all() for name in checkpoint.names())
