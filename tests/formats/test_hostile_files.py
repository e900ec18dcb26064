"""No file makes a reader do anything but succeed or raise ModelFormatError, quickly and in little memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import format_files as ff
import numpy as np
import pytest
import safetensors
from bad_files import BAD_FILES, Bad
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from processor_time import assert_quick

from gristmill.formats.checkpoint import ModelFormatError, shown
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint

MAX_SECONDS = 1.0  # of the processor; pytest's timeout finds what waits
MAX_GROWTH_BYTES = 200 << 20
N_MUTATIONS = 20_000 if os.environ.get("GRISTMILL_THOROUGH") else 400


def read_everything(path: Path) -> int:
    """Open, list and read all tensors and values; how many tensors there were."""
    checkpoint = open_checkpoint(path)
    for value in checkpoint.metadata.values():
        assert value is not None
    names = list(checkpoint.names())
    for name in names:
        weight = checkpoint.get(name)
        assert dequantize(weight).shape == weight.shape
        checkpoint.release(weight)
    return len(names)


class PeakMemory:
    """How far resident memory rose at most since construction; Linux can reset its high-water mark, others can't."""

    def __init__(self) -> None:
        self.known = True
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._before = self._peak()
        except OSError:
            self.known = False

    def growth(self) -> int:
        return self._peak() - self._before if self.known else 0

    @staticmethod
    def _peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


def write(bad: Bad, folder: Path) -> Path:
    path = folder / bad.name
    if isinstance(bad.content, bytes):
        path.write_bytes(bad.content)
    elif callable(bad.content):
        bad.content(path)
    else:
        ff.folder(path, bad.content)
    return path


@pytest.mark.parametrize("bad", BAD_FILES, ids=lambda bad: bad.id)
def test_broken_file(tmp_path: Path, bad: Bad) -> None:
    path = write(bad, tmp_path)
    messages, growths = list[str](), list[int]()

    def refused() -> None:
        memory = PeakMemory()
        with pytest.raises(ModelFormatError) as caught:
            read_everything(path)
        growths.append(memory.growth())
        messages.append(str(caught.value))

    assert_quick(refused, MAX_SECONDS)
    message = messages[0]
    for words in (*bad.words, "; "):  # what follows the semicolon is the remedy
        assert words in message
    assert message.startswith(str(tmp_path))
    assert message.isprintable()
    assert len(message) < 1000
    assert growths[0] < MAX_GROWTH_BYTES


@pytest.mark.parametrize(
    "value", [np.arange(40), np.eye(9), "a\nb\x1b[2J\u2028", b"\r\n", ["a\n"] * 50, {"\n": 10**400}]
)
def test_what_errors_show_is_one_short_line(value: object) -> None:
    assert shown(value).isprintable()
    assert len(shown(value)) <= 120


def test_the_table_is_large_enough() -> None:
    assert len(BAD_FILES) >= 50
    assert len({bad.id for bad in BAD_FILES}) == len(BAD_FILES)


def good_files() -> dict[str, tuple[str, bytes]]:
    fields = ff.LLAMA2C_FIELDS
    own, shared = ff.llama2c_state(fields, False), ff.llama2c_state(fields, True)
    return {
        "gguf": ("model.gguf", ff.good_gguf()),
        "safetensors": ("model.safetensors", ff.good_safetensors()),
        "llama2c v0": ("model.bin", ff.llama2c_v0(fields, own)),
        "llama2c v1": ("model.bin", ff.llama2c_v1(fields, shared)),
        "llama2c v2": ("model.bin", ff.llama2c_v2(fields, own, 4)),
    }


GOOD_FILES = good_files()


@pytest.mark.parametrize("kind", GOOD_FILES)
def test_the_files_to_mutate_are_sound(tmp_path: Path, kind: str) -> None:
    name, raw = GOOD_FILES[kind]
    (tmp_path / name).write_bytes(raw)
    assert read_everything(tmp_path / name) >= 3


@st.composite
def mutations(draw: st.DrawFn, raw: bytes, front: int) -> bytes:
    """`raw` with a few bytes changed, cut, put in or doubled, mostly in its header."""
    data = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(front, len(data))) | st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "set", "cut", "insert", "remove", "word"])):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=40))
            case "remove":
                del data[at : at + draw(st.integers(1, 40))]
            case "word":
                extreme = draw(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]))
                data[at : at + 8] = extreme.to_bytes(8, "little")
    return bytes(data)


