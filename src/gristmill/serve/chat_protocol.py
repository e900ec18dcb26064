"""Fields of /v1/chat/completions, and of /tokenize which takes the same conversations. It knows no template."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from gristmill.serve.errors import refuse
from gristmill.serve.protocol import OF_VLLM, Count, Label, Sampling, Strict
from gristmill.serve.wire import take_neutral

Role = Literal["system", "developer", "user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class CalledFunction(Strict):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: str


class ToolCall(Strict):
    id: Label | None = None
    type: Literal["function"] = "function"
    index: int | None = None
    function: CalledFunction


class Message(Strict):
    """reasoning is another name of reasoning_content. Parts may say that Anthropic's API is to cache them; no parts are
    an empty text, but of those who ask."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: Label | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _read_content(cls, content: Any) -> Any:
        if content is None or isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise ValueError("give a string, or a list of parts {'type': 'text', 'text': '...'}")
        for i, part in enumerate(content):
            if not isinstance(part, dict) or part.get("type") != "text":
                kind = part.get("type") if isinstance(part, dict) else part
                raise ValueError(f"part {i} is {kind!r:.40}; only parts of type 'text' are supported")
            if set(part) - {"cache_control"} != {"type", "text"} or not isinstance(part["text"], str):
                raise ValueError(f"part {i} has {', '.join(sorted(part))!s:.80}; a part has type and text alone")
            if not isinstance(part.get("cache_control", {}), dict):
                raise ValueError(f"part {i}: cache_control is no object")
        return [{"type": "text", "text": part["text"]} for part in content]

    def plain(self) -> dict[str, Any]:
        """For a chat template."""
        message = self.model_dump(exclude_none=True)
        if "reasoning" in message:
            message.setdefault("reasoning_content", message["reasoning"])
            del message["reasoning"]
        for call in message.get("tool_calls", ()):
            call.pop("index", None)
        if isinstance(content := message.get("content"), list):
            message["content"] = "\n".join(part["text"] for part in content)
        return message


class Conversation(Strict):
    """What makes a prompt."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=65536)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @model_validator(mode="after")
    def _who_asks_says_something(self) -> Conversation:
        for i, message in enumerate(self.messages):
            if message.role in ("user", "system", "developer") and message.content in (None, []):
                said = "is missing" if message.content is None else "has no parts"
                raise refuse(f"messages[{i}].content", said, "missing_required_parameter")
        return self


class ChatRequest(Sampling, Conversation):
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def most_tokens(self) -> int | None:
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            raise refuse("max_tokens", "contradicts max_completion_tokens; leave one out")
        return self.max_completion_tokens or self.max_tokens

    @property
    def n_top(self) -> int | None:
        """Alternatives for each token; None where no log-probabilities are wanted."""
        if self.top_logprobs and not self.logprobs:
            raise refuse("top_logprobs", "needs logprobs: true")
        return (self.top_logprobs or 0) if self.logprobs else None


class TokenizeRequest(Strict):
    """A text, or what a chat request has."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeChatRequest(Conversation):
    model: str | None = None
    return_token_strs: bool = False


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(max_length=1 << 20)]


REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    **OF_VLLM,
    "add_special_tokens": (False,),
    "audio": (),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields of the API that are not there, with the values that ask for nothing."""

_REFUSED_IN_MESSAGES: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "reasoning_details": ([],),
    "thinking_blocks": ([],),
}
_REPEATED: Final = {"parsed", "parsed_arguments", "provider_specific_fields"}
"""What clients add to answers: OpenAI's what it has read in a text, LiteLLM fields that it does not know."""


def clean(body: dict[str, Any]) -> dict[str, Any]:
    """Without what asks for nothing: see `take_neutral`. Messages come from where answers went, with all they had."""
    kept = take_neutral(body, REFUSED)
    if isinstance(messages := kept.get("messages"), list):
        kept["messages"] = [_clean_message(message, f"messages[{i}].") for i, message in enumerate(messages)]
    return kept


def _clean_message(message: Any, where: str) -> Any:
    if not isinstance(message, dict):
        return message
    kept = take_neutral(message, _REFUSED_IN_MESSAGES, where)
    if kept.get("role") != "assistant":
        return kept
    if isinstance(calls := kept.get("tool_calls"), list):
        kept["tool_calls"] = [_as_answered(call) for call in calls]
    return _as_answered(kept)


def _as_answered(answer: Any) -> Any:
    """An answer's message or call, or a call's function, as it was before its client added to it."""
    if not isinstance(answer, dict):
        return answer
    kept = {name: value for name, value in answer.items() if name not in _REPEATED}
    return {**kept, "function": _as_answered(kept["function"])} if "function" in kept else kept
