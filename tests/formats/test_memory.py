"""Weights are views of the file until they are released, and reading a large file does not keep it in memory."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import format_files as ff
import numpy as np
import pytest
from process_memory import resident_bytes

from gristmill.formats.checkpoint import Weight
from gristmill.formats.mapped import MappedFile, place_of
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.ops.cpu import CpuOps

N_BYTES = 48 << 20


def as_gguf(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    half = len(data) // 2
    infos = [ff.tensor(b"a", [half // 4], 0, 0), ff.tensor(b"b", [half // 4], 0, half)]
    path.write_bytes(ff.gguf([], infos, data))
    return path


def as_safetensors(folder: Path, data: bytes) -> Path:
    path = folder / "model.safetensors"
    half = len(data) // 2
    n = half // 16 * 16 // 17
    header = {
        "a": ff.entry("F32", [half // 4], 0, half),
        "b_blocks": ff.entry("U8", [n, 1, 16], half, half + 16 * n),
        "b_scales": ff.entry("U8", [n, 1], half + 16 * n, half + 17 * n),
    }
    raw = json.dumps(header).encode()
    path.write_bytes(ff.safetensors(raw + b" " * (-len(raw) % 8), data[: half + 17 * n]))
    return path


def as_llama2c(folder: Path, data: bytes) -> Path:
    path = folder / "model.bin"
    fields = (1024, 2, 1, 1, 1, len(data) // 4096, 2)
    size = sum(4 * int(np.prod(shape)) for shape in ff.llama2c_shapes(fields, True).values()) + 2 * 2 * 512 * 4
    path.write_bytes(ff.llama2c_header(0, fields) + data.ljust(size, b"\1"))
    return path


@pytest.mark.parametrize("write", [as_gguf, as_safetensors, as_llama2c])
def test_release_drops_the_pages_and_keeps_the_bytes(tmp_path: Path, write: Callable[[Path, bytes], Path]) -> None:
    path = write(tmp_path, np.arange(N_BYTES // 4, dtype="<u4").tobytes())
    before = resident_bytes("RssFile")
    checkpoint = open_checkpoint(path)
    assert resident_bytes("RssFile") - before < N_BYTES // 4
    weights = [checkpoint.get(name) for name in checkpoint.names()]
    sums = [int(weight.data.sum()) for weight in weights]
    assert resident_bytes("RssFile") - before > N_BYTES * 3 // 4
    for weight in weights:
        checkpoint.release(weight)
    assert resident_bytes("RssFile") - before < N_BYTES // 4
    assert [int(weight.data.sum()) for weight in weights] == sums
    checkpoint.release_all()
    assert resident_bytes("RssFile") - before < N_BYTES // 4
    assert [int(weight.data.sum()) for weight in weights] == sums


@pytest.mark.parametrize("rows", ["as stored", "reversed", "scattered"])
def test_a_large_matrix_is_not_in_memory_twice(tmp_path: Path, rows: str) -> None:
    """It is read from its file a little at a time; what is no file's map stays as it is."""
    cols = 1024
    values = (np.arange(N_BYTES // 4) // 2).astype("<f4").reshape(-1, cols)  # of 23 bits, which are all kept
    path = tmp_path / "values"
    path.write_bytes(values.tobytes())
    numbers = np.arange(len(values), dtype=np.int32)
    orders = {"reversed": numbers[::-1].copy(), "scattered": np.random.default_rng(0).permutation(numbers)}
    order = orders.get(rows)
    own, file = values.copy(), MappedFile(path)
    ops = CpuOps(2)
    before = resident_bytes("RssFile")
    mapped, kept = (
        ops.put([Weight("w", data, QType.F32, values.shape, row_order=order)])
        for data in (file.view(0, N_BYTES), own.view(np.uint8).reshape(-1))
    )
    assert resident_bytes("RssFile") - before < N_BYTES // 4
    assert np.array_equal(own, values)
    for linear in (mapped, kept):
        assert np.array_equal(ops.embed(linear, numbers), values if order is None else values[order])


def test_views_without_gaps_of_a_files_map_can_be_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(np.arange(1 << 14, dtype=np.uint32).tobytes())
    data = MappedFile(path).view(0, 1 << 16)
    for part in (data, data[4096:].view(np.float32).reshape(-1, 16)):
        place = place_of(part)
        assert place is not None
        name, descriptor, offset = place
        assert name == str(path)
        assert os.pread(descriptor, part.nbytes, offset) == part.tobytes()
    not_the_file = (data.copy(), data[::2], np.frombuffer(bytes(8192), np.uint8), np.ones(3), np.zeros((2, 4))[1])
    assert all(place_of(each) is None for each in not_the_file)


def test_the_file_is_closed_with_its_last_view(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(bytes(8192))
    data = MappedFile(path).view(4096, 4096)
    place = place_of(data)
    assert place is not None
    assert os.fstat(place[1]).st_ino == path.stat().st_ino
    del data
    with suppress(OSError):  # it is no file's number, or another file's by now
        assert os.fstat(place[1]).st_ino != path.stat().st_ino


def test_unaligned_numbers_are_copied_and_the_pages_dropped(tmp_path: Path) -> None:
    values = np.arange(N_BYTES // 4, dtype="<f4")
    header = json.dumps({"a": ff.entry("F32", [N_BYTES // 4], 0, N_BYTES)}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(ff.safetensors(header + b" " * (-len(header) % 4 + 1), values.tobytes()))
    before = resident_bytes("RssFile")
    checkpoint = open_checkpoint(path)  # whose map stays
    weight = checkpoint.get("a")
    assert resident_bytes("RssFile") - before < N_BYTES // 4
    assert not weight.data.flags.writeable
    np.testing.assert_array_equal(weight.data.view("<f4"), values)


def test_views_cannot_be_written(tmp_path: Path) -> None:
    path = as_gguf(tmp_path, bytes(64))
    data = open_checkpoint(path).get("a").data
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_a_weight_outlives_its_checkpoint(tmp_path: Path) -> None:
    path = as_gguf(tmp_path, bytes(range(64)))
    weight = open_checkpoint(path).get("b")
    gc.collect()
    path.unlink()
    assert weight.data.tobytes() == bytes(range(32, 64))


def test_release_leaves_what_is_not_of_the_file(tmp_path: Path) -> None:
    path = as_gguf(tmp_path, bytes(8192))
    file = MappedFile(path)
    own = np.ones(1 << 16, dtype=np.uint8)
    file.release(own)
    assert own.all()
    file.release(file.view(0, 0))
    file.release(file.view(1, 100))
    assert file.view(0, 4).tobytes() == b"GGUF"
