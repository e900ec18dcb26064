"""GGUF as we write it, read by the gguf package and by our own hostile reader; and files that appear whole."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
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
from gristmill.formats.write_llama2c import Llama2cShape, write_llama2c
from gristmill.formats.write_safetensors import safetensors_bytes, write_safetensors

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.true": True,
    "a.small": 7,
    "a.large": 1 << 40,
    "a.negative": -3,
    "a.largest": (1 << 32) - 1,
    "a.larger": 1 << 32,
    "a.lowest": -(1 << 31),
    "a.lower": -(1 << 31) - 1,
    "a.float": 0.1,
    "a.double": np.float64(0.1),
    "a.byte": np.uint8(200),
    "a.texts": ["a", b"\xff\x00", "ü", ""],
    "a.ints": [1, 2, 3],
    "a.bools": np.array([True, False]),
    "a.floats": np.array([1.5, 2.5], np.float32),
    "a.big-endian": np.array([1, 2], ">i4"),
    "a.nothing": [],
    "a.no floats": np.array([], np.float32),
    "a.no texts": ByteStrings(np.zeros(0, np.uint8), np.zeros(1, np.int64)),
}
TYPES = {
    "a.true": gguf.GGUFValueType.BOOL,
    "a.small": gguf.GGUFValueType.UINT32,
    "a.large": gguf.GGUFValueType.UINT64,
    "a.negative": gguf.GGUFValueType.INT32,
    "a.largest": gguf.GGUFValueType.UINT32,
    "a.larger": gguf.GGUFValueType.UINT64,
    "a.lowest": gguf.GGUFValueType.INT32,
    "a.lower": gguf.GGUFValueType.INT64,
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
    empty = {"a.nothing": 8, "a.no texts": 8, "a.no floats": 6}  # GGUF's numbers for texts and float32
    assert {key: int.from_bytes(values[key].data[:4], "little") for key in empty} == empty


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"a": object()}, [], "key 'a': a object is nothing that GGUF can hold"),
        ({"a": [[1]]}, [], "key 'a'"),
        ({"a": 1 << 70}, [], "key 'a': a int is nothing"),
        ({}, [tensor("x" * 64, np.zeros(8, np.float32))], "longer than the 63 bytes"),
        ({}, [tensor("ü" * 32, np.zeros(8, np.float32))], "longer than the 63 bytes"),
        ({}, [tensor("x", np.zeros((1,) * 5, np.float32))], "1 to 4 dimensions"),
        ({}, [tensor("x", np.zeros((2, 0), np.float32))], r"shape \(2, 0\) must have .* none of them 0"),
        ({}, [tensor("x", np.zeros((), np.float32))], r"shape \(\) must have 1 to 4 dimensions"),
        ({"a": np.zeros((2, 2))}, [], "key 'a': a ndarray is nothing"),
        ({"a": ["x", 1]}, [], "key 'a': its elements are of no type, or of several"),
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


def test_a_name_may_have_63_bytes(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {}, [tensor("x" * 63, np.zeros(8, np.float32))])
    assert [found.name for found in gguf.GGUFReader(tmp_path / "a.gguf").tensors] == ["x" * 63]


@pytest.mark.parametrize(("dim", "hidden", "group"), [(256, 512, 64), (96, 136, 8), (64, 96, 32), (5, 7, 1)])
def test_groups_of_llama2c_divide_all_rows(dim: int, hidden: int, group: int) -> None:
    assert Llama2cShape(dim, hidden, 1, 1, 1, 8, 4, tied=True).group_size == group


def test_pieces_that_do_not_make_a_tensor_are_named(tmp_path: Path) -> None:
    """And nothing is left of the file; a folder's goes with the folder."""
    shape = Llama2cShape(4, 8, 1, 1, 1, 8, 4, tied=True)
    with pytest.raises(ValueError, match=r"tensor 'tok_embeddings\.weight': 3 bytes were made, 128 are needed"):
        write_llama2c(tmp_path / "a.bin", 0, shape, lambda name, group: [b"123"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="tensor 'x': 4 bytes were made, 8 are needed"):
        write_safetensors(tmp_path / "a.safetensors", [NewTensor("x", QType.F32, (2,), lambda: [b"1234"])])


def test_safetensors_are_what_the_library_reads(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    tensors = [tensor("a", x), tensor("b", x[:1])]
    assert write_safetensors(tmp_path / "a.safetensors", tensors) == safetensors_bytes(tensors)
    found = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    assert np.array_equal(found["a"], x)
    assert np.array_equal(found["b"], x[:1])
    assert int.from_bytes((tmp_path / "a.safetensors").read_bytes()[:8], "little") % 8 == 0
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}  # without which transformers does not load it
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


def test_no_folder_takes_the_place_of_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a container has of its host: an empty folder that cannot be replaced."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "disk")
    with pytest.raises(WriteError, match="disk: is where a disk is mounted"), new_folder(tmp_path / "disk", 3):
        pass
    with new_folder(tmp_path / "disk" / "a", 3) as folder:
        (folder / "x").write_text("x")


@pytest.mark.parametrize(("make", "call"), [(new_file, "open"), (new_folder, "mkdir")])
def test_a_signal_between_what_is_made_and_its_block_leaves_nothing(
    make: Any, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = getattr(Path, call)

    def made_and_ended(path: Path, *args: Any) -> None:
        if opened := made(path, *args):
            opened.close()
        monkeypatch.undo()
        assert path.exists()
        raise SystemExit(143)

    monkeypatch.setattr(Path, call, made_and_ended)
    with pytest.raises(SystemExit), make(tmp_path / "a", 1):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_all_of_it_is_on_the_disk_before_it_has_its_name(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its name is, before it counts as written."""
    named, sync = list[bool](), os.fsync

    def fsync(descriptor: int) -> None:
        named.append((tmp_path / "a").exists())
        sync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    with make(tmp_path / "a", 3) as place:
        (place / "x").write_text("x") if make is new_folder else place.write(b"x")
    assert named == [False, True]


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_errors_of_other_files_stay_theirs(make: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="other"), make(tmp_path / "a", 3):
        (tmp_path / "other").read_bytes()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told = "a: cannot be written: No space left on device; nothing of it was kept"
    with pytest.raises(WriteError, match=told), make(tmp_path / "a", 3):
        raise full
    assert list(tmp_path.iterdir()) == []


def test_space_is_looked_for_first(tmp_path: Path) -> None:
    with (
        pytest.raises(WriteError, match=r"a: needs \d+ bytes, its disk has \d+ left"),
        new_file(tmp_path / "a", 1 << 60),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_two_writers_of_one_name_do_not_know_of_each_other(make: Any, tmp_path: Path) -> None:
    """Of one process, or of two containers whose processes have one number. The last to end is there."""

    def write(place: Any, text: str) -> int:
        n: int = (place / "x").write_text(text) if isinstance(place, Path) else place.write(text.encode())
        return n

    path = tmp_path / "a"
    first: AbstractContextManager[Any] = make(path, 3)
    write(first.__enter__(), "one")
    with pytest.raises(RuntimeError), make(path, 3) as place:
        fail(write(place, "two"))
    first.__exit__(None, None, None)
    assert (path / "x" if path.is_dir() else path).read_text() == "one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A device would be lost for all others; a pipe stands for it here."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "endless").symlink_to("endless")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "endless", "folder"):
        with (
            pytest.raises(WriteError, match=f"{name}: is there already and not a regular"),
            new_file(tmp_path / name, 1),
        ):
            pass
    for name in ("pipe", "link", "endless"):
        with (
            pytest.raises(WriteError, match=f"{name}: is there already and not an empty"),
            new_folder(tmp_path / name, 1),
        ):
            pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["endless", "folder", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_leads_to_what_is_new(there: bool, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "model"
    if there:
        target.write_bytes(b"old")
    (tmp_path / "link").symlink_to(target)
    with new_file(tmp_path / "link", 3) as file:
        file.write(b"new")
        assert len(list(tmp_path.iterdir())) == 2, "it is written beside its place"
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"
    assert [entry.name for entry in target.parent.iterdir()] == ["model"]
    (tmp_path / "to nowhere").symlink_to("gone/model")
    told = f"the folder {tmp_path / 'gone'} is not there"
    with pytest.raises(WriteError, match=told), new_file(tmp_path / "to nowhere", 3):
        pass
    (tmp_path / "to folder").symlink_to("elsewhere/folder")
    with new_folder(tmp_path / "to folder", 1) as folder:
        (folder / "x").write_text("x")
    assert (tmp_path / "to folder").is_symlink()
    assert (tmp_path / "elsewhere" / "folder" / "x").read_text() == "x"
