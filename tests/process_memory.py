"""What of this process is in memory, as the system counts it."""

from __future__ import annotations

from pathlib import Path

import pytest


def resident_bytes(field: str) -> int:
    """field: RssAnon for its own memory, RssFile for pages of mapped files. Skips where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs /proc/self/status, which Linux has")
    return int(status.read_text().split(f"{field}:")[1].split()[0]) * 1024
