"""The Chromium that is there: the browser of the tests that look at pages. None is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is none. Its event loop runs until the end of the `with`."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        path = os.environ.get("GRISTMILL_CHROMIUM") or shutil.which("chromium") or (own if Path(own).exists() else None)
        if not path:
            pytest.skip("no chromium: install one, or name it in GRISTMILL_CHROMIUM")
        sync_api.expect.set_options(timeout=30_000)  # milliseconds, as below: a busy machine may need more than 5 s
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()
