"""What the README and the design promise about the code itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from processor_time import slowness

import gristmill

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "gristmill"


def steps() -> list[tuple[str, str]]:
    """(file, name) for each `file: name` of the README's "Where a token travels"."""
    section = (ROOT / "README.md").read_text().split("## Where a token travels")[1].split("\n## ")[0]
    return re.findall(r"`([\w/]+\.py): ([\w.]+)`", section)


def test_where_a_token_travels_names_what_exists() -> None:
    assert len(steps()) >= 10
    for file, name in steps():
        source = (PACKAGE / file).read_text()
        for part in name.split("."):
            assert re.search(rf"^\s*(def|async def|class) {part}\b", source, re.MULTILINE), f"{file} has no {part}"


def test_files_that_the_documents_name_exist() -> None:
    for document in (ROOT / "README.md", ROOT / "docs" / "architecture.md"):
        for file in re.findall(r"`((?:\w+/)*\w+\.(?:py|cpp|h))\b", document.read_text()):
            candidates = [
                PACKAGE / file,
                PACKAGE / "native" / file,
                PACKAGE / "formats" / file,
                PACKAGE / "tokenizer" / file,
            ]
            assert any(path.exists() for path in candidates), f"{document.name} names {file}"


def test_tests_that_the_promises_name_exist() -> None:
    named = 0
    for row in (ROOT / "docs" / "reliability.md").read_text().splitlines():
        file = None
        for name in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", row):
            if name.startswith("tests/"):
                file = ROOT / name
                assert file.exists(), name
                continue
            assert file is not None, name
            assert re.search(rf"^def {name}\(", file.read_text(), re.MULTILINE), f"{file} has no {name}"
            named += 1
    assert named > 50


def test_import_is_light() -> None:
    """In a fresh interpreter: no array library, no backend, and under 150 ms of the processor (the best of five)."""
    code = (
        "import time; t = time.process_time(); import gristmill; t = time.process_time() - t; import sys;"
        "print(t, [m for m in ('numpy', 'torch', 'gristmill._kernels', 'rich', 'jinja2') if m in sys.modules])"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    times, heavy = zip(*(run.stdout.strip().split(" ", 1) for run in runs), strict=True)
    assert set(heavy) == {"[]"}
    assert min(map(float, times)) < 0.15 * slowness()


def test_all_that_the_package_has_is_found_by_looking_around() -> None:
    assert set(gristmill.__all__) <= set(dir(gristmill))


def test_a_command_is_light_until_it_loads() -> None:
    """So that memory is cleared while numpy and the engine are imported."""
    code = "import sys, gristmill.cli.generate; print([m for m in ('numpy', 'gristmill.llm') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("word", ["issue #", "this session"])
def test_the_project_speaks_of_itself_alone(word: str) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".cpp", ".h", ".toml", ".cmake") and path != Path(__file__).resolve():
            assert word not in path.read_text(), f"{name} says {word!r}"


def test_native_code_keeps_to_a_line() -> None:
    """Of 130 columns; Python's are the linter's."""
    files = [p for p in (PACKAGE / "native").rglob("*") if p.suffix in {".h", ".cpp"}]
    long = [f"{p.name}:{i}" for p in files for i, line in enumerate(p.read_text().splitlines(), 1) if len(line) > 130]
    assert files
    assert not long


def test_prose_keeps_to_a_line() -> None:
    """Of 120 columns, but for tables and commands."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *PACKAGE.rglob("*.md")]
    lines = [(f"{p.name}:{i}", line) for p in files for i, line in enumerate(p.read_text().splitlines(), 1)]
    assert lines
    assert not [place for place, line in lines if len(line) > 120 and not line.startswith(("|", "    "))]
