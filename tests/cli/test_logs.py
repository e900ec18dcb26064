"""What commands log: files and requests cannot steer the terminal, nor write lines of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recommending import gguf_file

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


@pytest.mark.parametrize("command", [["convert"], ["quantize", "--type", "f16"]])
def test_a_model_s_name_cannot_steer_the_terminal(command: list[str], tmp_path: Path) -> None:
    """A warning about what the file says names it."""
    model = gguf_file(tmp_path / "a\x1b[2J\nERROR: forged.gguf", mirostat=2)
    asked = [sys.executable, "-m", "gristmill", *command, "-m", str(model), "-o", str(tmp_path / "out")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first == "a\\x1b[2J"
    assert second.startswith("  | ERROR: forged.gguf: general.sampling.mirostat is 2, which is not supported")
