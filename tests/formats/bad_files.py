"""The table of broken model files: each with the words that its error must hold."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import format_files as ff

Content = bytes | Mapping[str, object] | Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Bad:
    """name: of the file or folder; words: all must be in the message."""

    id: str
    name: str
    content: Content
    words: tuple[str, ...]


def sparse(front: bytes, size: int) -> Callable[[Path], None]:
    """A file of `size` bytes that takes no space on disk: `front`, then zeros."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(front)
            file.truncate(size)

    return write


def many_long_strings(path: Path) -> None:
    """300 key-values of 15 MiB each, all holes."""
    with path.open("wb") as file:
        file.write(ff.gguf(n_keys=300, pad=False))
        for i in range(300):
            file.write(ff.key(b"k%d" % i, ff.STRING, ff.u64(15 << 20)))
            file.seek(15 << 20, os.SEEK_CUR)
        file.write(b"\0" * 64)


def two_arrays_of_strings(path: Path) -> None:
    """Each of half as many empty strings as are allowed together, and one more."""
    n = (1 << 20) + 1
    with path.open("wb") as file:
        file.write(ff.gguf(n_keys=2, pad=False))
        for i in range(2):
            file.write(ff.key(b"k%d" % i, ff.ARRAY, ff.u32(ff.STRING) + ff.u64(n)))
            file.seek(8 * n, os.SEEK_CUR)
        file.write(b"\0" * 64)


def many_long_names(path: Path) -> None:
    """3,000 keys of 64 KiB each, all holes but for a number."""
    with path.open("wb") as file:
        file.write(ff.gguf(n_keys=3000, pad=False))
        for i in range(3000):
            file.write(ff.u64(1 << 16) + b"%04d" % i)
            file.seek((1 << 16) - 4, os.SEEK_CUR)
            file.write(ff.u32(ff.U8) + b"\0")


def one_tensor(dims: tuple[int, ...], type_id: int = 0, offset: int = 0, data: bytes = b"\0" * 64) -> bytes:
    return ff.gguf([], [ff.tensor(b"blk.0.w", dims, type_id, offset)], data)


def gguf_key(name: bytes, value_type: int, payload: bytes) -> bytes:
    return ff.gguf([ff.key(name, value_type, payload)])


HUGE = 1 << 63
GOOD = ff.good_gguf()
MANY_EMPTY = ff.key(b"k", ff.ARRAY, ff.u32(ff.STRING) + ff.u64(2 << 20))
SHORT = ff.gguf([ff.key(b"k", ff.U32, ff.u32(1))], pad=False)


