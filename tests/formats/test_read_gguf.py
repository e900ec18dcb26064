"""GGUF against the gguf package, which writes the files, and against bytes laid down by the specification."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import format_files as ff
import gguf
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import dequantize
from gristmill.formats.gguf_types import ggml_type, ggml_type_id
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import QType
from gristmill.formats.strings import ByteStrings

GGUF_TYPES = [qtype for qtype in QType if qtype.name in gguf.GGMLQuantizationType.__members__]


def write_all_types(path: Path, alignment: int | None = None, split_max_tensors: int = 0) -> dict[str, tuple]:
    """A file of the gguf package's own writer with every type in 1 to 3 dimensions: name -> (qtype, shape, bytes)."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split_max_tensors)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_name("all types")
    writer.add_array("tokenizer.ggml.tokens", ["a", "", "ü" * 300, "z"])
    rng = np.random.default_rng(0)
    written = {}
    for qtype in GGUF_TYPES:
        for leading in ((), (3,), (2, 3)):
            name = f"{qtype.label}.{len(leading)}"
            raw = rng.integers(0, 256, (*leading, 2 * qtype.block_bytes), dtype=np.uint8)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[qtype.name])
            written[name] = (qtype, (*leading, 2 * qtype.block_size), raw.tobytes())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


def assert_holds(path: Path, written: dict[str, tuple]) -> None:
    checkpoint = open_checkpoint(path)
    assert set(checkpoint.names()) == set(written)
    for name, (qtype, shape, raw) in written.items():
        weight = checkpoint.get(name)
        assert (weight.name, weight.qtype, weight.shape) == (name, qtype, shape)
        assert weight.data.tobytes() == raw
        assert weight.data.ctypes.data % qtype.alignment == 0


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_all_tensor_types(tmp_path: Path, alignment: int | None) -> None:
    path = tmp_path / "model.gguf"
    written = write_all_types(path, alignment)
    assert_holds(path, written)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "gguf"
    assert checkpoint.metadata["general.name"] == "all types"
    assert checkpoint.metadata["tokenizer.ggml.tokens"].tolist() == [b"a", b"", "ü".encode() * 300, b"z"]
    with pytest.raises(KeyError):
        checkpoint.get("no such tensor")


def test_version_2_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    written = write_all_types(path)
    raw = bytearray(path.read_bytes())
    assert raw[4] == 3
    raw[4] = 2
    path.write_bytes(raw)
    assert_holds(path, written)


def test_type_numbers_are_ggmls() -> None:
    for theirs in gguf.GGMLQuantizationType:
        ours = ggml_type(theirs)
        assert ours is not None
        assert (ours.label, ours.block_size, ours.block_bytes) == (theirs.name.lower(), *gguf.GGML_QUANT_SIZES[theirs])
        assert (ours.qtype is None) == (theirs.name not in QType.__members__)
        if ours.qtype is not None:
            assert ggml_type_id(ours.qtype) == theirs
    assert ggml_type_id(QType.Q2_0) == 42  # ggml.h; the gguf package does not have it yet
    assert ggml_type(4) is None
    assert ggml_type_id(QType.MXFP4_SPLIT) is None


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [ff.tensor(b"w", [32], 9, 0), ff.tensor(b"i", [2], 26, 64), ff.tensor(b"old", [32, 4], 31, 96)]
    path.write_bytes(ff.gguf([], tensors, b"\0" * 168))
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.names()) == ["w", "i", "old"]
    with pytest.raises(ModelFormatError, match=r"model\.gguf: tensor 'w': has type q8_1.*q4_k.*nvfp4"):
        checkpoint.get("w")
    with pytest.raises(ModelFormatError, match=r"tensor 'i': has type i32"):
        checkpoint.get("i")
    with pytest.raises(ModelFormatError, match=r"tensor 'old': has type q4_0_4_4.*use a file with"):
        checkpoint.get("old")


def nvfp4_file(path: Path, scale: bytes, n: list[int], type_id: int = 0) -> Path:
    """Two experts of three rows, a plain matrix and what both are multiplied by, with scales of activations."""
    infos = [
        ff.tensor(b"blk.0.exps.weight", [64, 3, 2], 40, 0),
        ff.tensor(b"blk.0.exps.scale", n, type_id, 224),
        ff.tensor(b"blk.0.exps.input_scale", [2], 0, 256),
        ff.tensor(b"plain.weight", [64, 2], 40, 288),
        ff.tensor(b"other.scale", [1], 0, 384),
    ]
    data = bytes(range(216)).ljust(224, b"\0") + scale.ljust(64, b"\0") + bytes(range(72)).ljust(128, b"\0")
    path.write_bytes(ff.gguf([], infos, data))
    return path


