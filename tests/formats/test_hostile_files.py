"""No file makes a reader do anything but succeed or raise ModelFormatError, quickly and in little memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import format_files as ff
import numpy as np
import pytest
from bad_files import BAD_FILES, Bad
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gristmill.formats.checkpoint import ModelFormatError
from gristmill.formats.dequantize import dequantize
from gristmill.formats.open import open_checkpoint

MAX_SECONDS = 1.0
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
    memory, start = PeakMemory(), time.perf_counter()
    with pytest.raises(ModelFormatError) as caught:
        read_everything(path)
    elapsed, growth = time.perf_counter() - start, memory.growth()
    message = str(caught.value)
    for words in (*bad.words, "; "):  # what follows the semicolon is the remedy
        assert words in message
    assert message.startswith(str(tmp_path))
    assert message.isprintable()
    assert len(message) < 1000
    assert elapsed < MAX_SECONDS
    assert growth < MAX_GROWTH_BYTES


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


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@pytest.mark.parametrize("kind", GOOD_FILES)
def test_mutated_file(scratch: Path, kind: str) -> None:
    name, raw = GOOD_FILES[kind]
    path = scratch / name
    outcomes: set[str] = set()

    @given(mutations(raw, front=600))
    @example(raw)
    @settings(max_examples=N_MUTATIONS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def only_success_or_the_right_error(mutated: bytes) -> None:
        path.write_bytes(mutated)
        start = time.perf_counter()
        try:
            read_everything(path)
            outcomes.add("read")
        except ModelFormatError as error:
            assert str(path) in str(error)  # noqa: PT017 - both outcomes are right, and the message has a rule
            outcomes.add("refused")
        assert time.perf_counter() - start < MAX_SECONDS

    only_success_or_the_right_error()
    assert outcomes == {"read", "refused"}


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