def _gguf() -> list[Bad]:
    tensor = ff.tensor
    cases: list[tuple[str, Content, tuple[str, ...]]] = [
        ("empty", b"", ("file", "empty")),
        ("magic only", b"GGUF", ("version", "ends at 4")),
        ("magic of another", b"GGML" + GOOD[4:], ("magic", "GGML")),
        ("version 0", ff.gguf(version=0), ("version", "is 0")),
        ("version 1", ff.gguf(version=1), ("version", "is 1", "convert")),
        ("version 4", ff.gguf(version=4), ("version", "is 4")),
        ("big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), ("version", "3 is stored big-endian", "convert")),
        ("counts cut off", GOOD[:20], ("key count", "ends at 20")),
        ("2^63 keys", ff.gguf(n_keys=HUGE), ("key count", str(HUGE))),
        ("2^64 - 1 tensors", ff.gguf(n_tensors=2 * HUGE - 1), ("tensor count", str(2 * HUGE - 1))),
        ("as many keys as bytes", ff.gguf(data=b"\0" * 999, n_keys=999), ("key count", "is 999")),
        ("one key too many", ff.gguf([ff.key(b"k", ff.U32, ff.u32(1))], n_keys=2), ("key 1",)),
        ("more keys than the limit", sparse(ff.gguf(n_keys=1 << 17), 1 << 30), ("key count", str(1 << 17))),
        ("more tensors than the limit", sparse(ff.gguf(n_tensors=1 << 17), 1 << 30), ("tensor count", str(1 << 17))),
        ("key name past the end", SHORT[:24] + ff.u64(1 << 40) + SHORT[32:], ("key 0", str(1 << 40))),
        ("key name of 70,000 bytes", gguf_key(b"k" * 70000, ff.U8, b"\0"), ("key 0", "70000")),
        ("key name empty", gguf_key(b"", ff.U32, ff.u32(1)), ("key 0", "empty")),
        ("key name not UTF-8", gguf_key(b"\xff\xfe", ff.U8, b"\0"), ("key 0", "UTF-8")),
        ("key twice", ff.gguf([ff.key(b"k", ff.U8, b"\0")] * 2), ("key 'k'", "twice")),
        ("value cut off", SHORT[:-2], ("key 'k'", "needs 4 bytes")),
        ("value type 13", gguf_key(b"k", 13, b"\0" * 8), ("key 'k'", "value type 13")),
        ("bool of 2", gguf_key(b"k", ff.BOOL, b"\2"), ("key 'k'", "bool", "2")),
        ("string past the end", gguf_key(b"k", ff.STRING, ff.u64(100)), ("key 'k'", "100")),
        ("string of 2^64 - 1", gguf_key(b"k", ff.STRING, ff.u64(2 * HUGE - 1)), ("key 'k'", str(2 * HUGE - 1))),
        (
            "string of 17 MiB",
            sparse(ff.gguf([ff.key(b"k", ff.STRING, ff.u64(17 << 20))], pad=False), 20 << 20),
            ("key 'k'", str(17 << 20)),
        ),
        ("300 strings of 15 MiB", many_long_strings, ("key 'k2'", "text")),
        ("3,000 keys of 64 KiB", many_long_names, ("key 512", "text")),
        ("array of arrays", gguf_key(b"k", ff.ARRAY, ff.u32(ff.ARRAY) + ff.u64(1)), ("key 'k'", "array of arrays")),
        ("array of type 99", gguf_key(b"k", ff.ARRAY, ff.u32(99) + ff.u64(1)), ("key 'k'", "element type 99")),
        ("array past the end", gguf_key(b"k", ff.ARRAY, ff.u32(ff.F64) + ff.u64(20)), ("key 'k'", "is 20")),
        ("array of 2^61", gguf_key(b"k", ff.ARRAY, ff.u32(ff.U64) + ff.u64(1 << 61)), ("key 'k'", str(1 << 61))),
        (
            "array of 65 Mi",
            sparse(ff.gguf([ff.key(b"k", ff.ARRAY, ff.u32(ff.U8) + ff.u64(65 << 20))], pad=False), 1 << 30),
            ("key 'k'", str(65 << 20)),
        ),
        (
            "strings of 2^60",
            gguf_key(b"k", ff.ARRAY, ff.u32(ff.STRING) + ff.u64(1 << 60)),
            ("key 'k'", str(1 << 60)),
        ),
        (
            "40 million empty strings",
            sparse(ff.gguf([ff.key(b"k", ff.ARRAY, ff.u32(ff.STRING) + ff.u64(40_000_000))], pad=False), 1 << 30),
            ("key 'k'", "40000000"),
        ),
        (
            "more strings in two arrays than the limit",
            two_arrays_of_strings,
            ("length of key 'k1'", "1048577", "1048575"),
        ),
        (
            "2 Mi empty strings, then rubbish",
            sparse(ff.gguf([MANY_EMPTY], n_keys=2, pad=False), 1 << 30),
            ("key 1", "empty"),
        ),
        (
            "string element past the end",
            gguf_key(b"k", ff.ARRAY, ff.u32(ff.STRING) + ff.u64(2) + ff.text(b"a") + ff.u64(100)),
            ("element", "key 'k'", "100"),
        ),
        (
            "string element of 2^64 - 1",
            gguf_key(b"k", ff.ARRAY, ff.u32(ff.STRING) + ff.u64(3) + ff.text(b"a") + b"\xff" * 64),
            ("element", "key 'k'", str(2 * HUGE - 1)),
        ),
        ("alignment 0", gguf_key(b"general.alignment", ff.U32, ff.u32(0)), ("general.alignment", "is 0")),
        ("alignment 24", gguf_key(b"general.alignment", ff.U32, ff.u32(24)), ("general.alignment", "power of two")),
        ("alignment a string", gguf_key(b"general.alignment", ff.STRING, ff.text(b"x")), ("general.alignment", "'x'")),
        ("alignment a bool", gguf_key(b"general.alignment", ff.BOOL, b"\1"), ("general.alignment", "True")),
        ("5 dimensions", one_tensor((1, 1, 1, 1, 1)), ("tensor 'blk.0.w'", "5 dimensions")),
        ("2^32 - 1 dimensions", GOOD.replace(ff.u32(1) + ff.u64(8), b"\xff" * 4 + ff.u64(8)), ("'norm'", "4294967295")),
        ("a dimension of 0", one_tensor((4, 0)), ("tensor 'blk.0.w'", "[4, 0]")),
        ("a product past 2^64", one_tensor((1 << 32, 1 << 32, 1 << 32)), ("tensor 'blk.0.w'", "file ends at")),
        ("a product of 2^64", one_tensor((1 << 62, 4)), ("tensor 'blk.0.w'", "file ends at")),
        ("bytes of 2^64", one_tensor((1 << 62,)), ("tensor 'blk.0.w'", "file ends at")),
        ("a size of 2^64 - 1", one_tensor((2 * HUGE - 1,)), ("tensor 'blk.0.w'", "file ends at")),
        ("one number too many", one_tensor((17,)), ("tensor 'blk.0.w'", "file ends at")),
        ("no data", one_tensor((16,), data=b""), ("tensor 'blk.0.w'", "file ends at")),
        ("offset past the end", one_tensor((1,), offset=64), ("tensor 'blk.0.w'", "file ends at")),
        ("offset of 2^64 - 32", one_tensor((1,), offset=2 * HUGE - 32), ("tensor 'blk.0.w'", "file ends at")),
        ("offset not aligned", one_tensor((1,), offset=4), ("tensor 'blk.0.w'", "offset 4", "32")),
        ("half a block", one_tensor((48,), type_id=8), ("tensor 'blk.0.w'", "48", "q8_0", "32")),
        ("a scalar of blocks", one_tensor((), type_id=8), ("tensor 'blk.0.w'", "q8_0", "32")),
        ("type 4, withdrawn", one_tensor((32,), type_id=4), ("tensor 'blk.0.w'", "type 4")),
        ("type 2^32 - 1", one_tensor((32,), type_id=(1 << 32) - 1), ("tensor 'blk.0.w'", "type 4294967295")),
        ("a type not computed", one_tensor((32,), 9, data=b"\0" * 40), ("tensor 'blk.0.w'", "q8_1", "use a file")),
        ("tensor name twice", ff.gguf([], [tensor(b"w", [1], 0, 0), tensor(b"w", [1], 0, 32)], b"\0" * 64), ("twice",)),
        ("tensor name empty", ff.gguf([], [tensor(b"", [1], 0, 0)], b"\0" * 64), ("tensor 0", "empty")),
        ("tensor name not UTF-8", ff.gguf([], [tensor(b"\xc3", [1], 0, 0)], b"\0" * 64), ("tensor 0", "UTF-8")),
        (
            "tensor name with terminal codes",
            ff.gguf([], [tensor(b"\x1b[31m\n" + b"w" * 9000, [1, 1, 1, 1, 1], 0, 0)]),
            ("'\\x1b[31m\\n",),
        ),
        (
            "tensors overlap",
            ff.gguf([], [tensor(b"a", [16], 0, 0), tensor(b"b", [8], 0, 32)], b"\0" * 96),
            ("tensor 'b'", "inside tensor 'a'"),
        ),
        ("tensor infos cut off", ff.gguf([], [tensor(b"w" * 60, [1], 0, 0)], pad=False)[:-5], ("offset of tensor",)),
        ("split.count a string", gguf_key(b"split.count", ff.STRING, ff.text(b"2")), ("split.count", "'2'")),
        ("split.count -1", gguf_key(b"split.count", ff.I32, struct.pack("<i", -1)), ("split.count", "-1")),
        ("split of 65535", gguf_key(b"split.count", ff.U16, b"\xff\xff"), ("file name", "model-00001-of-65535.gguf")),
    ]
    parts = ff.gguf([ff.key(b"split.count", ff.U16, b"\2\0"), ff.key(b"split.no", ff.U16, b"\0\0")])
    return [Bad(f"gguf: {name}", "model.gguf", content, words) for name, content, words in cases] + [
        Bad("gguf: split, part missing", "m-00001-of-00002.gguf", parts, ("part 2 of 2", "m-00002-of-00002.gguf")),
    ]


def _safetensors() -> list[Bad]:
    entry, make = ff.entry, ff.safetensors
    w = entry("F32", [2], 0, 8)
    cases: list[tuple[str, Content, tuple[str, ...]]] = [
        ("empty", b"", ("file", "empty")),
        ("7 bytes", b"\2\0\0\0\0\0\0", ("header length", "has 7")),
        ("header of 2^64 - 1", make(b"{}", length=2 * HUGE - 1), ("header length", str(2 * HUGE - 1))),
        ("header past the end", make(b"{}", length=3), ("header length", "is 3")),
        ("header over 16 MiB", sparse(make(b"{}", length=(16 << 20) + 1), 1 << 30), ("header length", "16777217")),
        ("header of nothing", make(b""), ("header", "not JSON")),
        ("header a list", make(b"[]"), ("header", "list")),
        ("header not JSON", make(b"{'a': 1}"), ("header", "not JSON")),
        ("header not UTF-8", make(b'{"\xff": 1}'), ("header", "not JSON", "utf-8")),
        ("header nested 100,000 deep", make(b'{"a":' + b"[" * 100_000), ("header", "nested too deeply")),
        ("header with a number of 5,000 digits", make(b'{"a":' + b"9" * 5000 + b"}"), ("header", "not JSON")),
        ("header of zeros", sparse(ff.u64(16 << 20), 20 << 20), ("header", "not JSON")),
        (
            "header of 5 million lists",
            make(b'{"a":[' + b"[]," * 5_000_000 + b"]}"),
            ("header", "5000002 brackets"),
        ),
        ("header of 2 million numbers", make(b'{"a":[' + b"1," * 2_000_000 + b"9]}"), ("header", "2000000 commas")),
        ("header of 1 million numbers", make(b'{"a":[' + b"999999," * 1_000_000 + b"9]}"), ("tensor 'a'", "[999999")),
        ("header of 0.26 million lists", make(b'{"a":[' + b"[]," * 262_000 + b"[]]}"), ("tensor 'a'", "object")),
        ("key twice", make(b'{"a":1,"a":2}'), ("header", "'a'", "twice")),
        ("field twice", make(b'{"a":{"dtype":"F32","dtype":"F16"}}'), ("header", "'dtype'", "twice")),
        ("tensor not an object", make({"w": 1}), ("tensor 'w'", "1")),
        ("no dtype", make({"w": {"shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8), ("tensor 'w'", "dtype None")),
        ("dtype unknown", make({"w": entry("F31", [2], 0, 8)}, b"\0" * 8), ("tensor 'w'", "'F31'")),
        ("dtype a list", make({"w": entry(["F32"], [2], 0, 8)}, b"\0" * 8), ("tensor 'w'", "['F32']")),
        ("shape null", make({"w": entry("F32", None, 0, 8)}, b"\0" * 8), ("tensor 'w'", "shape None")),
        ("size negative", make({"w": entry("F32", [-2, -1], 0, 8)}, b"\0" * 8), ("tensor 'w'", "[-2, -1]")),
        ("size a float", make({"w": entry("F32", [2.0], 0, 8)}, b"\0" * 8), ("tensor 'w'", "[2.0]")),
        ("size a bool", make({"w": entry("F32", [True, 2], 0, 8)}, b"\0" * 8), ("tensor 'w'", "[True, 2]")),
        ("size 2^64", make({"w": entry("F32", [1 << 64], 0, 8)}, b"\0" * 8), ("tensor 'w'", str(1 << 64))),
        ("product 2^56", make({"w": entry("F32", [1 << 54, 4], 0, 0)}), ("tensor 'w'", "does not fit")),
        ("nothing, 2^124 times", make({"w": entry("F32", [0, 1 << 62, 1 << 62], 0, 0)}), ("tensor 'w'", "shape [0, ")),
        ("nine dimensions", make({"w": entry("F32", [1] * 9, 0, 4)}, b"\0" * 4), ("tensor 'w'", "shape")),
        ("shape too small", make({"w": entry("F32", [1], 0, 8)}, b"\0" * 8), ("tensor 'w'", "does not fit its 8")),
        ("offsets reversed", make({"w": entry("F32", [2], 8, 0)}, b"\0" * 8), ("tensor 'w'", "[8, 0]")),
        ("offsets negative", make({"w": entry("F32", [2], -8, 0)}, b"\0" * 8), ("tensor 'w'", "[-8, 0]")),
        ("offsets past the end", make({"w": entry("F32", [2], 0, 8)}, b"\0" * 7), ("tensor 'w'", "holds 7")),
        ("offsets 2^64", make({"w": entry("F32", [2], 0, 1 << 64)}, b"\0" * 8), ("tensor 'w'", str(1 << 64))),
        ("three offsets", make({"w": w | {"data_offsets": [0, 4, 8]}}, b"\0" * 8), ("tensor 'w'", "[0, 4, 8]")),
        ("overlap", make({"a": w, "b": entry("F32", [2], 4, 12)}, b"\0" * 12), ("tensor 'b'", "overlap")),
        ("the same bytes twice", make({"a": w, "b": w}, b"\0" * 8), ("tensor 'b'", "overlap")),
        ("gap", make({"a": w, "b": entry("F32", [1], 12, 16)}, b"\0" * 16), ("tensor 'b'", "gap")),
        ("gap in front", make({"a": entry("F32", [2], 4, 12)}, b"\0" * 12), ("tensor 'a'", "gap")),
        ("rest behind", make({"a": w}, b"\0" * 9), ("file size", "tensors end at")),
        ("one byte less", ff.good_safetensors()[:-1], ("tensor 'e_scales'", "holds 73")),
        ("blocks without scales", make({"x_blocks": entry("U8", [1, 1, 16], 0, 16)}, b"\0" * 16), ("'x_scales'",)),
        (
            "blocks and scales of other shapes",
            make({"x_blocks": entry("U8", [2, 1, 16], 0, 32), "x_scales": entry("U8", [1, 1], 32, 33)}, b"\0" * 33),
            ("tensor 'x_blocks'", "(2, 1, 16)", "(1, 1)"),
        ),
        (
            "blocks of floats",
            make({"x_blocks": entry("F32", [1, 1, 16], 0, 64), "x_scales": entry("U8", [1, 1], 64, 65)}, b"\0" * 65),
            ("tensor 'x_blocks'", "F32", "U8"),
        ),
        (
            "joint name taken",
            make(
                {
                    "x": entry("F32", [1], 0, 4),
                    "x_blocks": entry("U8", [1, 1, 16], 4, 20),
                    "x_scales": entry("U8", [1, 1], 20, 21),
                },
                b"\0" * 21,
            ),
            ("tensor 'x_blocks'", "'x'"),
        ),
        ("a dtype not computed", make({"w": entry("F8_E5M2", [8], 0, 8)}, b"\0" * 8), ("'w'", "F8_E5M2", "BF16")),
        ("FP8 without scales", make({"w": entry("F8_E4M3", [2, 4], 0, 8)}, b"\0" * 8), ("'w'", "'w_scale'", "BF16")),
        (
            "FP8 with too few scales",
            make({"w": entry("F8_E4M3", [4, 2], 0, 8), "w_scale": entry("F32", [2], 8, 16)}, b"\0" * 16),
            ("'w_scale'", "(2,)", "(4, 2)"),
        ),
        ("scales alone", make({"w_scales": entry("U8", [8], 0, 8)}, b"\0" * 8), ("tensor 'w_scales'", "U8")),
    ]
    return [Bad(f"safetensors: {name}", "model.safetensors", content, words) for name, content, words in cases]


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


def _folders() -> list[Bad]:
    good = ff.good_safetensors()
    config: dict[str, object] = {"config.json": {}}
    index = "model.safetensors.index.json"

    def mapped(file_name: object) -> dict[str, object]:
        return config | {index: {"weight_map": {"a.weight": file_name}}, "a.safetensors": good}

    def loop(path: Path) -> None:
        ff.folder(path, {"config.json": b"{}"})
        (path / "model.safetensors").symlink_to("model.safetensors")

    def pipe(path: Path) -> None:
        ff.folder(path, {"config.json": b"{}"})
        os.mkfifo(path / "model.safetensors")

    def pipe_config(path: Path) -> None:
        ff.folder(path, {"model.safetensors": good})
        os.mkfifo(path / "config.json")

    def nested(path: Path) -> None:
        ff.folder(path, {"config.json": b"{}"})
        (path / "model.safetensors").mkdir()

    def big_config(path: Path) -> None:
        ff.folder(path, {"model.safetensors": good})
        sparse(b"{", 17 << 20)(path / "config.json")

    cases: list[tuple[str, Content, tuple[str, ...]]] = [
        ("empty", {}, ("folder", "no *.safetensors")),
        ("no config", {"model.safetensors": good}, ("config.json", "missing")),
        ("config a list", {"model.safetensors": good, "config.json": b"[]"}, ("config.json", "list")),
        ("config not JSON", {"model.safetensors": good, "config.json": b"{"}, ("config.json", "not JSON")),
        ("config a bomb", {"model.safetensors": good, "config.json": b"[" * 10**5}, ("config.json", "deeply")),
        ("config of 17 MiB", big_config, ("config.json", "17825792")),
        ("config a pipe", pipe_config, ("config.json", "not a regular file")),
        ("pickle", config | {"pytorch_model.bin": b"PK\3\4"}, ("pytorch_model.bin", "pickle", "convert")),
        ("Meta's pickle", {"consolidated.00.pth": b"PK\3\4"}, ("consolidated.00.pth", "pickle", "convert")),
        ("a GGUF in it", {"model.gguf": GOOD}, ("folder", "open one of its files: 'model.gguf'")),
        ("weights a pointer", config | {"model.safetensors": LFS_POINTER}, ("model.safetensors", "git lfs pull")),
        ("weights a pipe", pipe, ("model.safetensors", "not a regular file")),
        ("weights a folder", nested, ("model.safetensors", "not a regular file")),
        ("weights a loop of links", loop, ("model.safetensors",)),
        ("weights damaged", config | {"model.safetensors": good[:-1]}, ("model.safetensors", "e_scales")),
        ("name in two files", config | {"a.safetensors": good, "b.safetensors": good}, ("b.safetensors", "a.safe")),
        ("index not JSON", config | {index: b"\0"}, (index, "not JSON")),
        ("index without map", config | {index: {"metadata": {}}}, (index, "weight_map", "None")),
        ("map a list", config | {index: {"weight_map": []}}, (index, "weight_map", "[]")),
        ("map to a parent", mapped("../a.safetensors"), (index, "weight_map['a.weight']", "../a.safetensors")),
        ("map to a root", mapped("/etc/a.safetensors"), (index, "weight_map['a.weight']", "/etc/a.safetensors")),
        ("map to a subfolder", mapped("sub/a.safetensors"), (index, "weight_map['a.weight']", "plain name")),
        ("map with a backslash", mapped("..\\a.safetensors"), (index, "weight_map['a.weight']", "plain name")),
        ("map with a zero", mapped("a\0.safetensors"), (index, "weight_map['a.weight']", "plain name")),
        ("map to another kind", mapped("config.json"), (index, "weight_map['a.weight']", "plain name")),
        ("map to an endless name", mapped("a" * 5000 + ".safetensors"), (index, "['a.weight']", "plain name")),
        ("map to a number", mapped(7), (index, "weight_map['a.weight']", "7")),
        ("map to nothing", mapped("b.safetensors"), (index, "weight_map['a.weight']", "missing")),
        (
            "map to a file without it",
            config | {index: {"weight_map": {"z": "a.safetensors"}}, "a.safetensors": good},
            ("a.safetensors", "tensor 'z'", "missing"),
        ),
    ]
    return [Bad(f"folder: {name}", "model", content, words) for name, content, words in cases]


def _llama2c() -> list[Bad]:
    fields = ff.LLAMA2C_FIELDS
    state = ff.llama2c_state(fields, True)
    v0, v1 = ff.llama2c_v0(fields, state), ff.llama2c_v1(fields, state)
    v2 = ff.llama2c_v2(fields, state, 4)
    names = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len")

    def patched(raw: bytes, at: int, code: str, value: int) -> bytes:
        return raw[:at] + struct.pack(code, value) + raw[at + struct.calcsize(code) :]

    cases: list[tuple[str, Content, tuple[str, ...]]] = [
        ("empty", b"", ("file", "empty")),
        ("27 bytes", v0[:27], ("header", "27")),
        ("v0 header alone", v0[:28], ("file size", f"exactly {len(v0)}")),
        ("v0 truncated", v0[:-1], ("file size", f"is {len(v0) - 1} bytes", f"exactly {len(v0)}")),
        ("v0 one byte more", v0 + b"\0", ("file size", f"is {len(v0) + 1} bytes")),
        ("v0 own classifier missing", patched(v0, 20, "<i", -20), ("file size", f"exactly {len(v0) + 640}")),
        ("v0 shared classifier present", patched(ff.llama2c_v0(fields, ff.llama2c_state(fields, False)), 20, "<i", 20),
         ("file size",)),
        ("v1 header cut", v1[:255], ("header", "255")),
        ("v1 truncated", v1[:-4], ("file size", f"exactly {len(v1)}")),
        ("v1 one byte more", v1 + b"\0", ("file size", f"exactly {len(v1)}")),
        ("v1 flag of 2", patched(v1, 36, "<B", 2), ("shared_classifier", "is 2")),
        ("v2 truncated", v2[:-1], ("file size", f"exactly {len(v2)}")),
        ("v2 one byte more", v2 + b"\0", ("file size", f"exactly {len(v2)}")),
        ("v2 groups of 0", patched(v2, 37, "<i", 0), ("group_size", "is 0")),
        ("v2 groups of -4", patched(v2, 37, "<i", -4), ("group_size", "is -4")),
        ("v2 groups of 2^31 - 1", patched(v2, 37, "<i", 2**31 - 1), ("group_size", "2147483647")),
        ("v2 groups that do not divide", patched(v2, 37, "<i", 3), ("group_size", "is 3", "does not divide")),
        ("version 3", patched(v1, 4, "<i", 3), ("version", "is 3")),
        ("version -1", patched(v1, 4, "<i", -1), ("version", "is -1")),
        ("heads that do not divide dim", patched(v0, 12, "<i", 3), ("n_heads", "is 3", "dim 8")),
        ("heads of odd width", patched(v0, 12, "<i", 8), ("n_heads", "is 8", "even")),
        ("kv heads that do not divide heads", patched(v0, 16, "<i", 3), ("n_kv_heads", "is 3", "n_heads 2")),
        ("billions of layers", sparse(ff.llama2c_header(0, (2, 1, 1 << 30, 1, 1, 1, 1)), 1 << 30), ("n_layers",)),
    ]  # fmt: skip
    for i, name in enumerate(names):
        for value in (0, -(2**31), 2**31 - 1):
            cases.append((f"v0 {name} {value}", patched(v0, 4 * i, "<i", value), (name, str(abs(value)))))
        cases.append((f"v1 {name} -1", patched(v1, 8 + 4 * i, "<i", -1), (name, "-1")))
    for i, name in enumerate(names[:5]):
        cases.append((f"v0 {name} -1", patched(v0, 4 * i, "<i", -1), (name, "-1")))
    return [Bad(f"llama2c: {name}", "model.bin", content, words) for name, content, words in cases]


def _others() -> list[Bad]:
    cases: list[tuple[str, str, Content, tuple[str, ...]]] = [
        ("PyTorch zip", "model.pt", b"PK\3\4" + b"\0" * 60, ("pickle", "convert")),
        ("PyTorch zip as .bin", "pytorch_model.bin", b"PK\3\4" + b"\0" * 60, ("pickle", "convert")),
        ("PyTorch before 1.6", "model.pth", b"\x80\2\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", ("pickle", "convert")),
        ("pickle without a suffix", "model", b"\x80\4\x95\x10\0\0\0\0\0\0\0\x8c\2os", ("pickle", "convert")),
        ("text named .pt", "model.pt", b"hello", ("pickle", "convert")),
        ("Git LFS pointer", "model.gguf", LFS_POINTER, ("Git LFS", "git lfs pull")),
        ("text", "README.md", b"# gristmill, a page of text about models", ("first bytes", "no known model format")),
        ("text named .gguf", "a.gguf", b"hello hello hello hello hello hello", ("magic", "b'hell'")),
        ("text named .safetensors", "a.safetensors", b"hello hello hello", ("header length",)),
        ("JSON", "config.json", json.dumps({"model_type": "llama", "vocab_size": 3}).encode(), ("first bytes",)),
        ("terminal codes in its name", "a\x1b[31m\n.gguf", b"GGUF\0\0\0\0", ("a\\x1b[31m\\n.gguf", "version")),
    ]
    return [Bad(f"other: {label}", name, content, words) for label, name, content, words in cases]


BAD_FILES = [*_gguf(), *_safetensors(), *_folders(), *_llama2c(), *_others()]
