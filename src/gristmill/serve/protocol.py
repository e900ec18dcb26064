"""Fields of OpenAI's requests: names, types and bounds. Strict: nothing is converted and no unknown name passes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gristmill.serve.errors import GUIDED, ApiError, refuse
from gristmill.types import SamplingParams, StructuredOutputsParams

MAX_STOPS: Final = 32
"""Each is looked for in all that an answer may still be, on the thread that answers everybody."""
MAX_STOP_LENGTH: Final = 256
MAX_BIASES: Final = 1024
MAX_ALLOWED: Final = 1 << 16
MAX_BAD_WORDS: Final = 128
MAX_PROMPTS: Final = 1024
MAX_INPUTS: Final = 2048
"""Texts of one call for embeddings, as in OpenAI's API."""

CLIENTS_OWN: Final = frozenset(
    {"chat_template_kwargs", "input", "input_schema", "json", "logit_bias", "metadata", "parameters", "schema"}
)
"""Names of objects that a client fills as it likes, in every API: schemas, inputs of tools, labels. There null means
null."""

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Label = Annotated[str, Field(max_length=512)]


class Strict(BaseModel):
    """Null is the same as leaving a field out, and is gone before anything is read (wire.py)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(Strict):
    """continuous_usage_stats is vLLM's: each event has the usage so far, of its own answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


class StructuredOutputs(Strict):
    """vLLM's extension: exactly one of these, as in SamplingParams."""

    json_: str | dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None


