"""What answers look like, for the description of the API and the tests that hold the server to it. Nothing is made of
these: an answer is written where it is computed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Answer):
    """param: the field that is wrong, as in `messages[0].content`. code: what a program may look at."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Answer):
    """OpenAI's."""

    error: ErrorDetail


class AnthropicErrorDetail(Answer):
    """details: for a field that clients know how to do without."""

    type: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class AnthropicError(Answer):
    type: Literal["error"]
    error: AnthropicErrorDetail


class PromptTokensDetails(Answer):
    cached_tokens: int


class CompletionTokensDetails(Answer):
    reasoning_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Likelihood(Answer):
    token: str
    logprob: float
    bytes: list[int]


class TokenLikelihood(Likelihood):
    top_logprobs: list[Likelihood]


class ChatLogprobs(Answer):
    content: list[TokenLikelihood]
    refusal: None


class Called(Answer):
    name: str
    arguments: str


class ToolCallAnswer(Answer):
    id: str
    type: Literal["function"]
    function: Called


class ChatMessage(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallAnswer] = Field(default_factory=list)


class ChatChoice(Answer):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Logprobs(Answer):
    """Lists of one entry a token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Answer):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Answer):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class InputTokensDetails(Answer):
    cached_tokens: int


class OutputTokensDetails(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Response(Answer):
    """OpenAI's response object; nothing of it is kept. output: messages, calls and thoughts."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, str | None]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage
    user: str | None


class MessageUsage(Answer):
    """input_tokens: those that no cache had."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageAnswer(Answer):
    """content: text, thinking and tool_use blocks."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class Count(Answer):
    input_tokens: int


class Embedding(Answer):
    """embedding: numbers, or float32 little-endian as base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Answer):
    prompt_tokens: int
    total_tokens: int


class Embeddings(Answer):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class Tokens(Answer):
    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] = Field(default_factory=list)


class Prompt(Answer):
    prompt: str


class ModelCard(Answer):
    """max_model_len: tokens of prompt and answer together. default_sampling_params: where a request does not say."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    default_sampling_params: dict[str, float]


class ModelList(Answer):
    object: Literal["list"]
    data: list[ModelCard]


class Health(Answer):
    status: str
