"""What a person sees while a model is loaded and, on a card, its kernels are compiled."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gristmill.cli import loading
from gristmill.cli.loading import loading_bars
from gristmill.models.build import Progress


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextmanager
    def bar(doing: str = "loading", of_bytes: bool = True) -> Iterator[Progress]:
        seen.append(f"{doing} begins")
        yield lambda done, total: seen.append(f"{doing} {done}/{total}")
        seen.append(f"{doing} ends")

    monkeypatch.setattr(loading, "progress_bar", bar)
    with loading_bars() as bars:
        assert bars.loading is not None
        assert bars.warming is not None
        bars.loading(7, 7)
        bars.warming(1, 2)
        bars.warming(2, 2)
    assert seen == [
        *("loading begins", "loading 7/7", "loading ends"),
        *("compiling kernels begins", "compiling kernels 1/2", "compiling kernels 2/2", "compiling kernels ends"),
    ]


def test_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with loading_bars() as bars:
        assert bars.loading is not None
        assert bars.warming is not None
        bars.loading(5_000_000, 10_000_000)
        bars.warming(3, 60)
    shown = terminal.getvalue()
    assert shown.index("loading") < shown.index("compiling kernels")
    assert "3/60" in shown


def test_where_nobody_is_watching(capsys: pytest.CaptureFixture[str]) -> None:
    with loading_bars() as bars:
        assert bars.loading is bars.warming is None
    assert capsys.readouterr().err == ""
