"""The store on a disk where other programs, and earlier pulls, have left their own."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from huggingface_hub.utils import WeakFileLock

from gristmill.cli.main import main
from gristmill.cli.pull import size
from gristmill.formats.write_gguf import write_gguf
from gristmill.hub.names import HubError, HubName
from gristmill.hub.store import all_models, find, remove, set_main, store_folder

REPO = "org/name"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the repository."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path / "models--org--name"


def put(folder: Path, revision: str, name: str, blob: str) -> None:
    """A file as the library has it: a link to a blob, which is named like what is in it."""
    content, link = folder / "blobs" / blob, folder / "snapshots" / revision / name
    for path in (content, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    content.write_text(blob)
    link.symlink_to(Path("../../blobs") / blob)


def test_several_pulls_end_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda _: set_main(REPO, "ccc"), range(500)))
    assert [path.read_text() for path in (folder / "refs").iterdir()] == ["ccc"]


def test_what_main_was_counts_and_then_the_latest(folder: Path) -> None:
    for seconds, revision in enumerate(("aaa", "ccc", "bbb")):
        put(folder, revision, "m-Q8_0.gguf", f"of {revision}")
        os.utime(folder / "snapshots" / revision, (seconds, seconds))
    assert find(HubName(REPO)).path.read_text() == "of bbb"
    set_main(REPO, "ccc")
    assert find(HubName(REPO)).path.read_text() == "of ccc"
    assert [stored.revision for stored in all_models()] == ["ccc"]
    (folder / "refs" / "main").write_bytes(b"\xff")
    assert find(HubName(REPO)).path.read_text() == "of bbb"


def test_another_file_of_the_same_label_in_a_later_revision_hides_none(folder: Path) -> None:
    for seconds, revision in enumerate(("aaa", "bbb")):
        put(folder, revision, f"{revision}-Q8_0.gguf", f"of {revision}")
        os.utime(folder / "snapshots" / revision, (seconds, seconds))
    assert [str(stored.name) for stored in all_models()] == [f"{REPO}:Q8_0", f"{REPO}:aaa-Q8_0.gguf"]
    assert find(HubName(REPO, "Q8_0")).path.read_text() == "of bbb"
    assert find(HubName(REPO, "aaa-Q8_0")).path.read_text() == "of aaa"
    assert remove(find(HubName(REPO, "aaa-Q8_0.gguf"))) == len("of aaa")
    assert [str(stored.name) for stored in all_models()] == [f"{REPO}:Q8_0"]


def test_the_last_of_its_files_says_when_a_model_came(folder: Path) -> None:
    for seconds, part in enumerate(("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), 1):
        put(folder, "aaa", part, part)
        os.utime(folder / "blobs" / part, (seconds, seconds))
    assert find(HubName(REPO)).pulled == 2


@pytest.mark.parametrize("command", ["inspect", "generate", "tokenize"])
def test_an_empty_name_is_no_model(command: str) -> None:
    result = CliRunner().invoke(main, [command, "-m", ""], input="a")
    assert result.exit_code == 1
    assert "the name of the model is empty" in result.stderr


def test_sizes_for_people() -> None:
    sizes = (0, 999, 1000, 1234, 999_499, 999_600, 999_700_000, 4_240_000, 5_000_000_000)
    shown = ["0 B", "999 B", "1 KB", "1.23 KB", "999 KB", "1 MB", "1.00 GB", "4.24 MB", "5.00 GB"]
    assert [size(n) for n in sizes] == shown


def test_names_of_files_cannot_steer_a_terminal(folder: Path) -> None:
    put(folder, "aaa", "v\x1b[2J.gguf", "vocabulary")
    write_gguf(folder / "blobs" / "vocabulary", {"general.architecture": "llama"}, ())
    for command in (("list",), ("show", REPO), ("rm", REPO)):
        said = CliRunner().invoke(main, command).stdout
        assert r"v\x1b[2J" in said
        assert "\x1b" not in said


def test_a_vocabulary_alone_is_shown(folder: Path) -> None:
    put(folder, "aaa", "v.gguf", "vocabulary")
    write_gguf(folder / "blobs" / "vocabulary", {"general.architecture": "llama"}, ())
    shown = json.loads(CliRunner().invoke(main, ["show", REPO, "--json"]).stdout)
    assert (shown["name"], shown["architecture"], shown["types"]) == (f"{REPO}:v", None, {})
    assert "architecture  -\n" in CliRunner().invoke(main, ["show", REPO]).stdout


def test_bytes_that_another_model_needs_stay(folder: Path) -> None:
    put(folder, "aaa", "m-Q8_0.gguf", "same")
    put(folder, "aaa", "m-Q4_0.gguf", "same")
    put(folder, "aaa", "m-Q2_K.gguf", "other")
    assert remove(find(HubName(REPO, "Q8_0"))) == 0
    assert find(HubName(REPO, "Q4_0")).path.read_text() == "same"
    with pytest.raises(HubError, match=r"choose one: org/name:QUANT of Q2_K, Q4_0$"):
        find(HubName(REPO))
    assert remove(find(HubName(REPO, "Q4_0"))) == len("same")
    assert [blob.name for blob in (folder / "blobs").iterdir()] == ["other"]
    assert remove(find(HubName(REPO))) == len("other")
    assert not folder.exists()


@pytest.mark.parametrize("by", ["us", "the library"])
def test_unfinished_downloads_can_be_removed(folder: Path, by: str) -> None:
    """But for one that goes on just now; and of several whole models one has to be named, and goes alone."""
    put(folder, "aaa", "m-Q4_0.gguf", "whole")
    put(folder, "aaa", "m-Q2_K.gguf", "also")
    process = "" if by == "us" else ".0123abcd"
    cut, running = (folder / "blobs" / f"{etag}{process}.incomplete" for etag in ("11", "22"))
    cut.write_text("cut short")
    running.write_text("on its way")
    told = CliRunner().invoke(main, ["rm", REPO])
    assert (told.exit_code, cut.exists()) == (1, True)
    assert "choose one" in told.output
    lock = store_folder() / ".locks" / folder.name / "22.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        told = CliRunner().invoke(main, ["rm", f"{REPO}:Q8_0"])
    assert (told.exit_code, told.output) == (0, f"removed unfinished downloads of {REPO} (9 B)\n")
    assert (cut.exists(), running.exists()) == (False, True)
    assert [str(stored.name) for stored in all_models()] == [f"{REPO}:Q2_K", f"{REPO}:Q4_0"]
    assert [remove(find(HubName(REPO, quant))) for quant in ("Q4_0", "Q2_K")] == [len("whole"), len("also")]
    assert [blob.name for blob in (folder / "blobs").iterdir()] == [running.name]


def test_a_repository_of_unfinished_downloads_alone_goes_with_them(folder: Path) -> None:
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "11.incomplete").write_text("cut short")
    assert CliRunner().invoke(main, ["rm", REPO]).exit_code == 0
    assert not folder.exists()
    assert f"gristmill pull {REPO}" in CliRunner().invoke(main, ["rm", REPO]).output
