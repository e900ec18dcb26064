"""GGUF as we write it, read by the gguf package and by our own hostile reader; and files that appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from gristmill.formats.gguf import GgufCheckpoint
from gristmill.formats.qtypes import QType
from gristmill.formats.strings import ByteStrings
from gristmill.formats.write_file import WriteError, new_file, new_folder
from gristmill.formats.write_gguf import NewTensor, RawValue, write_gguf
from gristmill.formats.write_gguf_raw import raw_values
from gristmill.formats.write_safetensors import safetensors_bytes, write_safetensors

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.true": True,
    "a.small": 7,
    "a.large": 1 << 40,
    "a.negative": -3,
    "a.float": 0.1,
    "a.double": np.float64(0.1),
    "a.byte": np.uint8(200),
    "a.texts": ["a", b"\xff\x00", "ü", ""],
    "a.ints": [1, 2, 3],
    "a.bools": np.array([True, False]),
    "a.floats": np.array([1.5, 2.5], np.float32),
    "a.big-endian": np.array([1, 2], ">i4"),
    "a.nothing": [],
}
TYPES = {
    "a.true": gguf.GGUFValueType.BOOL,
    "a.small": gguf.GGUFValueType.UINT32,
    "a.large": gguf.GGUFValueType.UINT64,
    "a.negative": gguf.GGUFValueType.INT32,
    "a.float": gguf.GGUFValueType.FLOAT32,
    "a.double": gguf.GGUFValueType.FLOAT64,
    "a.byte": gguf.GGUFValueType.UINT8,
}


def tensor(name: str, x: np.ndarray[Any, np.dtype[np.float32]]) -> NewTensor:
    """Given in pieces of uneven size."""
    data = x.tobytes()
    return NewTensor(name, QType.F32, x.shape, lambda: (data[:5], np.frombuffer(data[5:], np.uint8)))


def test_other_readers_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(3, 5)), "b": rng.normal(size=7), "c": rng.normal(size=(2, 3, 4))}
    arrays = {name: x.astype(np.float32) for name, x in arrays.items()}
    path = tmp_path / "a.gguf"
    n_bytes = write_gguf(path, METADATA, [tensor(name, x) for name, x in arrays.items()])
    assert path.stat().st_size == n_bytes
    reader = gguf.GGUFReader(path)
    for name, kind in TYPES.items():
        assert reader.get_field(name).types == [kind]  # type: ignore[union-attr]
    for found in reader.tensors:
        assert found.data_offset % 32 == 0
        assert np.array_equal(found.data.reshape(arrays[found.name].shape), arrays[found.name])
    ours = GgufCheckpoint(path)
    assert {key: ours.metadata[key] for key in ("a.true", "a.small", "a.large", "a.negative")} == {
        "a.true": True,
        "a.small": 7,
        "a.large": 1 << 40,
        "a.negative": -3,
    }
    texts = ours.metadata["a.texts"]
    assert isinstance(texts, ByteStrings)
    assert texts.tolist() == [b"a", b"\xff\x00", "ü".encode(), b""]
    assert ours.metadata["a.ints"].tolist() == [1, 2, 3]
    assert ours.metadata["a.big-endian"].tolist() == [1, 2]
    assert {name: ours.get(name).shape for name in ours.names()} == {name: x.shape for name, x in arrays.items()}


def test_raw_values_are_copied_byte_for_byte(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", METADATA, [])
    values = raw_values(tmp_path / "a.gguf")
    assert list(values) == list(METADATA)
    write_gguf(tmp_path / "b.gguf", values, [])
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert values["a.small"] == RawValue(4, (7).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"a": object()}, [], "key 'a': a object is nothing that GGUF can hold"),
        ({"a": [[1]]}, [], "key 'a'"),
        ({"a": 1 << 70}, [], "key 'a': a int is nothing"),
        ({}, [tensor("x" * 64, np.zeros(8, np.float32))], "longer than the 63 bytes"),
        ({}, [tensor("x", np.zeros((1,) * 5, np.float32))], "1 to 4 dimensions"),
        ({}, [tensor("x", np.zeros(8, np.float32))] * 2, "the same name"),
        ({}, [NewTensor("x", QType.MXFP4_SPLIT, (32,), list)], "GGUF has no type mxfp4_split"),
        ({}, [NewTensor("x", QType.Q8_0, (2, 33), list)], "not whole blocks of q8_0"),
        ({}, [NewTensor("x", QType.F32, (2,), lambda: [b"1234"])], "4 bytes were made, 8 are needed"),
    ],
)
def test_refusals(metadata: dict[str, Any], tensors: list[NewTensor], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_gguf(tmp_path / "a.gguf", metadata, tensors)
    assert list(tmp_path.iterdir()) == []


def test_safetensors_are_what_the_library_reads(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    tensors = [tensor("a", x), tensor("b", x[:1])]
    assert write_safetensors(tmp_path / "a.safetensors", tensors) == safetensors_bytes(tensors)
    found = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    assert np.array_equal(found["a"], x)
    assert np.array_equal(found["b"], x[:1])
    with pytest.raises(ValueError, match="tensor 'c': safetensors has no type q8_0"):
        safetensors_bytes([NewTensor("c", QType.Q8_0, (32,), list)])


def fail(n_written: int) -> None:
    raise RuntimeError(n_written)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with new_file(path, 3) as file:
        file.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(RuntimeError), new_file(path, 3) as file:
        fail(file.write(b"two"))
    assert path.read_bytes() == b"one"
    with new_file(path, 3) as file:
        file.write(b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_folder_does_too(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(RuntimeError), new_folder(path, 3) as folder:
        fail((folder / "x").write_text("x"))
    assert list(tmp_path.iterdir()) == []
    path.mkdir()  # an empty one is in nobody's way
    with new_folder(path, 3) as folder:
        (folder / "x").write_text("x")
    assert [entry.name for entry in path.iterdir()] == ["x"]
    with pytest.raises(WriteError, match="is there already"), new_folder(path, 3):
        pass


def test_space_is_looked_for_first(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match=r"a: needs \d+ bytes, its disk has \d+ left"),
        new_file(tmp_path / "a", 1 << 60),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
