"""The nouns of gristmill: what a model is, what a request asks, what a step computes. Standard library, all frozen."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, Final, NamedTuple, NoReturn, SupportsIndex


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding with any scaling already worked in.

    inv_freq  head_dim / 2 angles (radians) per position; dimension i turns with dimension i + head_dim / 2
    scale     factor on cos and sin (YaRN's attention factor; 1.0 elsewhere)
    """

    inv_freq: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """A mixture of experts: each token uses the `n_active` of `n_experts` that its router ranks highest."""

    n_experts: int
    n_active: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's dimensions, the same for every family. windows[i]: layer i's sliding window in tokens, 0 for all."""

    arch: str
    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int, ...]
    max_context: int
    tied_head: bool
    swiglu_limit: float = 0.0  # gpt-oss clamps the gate and up projections there; 0 means plain SwiGLU
    moe: MoeConfig | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chat's format puts around a constrained answer: see `dialogue.grammar`.

    grammar     Lark text of all that is generated, in which `@answer` stands for the constraint
    not_answer  a regex that no answer of a regex or choice may match, since it would be read as something else
    """

    grammar: str
    not_answer: str | None = None


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """What an answer must look like: exactly one of json, regex, choice, grammar, json_object; names as in vLLM.

    json                    a JSON schema as text, or a dict which is kept as text (so that params stay hashable)
    regex                   the whole answer must match; syntax of Rust's regex crate, without look-around
    choice                  the answer is one of these strings
    grammar                 Lark text as llguidance understands it; it begins at the rule `start`
    json_object             any JSON object
    disable_any_whitespace  json, json_object: no white space between tokens of JSON
    whitespace_pattern      json, json_object: a regex for the white space at one place; None allows any
    frame                   what may stand around the answer, a thought say; chats set it by themselves. A dict of its
                            fields (params that went through JSON) becomes a Frame
    Raises ValueError for none or several constraints, and for a json that cannot be written as text.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None
    frame: Frame | None = None

    def __post_init__(self) -> None:
        self._make_hashable()
        if isinstance(self.frame, dict):
            object.__setattr__(self, "frame", Frame(**self.frame))
        for name in ("json", "regex", "grammar", "whitespace_pattern"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"structured_outputs.{name} must be text, not {type(value).__name__}")
        constraints = {"json": self.json, "regex": self.regex, "choice": self.choice, "grammar": self.grammar}
        given = [name for name, value in constraints.items() if value is not None]
        given += ["json_object"] if self.json_object else []
        if len(given) != 1:
            raise ValueError(
                "structured_outputs needs exactly one of json, regex, choice, grammar, json_object;"
                f" {' and '.join(given) or 'none'} was given"
            )
        if given[0] not in ("json", "json_object") and (self.disable_any_whitespace or self.whitespace_pattern):
            raise ValueError(f"structured_outputs: white space options are for json and json_object, not {given[0]}")
        if self.disable_any_whitespace and self.whitespace_pattern:
            raise ValueError("structured_outputs: disable_any_whitespace contradicts whitespace_pattern; leave one out")

    def _make_hashable(self) -> None:
        if isinstance(self.json, dict):
            try:
                object.__setattr__(self, "json", json.dumps(self.json, allow_nan=False))
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"structured_outputs.json cannot be written as JSON: {error}") from None
        if self.choice is not None:
            is_list = isinstance(self.choice, Iterable) and not isinstance(self.choice, str)
            choice = tuple(self.choice) if is_list else ()
            if not choice or not all(isinstance(text, str) for text in choice):
                raise ValueError("structured_outputs.choice must be a list of at least one string")
            object.__setattr__(self, "choice", choice)


class _FixedDict(dict[int, float]):
    """A dict that has a hash, since it cannot be changed; otherwise as any: to compare, copy, pickle, write as JSON."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _FixedDict, (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("what SamplingParams were given cannot be changed; make others, by dataclasses.replace say")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What of the following a model's makers may recommend."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens; names and meanings as in vLLM.

    n                    answers to one prompt; the i-th (from 0) is the one that the seed plus i would give
    temperature          0 is greedy
    top_k                0 or -1 keeps all; top_p 1 keeps all; min_p 0 keeps all. Temperature is applied first
    repetition_penalty   0.01 to 100: divides positive and multiplies negative logits of ids in the prompt or the answer
    presence_penalty     is taken from the logits of ids in the answer, frequency_penalty as often as they are there
    logit_bias           added to the logits of ids, before penalties and temperature
    seed                 None or -1 draws a fresh one for each request
    max_tokens           None generates until a stop or the end of the context
    min_tokens           so many tokens before any that would end the answer can be chosen
    stop                 strings that end the text; they are not part of it. None, here and for ids: none
    stop_token_ids       ids that end the answer, and are the last of it; their text is no part of its text
    include_stop_str_in_output  the text goes on to the end of what stops it
    skip_special_tokens  special tokens have no text
    allowed_token_ids    the only ids that may be chosen; None allows all. No end is allowed that is not among them
    bad_words            texts that the answer must not have, as the tokens that the vocabulary makes of each and of a
                         space before it: other tokens may still spell them
    logprobs             None, or how many alternatives to report beside each chosen token
    prompt_logprobs      the same for each token of the prompt after the first
    structured_outputs   None, or what the answer must look like
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        for name, low, high in _WHOLE:
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                self._keep(name, _whole(name, value, low, high))
        for name, least, most, open_low in _REAL:
            _check(name, getattr(self, name), least, most, open_low)
            self._keep(name, float(getattr(self, name)))
        if self.top_k == -1:
            self._keep("top_k", 0)
        if self.seed == -1:
            self._keep("seed", None)
        self._keep("stop", _texts("stop", self.stop))
        self._keep("bad_words", _texts("bad_words", self.bad_words))
        self._keep("stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))
        if self.allowed_token_ids is not None:
            self._keep("allowed_token_ids", _ids("allowed_token_ids", self.allowed_token_ids))
            if not self.allowed_token_ids:
                raise ValueError("allowed_token_ids: is empty, which leaves no token to choose from; leave it out")
        for name in ("include_stop_str_in_output", "skip_special_tokens", "ignore_eos"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if not isinstance(self.logit_bias, Mapping | None):
            raise ValueError(f"logit_bias must be a dict of token ids and numbers, not {self.logit_bias!r}")
        for token_id, bias in (self.logit_bias or {}).items():
            _whole("logit_bias: a token id", token_id, 0, 2**31 - 1)
            _check(f"logit_bias of token {token_id}", bias, -100.0, 100.0)
        if self.logit_bias is not None:
            self._keep("logit_bias", _FixedDict({int(i): float(bias) for i, bias in self.logit_bias.items()}))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) must not be over max_tokens ({self.max_tokens})")
        guided = self.structured_outputs
        if guided is not None and not isinstance(guided, StructuredOutputsParams):
            raise ValueError(f"structured_outputs must be StructuredOutputsParams, not {type(guided).__name__}")
        if guided is not None and self.min_tokens:
            raise ValueError("min_tokens cannot be kept together with structured_outputs, which say when to end")
        if guided is not None and (self.allowed_token_ids is not None or self.bad_words):
            name = "bad_words" if self.bad_words else "allowed_token_ids"
            raise ValueError(f"{name} cannot be kept together with structured_outputs, which may leave nothing else")
        if any(not s for s in self.stop):
            raise ValueError("stop: an empty string would stop at once; leave it out")
        if any(not word.strip() for word in self.bad_words):
            raise ValueError("bad_words: one is empty or of spaces alone; leave it out")
        if self.bad_words and self.allowed_token_ids is not None:
            raise ValueError("bad_words and allowed_token_ids could leave no token to choose from; leave one out")

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


_WHOLE: Final = (
    ("n", 1, 128),
    ("top_k", -1, 2**31 - 1),
    ("seed", -(2**63), 2**64 - 1),
    ("max_tokens", 1, 2**31 - 1),
    ("min_tokens", 0, 2**31 - 1),
    ("logprobs", 0, 1000),
    ("prompt_logprobs", 0, 1000),
)
_MAY_BE_NONE: Final = ("seed", "max_tokens", "logprobs", "prompt_logprobs")
_REAL: Final = (
    ("temperature", 0.0, 100.0, False),
    ("top_p", 0.0, 1.0, True),
    ("min_p", 0.0, 1.0, False),
    ("repetition_penalty", 0.01, 100.0, False),
    ("presence_penalty", -2.0, 2.0, False),
    ("frequency_penalty", -2.0, 2.0, False),
)
"""Fields of SamplingParams with their bounds, and whether the lower one is beyond them."""


def _whole(field: str, value: SupportsIndex, low: int, high: int) -> int:
    """Also numpy's integers, as Python's."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{field} must be a whole number, not {value!r}") from None
    _check(field, number, low, high)
    return number


def _check(field: str, value: float, low: float, high: float, open_low: bool = False) -> None:
    if not isinstance(value, Real) or not (low < value <= high if open_low else low <= value <= high):
        raise ValueError(
            f"{field} must be {'over' if open_low else 'at least'} {low} and at most {high}, not {value!r}"
        )


def _items(field: str, given: Iterable[Any] | None) -> Iterable[Any]:
    if not isinstance(given, Iterable | None):
        raise ValueError(f"{field} must be a list, not {given!r}")
    return () if given is None else given


def _ids(field: str, given: Iterable[Any] | None) -> tuple[int, ...]:
    ids = tuple(_items(field, given))
    if ids and {*map(type, ids)} == {int} and min(ids) >= 0 and max(ids) < 2**31:  # as nearly all, perhaps very many
        return ids
    return tuple(_whole(field, i, 0, 2**31 - 1) for i in ids)


def _texts(field: str, given: str | Iterable[str] | None) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(_items(field, given))
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{field} must be text or a list of texts, not {text!r}")
    return texts


class Finish(Enum):
    """Why a sequence ended; values as in the OpenAI API."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Wants(Enum):
    """What a request is after: an answer, or what the model computes for each token of the prompt."""

    TOKENS = "tokens"
    LOGPROBS = "log-probabilities"
    LOGITS = "logits"
    HIDDEN = "hidden states"


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks of the engine.

    priority    lower is served first; equal ones in the order in which they came
    cache_salt  requests share what the cache holds of equal beginnings only where their salts are equal
    wants       for all but TOKENS nothing is generated, and of `params` only prompt_logprobs matters
    rows_from   position of the prompt's first token whose rows or log-probabilities are wanted, where any are: nothing
                is told of those before it
    whole       the answer is told once, when it is complete, as one Answer: for those who need no token before, and no
                log-probabilities
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    priority: int = 0
    cache_salt: str = ""
    wants: Wants = Wants.TOKENS
    whole: bool = False
    rows_from: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority", _whole("priority", self.priority, -(2**63), 2**63 - 1))
        if not 0 <= self.rows_from < max(1, len(self.prompt_ids)):
            raise ValueError(
                f"rows_from must be a position of the prompt's {len(self.prompt_ids)} tokens, not {self.rows_from}"
            )
        if self.whole and self.params.logprobs is not None:
            raise ValueError("a request's answer is told as a whole without logprobs: leave one of the two out")


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that changes from step to step, as backend arrays, complete when constructed.

    T tokens of S sequences (a sequence's tokens are consecutive rows), R rows to compute logits for. Layers that see
    equally far are a group; what differs between groups is a tuple of arrays, one for each.

    tokens        int32 [T]
    positions     int32 [T]       absolute position of each token in its sequence
    slots         (int32 [T],)    where the token's k and v go: block id * block size + offset
    query_start   int32 [S + 1]   rows query_start[s] .. query_start[s + 1] belong to sequence s
    seq_lens      int32 [S]       tokens in the cache after this step
    block_tables  (int32 [S, B],) block ids of each sequence in order; unused entries are 0
    sample_rows   int32 [R]       rows whose logits are wanted
    and for each of these rows, how its next token is chosen (see SamplingParams):
    temperature float32 [R], top_k int32 [R], top_p float32 [R], min_p float32 [R], seeds uint64 [R],
    next_positions int64 [R] (of the token to be chosen: randomness depends on seed and position alone)
    and what changes logits before that, arrays without elements where no row asks for it:
    penalties      float32 [R, 3]  repetition, presence, frequency
    listed_start   int32 [R + 1]   ids listed_start[r] .. listed_start[r + 1] are row r's
    listed_ids     int32 [N]       each with its bias and its count: -1 for an id that was not seen, 0 for one in the
    listed_counts  int32 [N]       prompt alone, n for one that is n times in the answer
    listed_bias    float32 [N]
    masks          uint32 [R, ceil(vocab_size / 32)]  bit i % 32 of word i // 32 allows id i
    n_padding      so many sequences at the end, of one token each, stand for nothing: they do as the first one, but
                   their slots are -1, so that they write nothing, and their seq_lens 0, so that they read nothing. S, T
                   and R count them
    least_tokens   of T that each sequence has: a kernel for fewer has nothing to do
    """

    tokens: Any
    positions: Any
    slots: tuple[Any, ...]
    query_start: Any
    seq_lens: Any
    block_tables: tuple[Any, ...]
    sample_rows: Any
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    seeds: Any
    next_positions: Any
    penalties: Any
    listed_start: Any
    listed_ids: Any
    listed_counts: Any
    listed_bias: Any
    masks: Any
    n_padding: int = 0
    least_tokens: int = 1


class TokenEvent(NamedTuple):
    """One generated token; the last one carries `finish`. There is one for every token, and a tuple is made quickly.

    logprob, rank, top_logprobs  of the model's own distribution, where they were asked for: the token's, its rank from
                                 1, and those of the likeliest (id, logprob) in order
    n_cached                     tokens of the prompt that needed no computing
    """

    token_id: int
    finish: Finish | None
    logprob: float | None = None
    rank: int | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    n_cached: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """All tokens that were generated for a request that asked for them as a `whole`. n_cached: as in TokenEvent."""

    token_ids: list[int]
    finish: Finish
    n_cached: int = 0


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Of prompt tokens start, start + 1, ..., each given those before it. last: whether there are no more."""

    start: int
    tokens: tuple[TokenEvent, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class PromptRows:
    """What was asked for of prompt positions start, start + 1, ...: float32 [n, vocab_size] or [n, d_model].

    last  whether there are no more
    """

    start: int
    values: Any
    last: bool


class NotFiniteError(ValueError):
    """What a model computed of a request is NaN or infinite, so that no answer can be made of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The request ends without an answer, for this reason."""

    error: BaseException


Event = TokenEvent | Answer | PromptLogprobs | PromptRows | Failure
