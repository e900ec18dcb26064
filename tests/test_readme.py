"""What the README shows in Python runs as it stands there, on a small model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import small_model

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example: str, tmp_path: Path) -> None:
    model = small_model.write(tmp_path)
    assert '"model.gguf"' in example
    script = example.replace('"model.gguf"', repr(str(model)))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