INDEX = json.dumps({"weight_map": dict.fromkeys(["a.weight", "b", "e_blocks", "e_scales"], "a.safetensors")}).encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@pytest.mark.parametrize("kind", GOOD_FILES)
def test_mutated_file(scratch: Path, kind: str) -> None:
    name, raw = GOOD_FILES[kind]
    path = scratch / name
    outcomes: set[str] = set()

    def read_it() -> None:
        try:
            read_everything(path)
            outcomes.add("read")
        except ModelFormatError as error:
            assert str(path) in str(error)  # noqa: PT017 - both outcomes are right, and the message has a rule
            outcomes.add("refused")

    @given(mutations(raw, front=600))
    @example(raw)
    @settings(max_examples=N_MUTATIONS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def only_success_or_the_right_error(mutated: bytes) -> None:
        path.write_bytes(mutated)
        assert_quick(read_it, MAX_SECONDS)

    only_success_or_the_right_error()
    assert outcomes == {"read", "refused"}


WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "F64": 8, "BOOL": 1, "C64": 8}
odd_values = st.sampled_from([-1, 0, 1, 2, 4, 1.0, True, None, "8", [], [1], 2**64, "F32", "f32"])


@st.composite
def safetensors_parts(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A header whose tensors tile the data, often with one thing changed; and how many bytes of data follow."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.permutations(["a", "b", "\u00e9", ""]))[: draw(st.integers(0, 4))]:
        dtype, shape = draw(st.sampled_from(list(WIDTHS))), draw(st.lists(st.integers(0, 3), max_size=3))
        n_bytes = WIDTHS[dtype] * int(np.prod(shape))
        header[name] = ff.entry(dtype, shape, end, end + n_bytes)
        end += n_bytes
    changed = draw(st.sampled_from(["", "", "dtype", "shape", "size", "offsets", "start", "stop", "more", "without"]))
    for info in list(header.values())[:1] if changed else []:
        value = draw(odd_values)
        match changed:
            case "dtype" | "shape" | "more":
                info[changed] = value
            case "size":
                info["shape"].append(value)
            case "offsets":
                info["data_offsets"] = draw(st.lists(st.integers(0, 16), max_size=3))
            case "start" | "stop":
                info["data_offsets"][changed == "stop"] = value
            case "without":
                del info[draw(st.sampled_from(list(info)))]
    return header, max(0, end + draw(st.sampled_from([0, 0, 0, 0, 1, -1, 8])))


notes = st.sampled_from([None, None, {}, {"format": "pt"}, 1, "x", [], {"a": 1}])


@given(safetensors_parts(), notes, st.sampled_from([b"%s", b"%s", b"%s   ", b" %s", b"%s\0"]))
@example(({}, 0), None, b"%s")
@example(({"a": ff.entry("F32", [0, 9], 4, 4), "b": ff.entry("F32", [1], 0, 4)}, 4), None, b"%s")
@settings(max_examples=N_MUTATIONS, deadline=None, database=None)
def test_safetensors_headers_as_the_package_takes_them(
    scratch: Path, parts: tuple[dict[str, Any], int], note: object, around: bytes
) -> None:
    """What the format's own reader refuses is refused; what it accepts is read alike."""
    header, n_bytes = parts
    if note is not None:
        header = header | {"__metadata__": note}
    raw = ff.safetensors(around % json.dumps(header).encode(), bytes(n_bytes))
    path = scratch / "model.safetensors"
    path.write_bytes(raw)
    try:
        theirs = {name: info["shape"] for name, info in safetensors.deserialize(raw)}
    except safetensors.SafetensorError:
        with pytest.raises(ModelFormatError):
            open_checkpoint(path)
        return
    checkpoint = open_checkpoint(path)
    assert set(checkpoint.names()) == set(theirs)
    for name, shape in theirs.items():
        if header[name]["dtype"] in ("F32", "F16", "BF16"):
            assert list(checkpoint.get(name).shape) == shape


@given(mutations(INDEX, front=len(INDEX)))
@settings(max_examples=N_MUTATIONS, deadline=None, database=None)
def test_mutated_index(scratch: Path, mutated: bytes) -> None:
    files = {"config.json": b"{}", "a.safetensors": ff.good_safetensors(), "model.safetensors.index.json": mutated}
    path = ff.folder(scratch / "folder", files)
    try:
        read_everything(path)
    except ModelFormatError as error:
        assert str(path) in str(error)  # noqa: PT017 - as above


def test_every_truncation_of_every_format(tmp_path: Path) -> None:
    for name, raw in GOOD_FILES.values():
        path = tmp_path / name
        for size in {*range(min(len(raw), 700)), *range(700, len(raw), 97), len(raw) - 1}:
            path.write_bytes(raw[:size])
            with pytest.raises(ModelFormatError):
                open_checkpoint(path)


def test_random_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in ("", ".bin", ".gguf", ".safetensors"):
        for size in (1, 7, 8, 28, 300, 5000):
            path = tmp_path / f"random{suffix}"
            path.write_bytes(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
            with pytest.raises(ModelFormatError):
                open_checkpoint(path)


def test_a_path_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.gguf: no such file"):
        open_checkpoint(tmp_path / "none.gguf")