def test_scales_of_nvfp4_are_part_of_it(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(nvfp4_file(tmp_path / "model.gguf", struct.pack("<ff", 0.5, -3), [2]))
    assert list(checkpoint.names()) == ["blk.0.exps.weight", "plain.weight", "other.scale"]
    weight, plain = checkpoint.get("blk.0.exps.weight"), checkpoint.get("plain.weight")
    assert weight.scales is not None
    assert weight.scales.tolist() == [0.5, 0.5, 0.5, -3, -3, -3]
    assert plain.scales is not None
    assert plain.scales.tolist() == [1, 1]
    ones = gguf.quants.dequantize(np.arange(216, dtype=np.uint8).reshape(6, 36), gguf.GGMLQuantizationType.NVFP4)
    expected = ones.reshape(2, 3, 64) * np.array([0.5, -3], np.float32)[:, None, None]
    np.testing.assert_array_equal(dequantize(weight), expected)


@pytest.mark.parametrize(
    ("scale", "n", "type_id", "problem"),
    [
        (struct.pack("<ff", 1, float("inf")), [2], 0, r"scale': holds a number that is not finite"),
        (struct.pack("<f", 1), [1], 0, r"scale': is f32 \(1,\), which must be f32 \(2,\)"),
        (struct.pack("<f", 1), [2], 1, r"scale': is f16 \(2,\), which must be f32"),
    ],
)
def test_wrong_scales_of_nvfp4_are_named(
    tmp_path: Path, scale: bytes, n: list[int], type_id: int, problem: str
) -> None:
    checkpoint = open_checkpoint(nvfp4_file(tmp_path / "model.gguf", scale, n, type_id))
    with pytest.raises(ModelFormatError, match=rf"model\.gguf: tensor 'blk\.0\.exps\.{problem}"):
        checkpoint.get("blk.0.exps.weight")


def test_every_value_type(tmp_path: Path) -> None:
    scalars = {
        ff.U8: ("<B", 200), ff.I8: ("<b", -100), ff.U16: ("<H", 60000), ff.I16: ("<h", -30000), ff.U32: ("<I", 1 << 31),
        ff.I32: ("<i", -(1 << 31)), ff.F32: ("<f", 0.5), ff.U64: ("<Q", 1 << 63), ff.I64: ("<q", -(1 << 63)),
        ff.F64: ("<d", 1e300),
    }  # fmt: skip
    keys = [ff.key(b"s%d" % t, t, struct.pack(code, v)) for t, (code, v) in scalars.items()]
    for t, (code, v) in scalars.items():
        keys.append(ff.key(b"a%d" % t, ff.ARRAY, ff.u32(t) + ff.u64(2) + struct.pack(code, v) + struct.pack(code, 1)))
    keys += [ff.key(b"yes", ff.BOOL, b"\1"), ff.key(b"no", ff.BOOL, b"\0"), ff.key(b"none", ff.ARRAY, ff.strings([]))]
    keys += [ff.key(b"bools", ff.ARRAY, ff.u32(ff.BOOL) + ff.u64(3) + b"\1\0\1")]
    keys += [ff.key(b"str", ff.STRING, ff.text("grüß".encode())), ff.key(b"bad", ff.STRING, ff.text(b"a\xffb"))]
    path = tmp_path / "keys.gguf"
    path.write_bytes(ff.gguf(keys))
    metadata = open_checkpoint(path).metadata
    for t, (_, v) in scalars.items():
        assert metadata[f"s{t}"] == v
        assert type(metadata[f"s{t}"]) is type(v)
        assert metadata[f"a{t}"].tolist() == [v, 1]
        assert not metadata[f"a{t}"].flags.writeable
    assert metadata["yes"] is True
    assert metadata["no"] is False
    assert metadata["bools"].tolist() == [1, 0, 1]
    assert metadata["str"] == "grüß"
    assert metadata["bad"] == "a\ufffdb"
    assert metadata["none"].tolist() == []


string_lists = st.lists(st.binary(max_size=12) | st.binary(min_size=250, max_size=300), max_size=60)


@given(string_lists, st.integers(0, 300))
@example([b""] * 50, 1)
@example([b"\0" * 7, b"\1\0\0\0\0\0\0\0x", b"\0" * 20] * 10, 1)
@example([b"x" * 66000, b"y", b"x" * 65536, b"z"] * 3, 3)
@settings(max_examples=150, deadline=None)
def test_strings_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, items: list[bytes], copies: int) -> None:
    """Found at once or one by one, in one window or many, the strings are those that were written."""
    items = items * copies
    path = tmp_path_factory.getbasetemp() / "strings.gguf"
    path.write_bytes(ff.gguf([ff.key(b"t", ff.ARRAY, ff.strings(items)), ff.key(b"after", ff.U32, ff.u32(7))]))
    metadata = open_checkpoint(path).metadata
    assert metadata["after"] == 7
    assert_strings(metadata["t"], items)