class JsonSchema(Strict):
    """strict is always true: an answer keeps to its schema, or the request is refused."""

    name: Annotated[str, Field(min_length=1, max_length=64)] = "answer"
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_a_schema(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema is to be given with the type json_schema, and only with it")
        return self


class Sampling(Strict):
    """What chat and plain completions share. Fields beyond OpenAI's are as in vLLM.

    user, metadata, safety_identifier, prompt_cache_key  labels, which change no answer
    """

    model: Annotated[str, Field(max_length=512)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_ALLOWED)] | None = None
    bad_words: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=MAX_BAD_WORDS)] = []
    stream: bool = False
    stream_options: StreamOptions | None = None
    structured_outputs: StructuredOutputs | None = None
    response_format: ResponseFormat | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    cache_salt: Annotated[str, Field(max_length=256)] = ""
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    metadata: dict[str, Label] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _read_stop(cls, stop: Any) -> Any:
        if isinstance(stop, str):
            stop = [stop]
        if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
            raise ValueError("give a string or a list of strings")
        if len(stop) > MAX_STOPS:
            raise ValueError(f"has {len(stop)} strings; at most {MAX_STOPS} are allowed")
        if not all(0 < len(text) <= MAX_STOP_LENGTH for text in stop):
            raise ValueError(f"each string has 1 to {MAX_STOP_LENGTH} characters")
        return stop

    @field_validator("logit_bias")
    @classmethod
    def _check_bias(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for name in bias or ():
            if not (name.isascii() and name.isdigit() and len(name) <= 9):
                raise ValueError(f"{name!r:.40} is no token id")
        if bias and len(bias) > MAX_BIASES:
            raise ValueError(f"has {len(bias)} entries; at most {MAX_BIASES} are allowed")
        return bias

    @model_validator(mode="after")
    def _streams(self) -> Sampling:
        if self.stream_options is not None and not self.stream:
            raise refuse("stream_options", "is for stream: true")
        if self.response_format is not None and self.structured_outputs is not None:
            raise refuse("response_format", "and structured_outputs both say what the answer is; leave one out")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        return self.include_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    def guided(self) -> StructuredOutputsParams | None:
        """ValueError for a schema that is none."""
        form, given = self.response_format, self.structured_outputs
        if form is not None and form.type == "json_object":
            return StructuredOutputsParams(json_object=True)
        if form is not None and form.json_schema is not None:
            return StructuredOutputsParams(json=form.json_schema.schema_)
        if given is None:
            return None
        return StructuredOutputsParams(
            json=given.json_,
            regex=given.regex,
            choice=tuple(given.choice) if given.choice is not None else None,
            grammar=given.grammar,
            json_object=given.json_object,
            disable_any_whitespace=given.disable_any_whitespace,
            whitespace_pattern=given.whitespace_pattern,
        )

    def as_asked(self, error: ApiError) -> ApiError:
        """What the engine says of a constraint, by the field in which this request has it."""
        if self.response_format is None or error.param is None or not error.param.startswith(f"{GUIDED}."):
            return error
        reason = error.message.removeprefix(f"{error.param}: ")
        message = f"response_format.json_schema.schema: {reason}"
        return ApiError(error.status, message, param="response_format", code=error.code)

    def params(
        self,
        defaults: SamplingParams,
        max_tokens: int | None,
        logprobs: int | None = None,
        guided: StructuredOutputsParams | None = None,
        prompt_logprobs: int | None = None,
    ) -> SamplingParams:
        """For the engine, which knows nothing of stop strings and of n. ValueError for fields that contradict.

        defaults  where the request says nothing of temperature, top_p, top_k, min_p and repetition_penalty
        """
        top_k = defaults.top_k if self.top_k is None else max(0, self.top_k)
        return SamplingParams(
            temperature=defaults.temperature if self.temperature is None else self.temperature,
            top_p=defaults.top_p if self.top_p is None else self.top_p,
            top_k=top_k,
            min_p=defaults.min_p if self.min_p is None else self.min_p,
            repetition_penalty=(
                defaults.repetition_penalty if self.repetition_penalty is None else self.repetition_penalty
            ),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias={int(name): bias for name, bias in self.logit_bias.items()} if self.logit_bias else None,
            seed=self.seed,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            include_stop_str_in_output=self.include_stop_str_in_output,
            skip_special_tokens=self.skip_special_tokens,
            allowed_token_ids=self.allowed_token_ids,
            bad_words=self.bad_words,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            structured_outputs=guided,
        )


class CompletionRequest(Sampling):
    prompt: str | list[Any]
    max_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool = False

    @field_validator("prompt", mode="before")
    @classmethod
    def _read_prompt(cls, prompt: Any) -> Any:
        return _read_texts(prompt, MAX_PROMPTS)

    @property
    def prompts(self) -> list[str | list[int]]:
        return [self.prompt] if isinstance(self.prompt, str) or isinstance(self.prompt[0], int) else self.prompt


class EmbeddingRequest(Strict):
    """pooling is an extension: the mean of all tokens' last hidden states, or the last token's, at length 1."""

    model: Annotated[str, Field(max_length=512)] | None = None
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] = "float"
    pooling: Literal["mean", "last"] = "mean"
    normalize: bool = True
    user: Label | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _read_input(cls, given: Any) -> Any:
        return _read_texts(given, MAX_INPUTS)

    @property
    def inputs(self) -> list[str | list[int]]:
        return [self.input] if isinstance(self.input, str) or isinstance(self.input[0], int) else self.input


def _read_texts(given: Any, most: int) -> Any:
    """A text, ids of one, or a list of 1 to `most` of either."""
    if isinstance(given, str) or _is_ids(given):
        return given
    if not isinstance(given, list) or not 0 < len(given) <= most:
        raise ValueError(f"give a string, a list of 1 to {most} strings, token ids, or lists of token ids")
    if not all(isinstance(item, str) for item in given) and not all(map(_is_ids, given)):
        raise ValueError("a list holds strings alone, or token ids from 0 to 2147483647, or lists of those")
    return given


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and 0 <= item < 2**31 for item in value)


OF_VLLM: Final[dict[str, tuple[Any, ...]]] = {
    "best_of": (1,),
    "length_penalty": (1, 1.0),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}
"""What vLLM's clients may send that is not there, with the values that ask for nothing."""

REFUSED_IN_COMPLETIONS: Final[dict[str, tuple[Any, ...]]] = {**OF_VLLM, "add_special_tokens": (True,), "suffix": ("",)}
"""Fields of the API that are not there, with the values that ask for nothing."""

REFUSED_IN_EMBEDDINGS: Final[dict[str, tuple[Any, ...]]] = {"dimensions": ()}
