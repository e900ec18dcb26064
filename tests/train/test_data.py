"""Texts become shards, shards become steps: nothing is lost, nothing held out is trained on, the order is fixed."""

from __future__ import annotations

import json
import os
import signal
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_run

from gristmill.tokenizer.files import load_path
from gristmill.train.data import Shards, Windows, _each, open_shards, prepare, separator_id, validation
from gristmill.train.sources import cut, documents, download, find_files

TEXTS = ["Once upon a time.", "The mill turned.\n\nIt stopped.", "Grain!", "ä ö ü €"] * 5


def write(folder: Path, kind: str) -> Path:
    path = folder / f"text.{kind}"
    if kind == "txt":
        path.write_text("\n<|endoftext|>\n".join(TEXTS))
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps({"text": text, "more": 1}) for text in TEXTS) + "\n\n")
    else:
        path.write_text(json.dumps([{"story": f" {text}\n", "source": "x"} for text in TEXTS]))
    return path


def shards_of(tmp_path: Path, files: list[Path], processes: int = 1, piece_bytes: int = 1 << 20) -> Shards:
    tokenizer = small_run.write_tokenizer(tmp_path)
    return prepare(
        tmp_path / "shards",
        files,
        tokenizer,
        separator="<|endoftext|>",
        val_fraction=0.2,
        processes=processes,
        piece_bytes=piece_bytes,
    )


def ids_of(shards: Shards) -> list[int]:
    return [int(i) for name in shards.files for i in np.fromfile(shards.folder / name, shards.dtype)]


@pytest.mark.parametrize("kind", ["txt", "jsonl", "json"])
@pytest.mark.parametrize("piece_bytes", [1 << 20, 90])
def test_documents_of_every_kind_come_whole_after_a_bos(tmp_path: Path, kind: str, piece_bytes: int) -> None:
    path = write(tmp_path, kind)
    shards = shards_of(tmp_path, [path], piece_bytes=piece_bytes)
    vocabulary = load_path(tmp_path / "bytes.bin")
    assert ids_of(shards) == [i for text in TEXTS for i in [1, *vocabulary.encode(text, add_special=False)]]
    assert shards.dtype == "uint16"
    assert (len(shards.files) > 3) == (piece_bytes == 90 and kind != "json")


def test_a_long_text_without_separators_is_cut_at_lines(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {i} of the book\n" for i in range(200)))
    spans = [span for group in cut([path], "<|endoftext|>", 500) for span in group]
    assert len(spans) > 5
    assert [span.begin for span in spans[1:]] == [span.end for span in spans[:-1]]
    data = path.read_bytes()
    assert all(data[span.end - 1 : span.end] == b"\n" for span in spans)
    assert sum(text.count("line") for span in spans for text in documents(span, "<|endoftext|>")) == 200


def test_a_line_longer_than_a_piece_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("é" * 300 + "\n" + "a" * 40 + "\n")
    assert [span.end for group in cut([path], "<|endoftext|>", 50) for span in group] == [601, 642]


def test_lines_of_json_are_cut_nowhere_else(tmp_path: Path) -> None:
    """Even if a document's text holds what separates those of text files."""
    path, texts = tmp_path / "a.jsonl", [f"{i} <|endoftext|> {'x' * 60}" for i in range(20)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    spans = [span for group in cut([path], "<|endoftext|>", 300) for span in group]
    assert len(spans) > 3
    assert [text for span in spans for text in documents(span, "<|endoftext|>")] == texts


def test_several_processes_write_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl")
    (tmp_path / "a").mkdir()
    alone = shards_of(tmp_path / "a", [path], piece_bytes=200)
    (tmp_path / "b").mkdir()
    assert ids_of(shards_of(tmp_path / "b", [path], processes=2, piece_bytes=200)) == ids_of(alone)


def test_ctrl_c_ends_processes_without_a_word() -> None:
    assert list(_each(signal.getsignal, [signal.SIGINT] * 2, 2)) == [signal.SIG_DFL] * 2


def test_shards_are_written_once_and_again_when_something_changed(tmp_path: Path) -> None:
    path = write(tmp_path, "txt")
    first = shards_of(tmp_path, [path])
    stamp = (first.folder / first.files[0]).stat().st_mtime_ns
    assert shards_of(tmp_path, [path]) == first == open_shards(first.folder)
    assert (first.folder / first.files[0]).stat().st_mtime_ns == stamp
    path.write_text("another text that is longer than one window")
    second = shards_of(tmp_path, [path])
    assert second.key != first.key
    path.write_text("another text that is longer than two window")
    os.utime(path, ns=(stamp, stamp))
    assert shards_of(tmp_path, [path]).key != second.key


def test_shards_that_were_broken_off_are_made_again(tmp_path: Path) -> None:
    """Those of other texts may have the sizes that the index says."""
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]

    def fill(first: bytes, second: bytes) -> None:
        for path, content in zip(files, (first, second), strict=True):
            path.write_bytes(content)
            os.utime(path, ns=(first[0], first[0]))

    fill(b"a" * 100, b"c" * 100)
    whole = ids_of(shards_of(tmp_path, files, piece_bytes=100))
    fill(b"b" * 100, b"\xff" * 100)
    with pytest.raises(ValueError, match="not UTF-8"):
        shards_of(tmp_path, files, piece_bytes=100)
    fill(b"a" * 100, b"c" * 100)
    assert ids_of(shards_of(tmp_path, files, piece_bytes=100)) == whole


def test_shards_are_of_one_tokenizer_and_one_way_to_cut(tmp_path: Path) -> None:
    path, tokenizer = write(tmp_path, "txt"), small_run.write_tokenizer(tmp_path)
    other = tmp_path / "other.bin"
    other.write_bytes(tokenizer.read_bytes()[:-14] + struct.pack("<fi6s", 1.0, 6, b"<0xFF>"))
    keys = {
        prepare(tmp_path / "shards", [path], vocabulary, separator=separator, val_fraction=fraction).key
        for vocabulary in (tokenizer, other)
        for separator in ("<|endoftext|>", "\n")
        for fraction in (0.2, 0.3)
    }
    assert len(keys) == 8


def test_shards_are_of_what_the_files_beside_the_tokenizer_say(tmp_path: Path) -> None:
    """They may name another BOS, which then stands between documents."""
    tokenizers = pytest.importorskip("tokenizers")
    path, tokenizer = write(tmp_path, "txt"), tmp_path / "tokenizer.json"
    specials = ["<|a|>", "<|b|>"]
    learned = tokenizers.ByteLevelBPETokenizer()
    learned.train([str(path)], vocab_size=300, special_tokens=specials, show_progress=False)
    learned.save(str(tokenizer))

    def prepared() -> Shards:
        return prepare(tmp_path / "shards", [path], tokenizer, separator="<|endoftext|>", val_fraction=0.2)

    keys = set[str]()
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for token in specials:
            (tmp_path / name).write_text(json.dumps({"bos_token": token}))
            shards = prepared()
            keys.add(shards.key)
            assert ids_of(shards)[0] == learned.token_to_id(token)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"mill": 300}))
    keys.add(prepared().key)
    assert len(keys) == 5


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_leaves_nothing(tmp_path: Path, fraction: float) -> None:
    path, tokenizer = write(tmp_path, "txt"), small_run.write_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="--val-fraction must be between 0 and 1, not"):
        prepare(tmp_path / "shards", [path], tokenizer, separator="x", val_fraction=fraction)