def assert_strings(found: ByteStrings, expected: list[bytes]) -> None:
    assert len(found) == len(expected)
    assert found.tolist() == list(found) == expected
    assert found[3:-1] == expected[3:-1]
    for i in {0, len(expected) // 2, -1} if expected else ():
        assert found[i] == expected[i]
    with pytest.raises(IndexError):
        found[len(expected)]
    buffer, starts, ends = found.arrays()
    assert [buffer[a:b].tobytes() for a, b in zip(starts[:5], ends[:5], strict=True)] == expected[:5]


THOROUGH = pytest.mark.skipif(not os.environ.get("GRISTMILL_THOROUGH"), reason="slow oracle: GRISTMILL_THOROUGH=1")


@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe", pytest.param("qwen2", marks=THOROUGH)])
def test_real_vocabularies(data: Path, name: str) -> None:
    path = data / "tokenizers" / f"ggml-vocab-{name}.gguf"
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.names()) == []
    fields = {key: field for key, field in gguf.GGUFReader(path).fields.items() if not key.startswith("GGUF.")}
    assert set(checkpoint.metadata) == set(fields)
    for key, field in fields.items():
        value = checkpoint.metadata[key]
        if isinstance(value, ByteStrings):
            assert_strings(value, [field.parts[i].tobytes() for i in field.data])
        else:
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()


@pytest.fixture
def split(tmp_path: Path) -> tuple[list[Path], dict[str, tuple]]:
    written = write_all_types(tmp_path / "model.gguf", split_max_tensors=28)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert [p.name for p in parts] == [f"model-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    return parts, written


@pytest.mark.parametrize("n_numbers", [1, 2, 40])
@pytest.mark.parametrize("name", [b"split.no", b"split.count", b"split.tensors.count"])
def test_numbers_of_splits_are_no_arrays(name: bytes, n_numbers: int, tmp_path: Path) -> None:
    array = ff.key(name, ff.ARRAY, ff.u32(ff.U16) + ff.u64(n_numbers) + bytes(2 * n_numbers))
    for number in (0, 1):
        numbers = {b"split.no": number, b"split.count": 2, b"split.tensors.count": 0}
        keys = [ff.key(key, ff.U16, struct.pack("<H", value)) for key, value in numbers.items() if key != name]
        (tmp_path / f"model-{number + 1:05}-of-00002.gguf").write_bytes(ff.gguf([*keys, array]))
    with pytest.raises(ModelFormatError, match=rf"key '{name.decode()}': is array\(\[0") as caught:
        open_checkpoint(tmp_path / "model-00001-of-00002.gguf")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_split_files_open_from_any_part(split: tuple[list[Path], dict[str, tuple]], opened: int) -> None:
    parts, written = split
    assert_holds(parts[opened], written)
    checkpoint = open_checkpoint(parts[opened])
    assert checkpoint.metadata["general.name"] == "all types"
    assert checkpoint.path == parts[opened]


def test_split_files_that_do_not_belong_together(split: tuple[list[Path], dict[str, tuple]]) -> None:
    parts, _ = split
    second = parts[1].read_bytes()
    shutil.copy(parts[2], parts[1])
    with pytest.raises(ModelFormatError, match=r"model-00002-of-00003\.gguf: key 'split.no': is 2, .* asks for 1"):
        open_checkpoint(parts[0])
    third = parts[2].read_bytes()
    parts[1].write_bytes(second)
    parts[2].write_bytes(second.replace(b"split.no\x02\0\0\0\x01\0", b"split.no\x02\0\0\0\x02\0"))
    with pytest.raises(ModelFormatError, match=r"model-00003.*: tensor .* is also in 'model-00002"):
        open_checkpoint(parts[0])
    other = third.replace(b"split.count\x02\0\0\0\x03\0", b"split.count\x02\0\0\0\x04\0")
    assert other != third
    parts[2].write_bytes(other)
    with pytest.raises(ModelFormatError, match=r"model-00003-of-00003\.gguf: key 'split.count': is 4, .* asks for 3"):
        open_checkpoint(parts[0])
    parts[2].write_bytes(third)
    n = len(GGUF_TYPES) * 3
    n_tensors = ff.key(b"split.tensors.count", ff.I32, struct.pack("<i", n))
    first = parts[0].read_bytes()
    assert n_tensors in first
    lie = ff.key(b"split.tensors.count", ff.I32, struct.pack("<i", n + 1))
    parts[0].write_bytes(first.replace(n_tensors, lie))
    with pytest.raises(ModelFormatError, match=f"'split.tensors.count': is {n + 1}, the parts hold {n}"):
        open_checkpoint(parts[1])
    parts[0].write_bytes(first)
    misnamed = shutil.copy(parts[0], parts[0].with_name("model-00001-of-00005.gguf"))
    with pytest.raises(ModelFormatError, match=r"file name: is 'model-00001-of-00005.gguf', a part of 3 is named like"):
        open_checkpoint(misnamed)
    parts[2].unlink()
    with pytest.raises(ModelFormatError, match=r"part 3 of 3: 'model-00003-of-00003.gguf' is missing"):
        open_checkpoint(parts[0])
    renamed = parts[0].rename(parts[0].with_name("renamed.gguf"))
    with pytest.raises(ModelFormatError, match=r"file name: is 'renamed.gguf', a part of 3 is named like"):
        open_checkpoint(renamed)
