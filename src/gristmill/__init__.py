"""gristmill runs open-weight language models from their raw files: `LLM("model.gguf").generate(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gristmill.types import Finish, ModelConfig, SamplingParams, StructuredOutputsParams, TokenEvent

if TYPE_CHECKING:
    from gristmill.llm import LLM
    from gristmill.outputs import CompletionOutput, RequestOutput

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "CompletionOutput",
    "Finish",
    "ModelConfig",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "TokenEvent",
]


def __getattr__(name: str) -> Any:
    """Load `LLM` and its outputs on first use, so that `import gristmill` stays light."""
    if name == "LLM":
        from gristmill.llm import LLM

        return LLM
    if name in ("CompletionOutput", "RequestOutput"):
        import gristmill.outputs as outputs

        return getattr(outputs, name)
    raise AttributeError(f"module 'gristmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With what is loaded on first use, for those who look around."""
    return sorted({*globals(), *__all__})
