"""What commands log: files and requests cannot steer the terminal, nor write lines of their own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import logging
from gristmill.cli.loading import log_to_stderr
log_to_stderr()
log_to_stderr()
log = logging.getLogger("gristmill.anything")
log.warning("name: %s", "a\\r\\nERROR: forged\\x1b[2J\\u202e")
try:
    raise ValueError("b\\nERROR: forged too\\x1b]0;title\\x07")
except ValueError:
    log.error("a request failed", exc_info=True)
log.info("a prompt")
"""


def test_lines_are_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300)
    lines = done.stderr.splitlines()
    assert lines[0] == "name: a\\r"
    assert [line for line in lines if not line.startswith("  | ")] == [lines[0], "a request failed"]
    assert "  | ERROR: forged\\x1b[2J\\u202e" in lines
    assert not any(character in done.stderr for character in "\x1b\x07\r\u202e")
    assert "a prompt" not in done.stderr