def test_windows_cover_every_token_but_the_held_out_ones(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [small_run.write_text(tmp_path)], piece_bytes=4000)
    assert len(shards.files) > 1
    windows = Windows(shards, 16, seed=1)
    parts = np.split(
        np.array(ids_of(shards)), np.cumsum([a + b for a, b in zip(shards.n_train, shards.n_val, strict=True)])[:-1]
    )
    allowed = {tuple(p[i : i + 17]) for p, n in zip(parts, shards.n_train, strict=True) for i in range(n - 16)}
    epoch = [tuple(map(int, w)) for w in windows.take(0, windows.n_epoch)]
    assert set(epoch) <= allowed
    assert windows.n_epoch >= sum(shards.n_train) // 16 - 2 * len(parts)
    held_out = {tuple(p[i : i + 17]) for p, n in zip(parts, shards.n_train, strict=True) for i in range(n, len(p) - 16)}
    found = [tuple(map(int, w)) for w in validation(shards, 16, 1000)]
    assert set(found) <= held_out
    assert len(found) == sum((n - 1) // 16 for n in shards.n_val)
    assert len(validation(shards, 16, 3)) == 3


def test_a_window_depends_on_seed_and_number_alone(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [small_run.write_text(tmp_path)])
    windows = Windows(shards, 16, seed=1)
    n = windows.n_epoch
    forward = windows.take(0, 3 * n)
    again = Windows(shards, 16, seed=1)
    for i in (3 * n - 1, 0, n, 2 * n + 5, n - 1):
        assert (again.take(i, i + 1)[0] == forward[i]).all()
    assert (Windows(shards, 16, seed=2).take(0, n) != forward[:n]).any()
    epochs = [{tuple(map(int, window)) for window in forward[i * n : (i + 1) * n]} for i in range(3)]
    assert len(set.union(*epochs)) > n  # they begin at other tokens, too


def test_documents_that_are_held_out_are_whole(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [small_run.write_text(tmp_path)])
    ids = ids_of(shards)
    assert ids[shards.n_train[0]] == 1
    assert abs(shards.n_val[0] / len(ids) - 0.2) < 0.03


def test_a_long_document_is_held_out_in_part(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a" * 500 + "<|endoftext|>" + "b" * 10)
    shards = shards_of(tmp_path, [path])
    assert shards.n_train == (int(len(ids_of(shards)) * 0.8),)


def texts_of(shards: Shards) -> tuple[str, str]:
    """What is trained on, and what is held out, of one file of ids of bytes."""
    ids, n_train = ids_of(shards), shards.n_train[0]
    train, held_out = (bytes(i - 3 for i in part if i >= 3).decode() for part in (ids[:n_train], ids[n_train:]))
    return train, held_out


def test_each_file_is_trained_on_and_held_out_in_part(tmp_path: Path) -> None:
    """Though several make one shard."""
    files = [tmp_path / f"{name}.txt" for name in "abc"]
    for path, n in zip(files, (3000, 2000, 500), strict=True):
        path.write_text(path.stem * n)
    shards = shards_of(tmp_path, files)
    assert len(shards.files) == 1
    train, held_out = texts_of(shards)
    assert [train.count(name) for name in "abc"] == [pytest.approx(n * 0.8, abs=2) for n in (3000, 2000, 500)]
    assert [held_out.count(name) for name in "abc"] == [pytest.approx(n * 0.2, abs=2) for n in (3000, 2000, 500)]


def test_of_short_files_whole_ones_are_held_out(tmp_path: Path) -> None:
    """Not a few letters of each."""
    files = [tmp_path / f"{i:02}.txt" for i in range(50)]
    for path in files:
        path.write_text(f"<{path.stem * 10}>")
    train, held_out = texts_of(shards_of(tmp_path, files))
    assert 6 < held_out.count("<") < 12
    assert train.count("<") + held_out.count("<") == 50
    for part in (train, held_out):
        assert part.count("<") == part.count(">")


def test_what_is_validated_on_is_spread_over_all_that_is_held_out(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [small_run.write_text(tmp_path)])
    every = validation(shards, 16, 1000)
    n = len(every)
    assert n > 6
    np.testing.assert_array_equal(validation(shards, 16, 3), every[[0, n // 3, 2 * n // 3]])


def test_what_stands_between_documents() -> None:
    def between(**ids: object) -> int:
        tokenizer: Any = SimpleNamespace(**ids)
        return separator_id(tokenizer, Path("a.json"))

    assert between(bos_id=0, eos_ids=(2,)) == 0
    assert between(bos_id=None, eos_ids=(2, 3)) == 2
    with pytest.raises(ValueError, match=r"a\.json: has neither BOS nor EOS"):
        between(bos_id=None, eos_ids=())


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', "has no text in the field `text`"),
        ("a.jsonl", "{text\n", "is not JSON"),
        ("a.json", '{"story": "x"}', "must be a list"),
        ("a.json", '[{"story": 3}]', "entry 0: has no text"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 100_000, "is not JSON"),
        ("a.jsonl", '{"text": "\\ud800"}', "has the lone surrogate"),
        ("a.txt", b"abc\xff", "byte 3 is 0xff, not UTF-8"),
    ],
)
def test_bad_texts_are_named(tmp_path: Path, name: str, content: str | bytes, error: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=error) as found:
        shards_of(tmp_path, [tmp_path / name])
    assert name in str(found.value)


def test_a_byte_that_is_no_utf_8_is_told_by_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"line\n" * 100 + b"\xff\n" + b"line\n" * 100)
    with pytest.raises(ValueError, match="byte 500 is 0xff"):
        [list(documents(span, "")) for group in cut([path], "", 200) for span in group]


def test_too_little_text_says_what_to_do(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [write(tmp_path, "txt")])
    with pytest.raises(ValueError, match=r"too few for sequences of 400.*--ctx"):
        Windows(shards, 400, 0)
    with pytest.raises(ValueError, match=r"held-out tokens are too few.*--val-fraction"):
        validation(shards, 200, 5)


def test_damaged_shards_are_refused(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [write(tmp_path, "txt")])
    with (shards.folder / shards.files[0]).open("ab") as file:
        file.write(b"xx")
    with pytest.raises(ValueError, match="other sizes"):
        open_shards(shards.folder)
    for content in (b"", b"[]", b"\xff", b"[" * 100_000):
        (shards.folder / "index.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"index\.json: no sound index"):
            open_shards(shards.folder)


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "folder.json").mkdir()
    for name in ("b.txt", "a.jsonl", "inner/c.json", "x.md"):
        (tmp_path / name).write_text("")
    assert [p.name for p in find_files([tmp_path])] == ["a.jsonl", "b.txt", "c.json"]
    with pytest.raises(ValueError, match="no such file or folder"):
        find_files([tmp_path / "nothing"])
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(ValueError, match=r"pipe\.txt: is no regular file, and texts are read more than once"):
        find_files([tmp_path / "pipe.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"holds no \.txt"):
        find_files([tmp_path / "empty"])


def test_a_dataset_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def offline(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", offline)
    with pytest.raises(ValueError, match=r"cannot download roneneldan/TinyStories .*no network.*give files"):
        download("tinystories")
    with pytest.raises(ValueError, match="unknown; known: tinystories"):
        download("x")
