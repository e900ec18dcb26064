"""The story model that comes along, for whoever names no model. README.md beside it is its card."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STORY_MODEL: Final = Path(__file__).parent / "stories.gguf"
