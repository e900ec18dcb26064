"""class LLM: a model file, a backend and an engine behind text. The only place that picks a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.engine import Engine, log_softmax
from gristmill.engine.runner import REPLAY
from gristmill.formats.open import open_checkpoint
from gristmill.formats.quantize import quantize_type
from gristmill.models.build import build, bytes_to_expect
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import Ops
from gristmill.tokenizer.interface import MissingTokenizerError, Tokenizer
from gristmill.tokenizer.load import load_tokenizer
from gristmill.tokenizer.stream import StopStrings, StreamDecoder
from gristmill.types import Finish, ModelConfig, SamplingParams, TokenEvent

DEFAULT_CONTEXT = 8192
"""Context where none is asked for and the model allows as much."""

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Logprob:
    """rank: 1 for the likeliest token. decoded_token: its text, U+FFFD for a part of a character."""

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer. logprobs: for each token its own id and its best alternatives, where they were asked for."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A prompt and its answers."""

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a generation: a token, and the text that it completes (empty while a character is incomplete)."""

    event: TokenEvent
    text: str
    finish: Finish | None


class LLM:
    """A model that is ready to answer.

    model        a .gguf, .safetensors or llama2.c .bin file, or a folder with config.json and *.safetensors
    device       'cpu', or 'auto' which is the same until there is a GPU backend
    threads      None: as many as there are cores for this process
    max_context  tokens of prompt and answer together; None: the model's own, at most 8192
    kv_type      'f16', 'f32' or 'q8_0' (int8, a scale for each 32), what keys and values are kept in
    quantize     None (or 'none'), 'int8' (a float32 scale a row) or 'q8_0' (a float16 scale for each 32): what dense
                 matrices of float models are kept as. Those are the projections of attention and of feed-forward
                 networks, and the head; experts and matrices of up to 32,768 elements are not, the embedding only
                 where it is the head too, and what a file has quantized already stays as it is, which a warning says
    tokenizer    a file to take the vocabulary from instead of the model's own
    progress     called with (bytes loaded, bytes in all)
    Raises FileNotFoundError, and ModelFormatError or another ValueError that names what is wrong.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        max_context: int | None = None,
        kv_type: str = "f16",
        quantize: str | None = None,
        tokenizer: str | Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        path = Path(model)
        target = quantize_type(quantize)
        replay = _replay_mode()
        checkpoint = open_checkpoint(path)
        self._ops = pick_backend(device, threads)
        self._ops.expect(bytes_to_expect(checkpoint, target))  # and meanwhile the vocabulary is read
        self._tokenizer: Tokenizer | None = None
        try:
            self._tokenizer = load_tokenizer(checkpoint, Path(tokenizer) if tokenizer is not None else None)
        except MissingTokenizerError as error:  # ids still work; text will say why it does not
            self._no_tokenizer = str(error)
        decoder = build(checkpoint, self._ops, progress, target)
        self.model_path = path
        self.config: ModelConfig = decoder.config
        eos_ids = self._tokenizer.eos_ids if self._tokenizer else ()
        context = pick_context(decoder.config, max_context)
        self._engine: Engine | None = Engine(decoder, self._ops, context, kv_type, eos_ids, replay)

    @property
    def tokenizer(self) -> Tokenizer:
        """MissingTokenizerError where the model's files hold no vocabulary: prompts are then lists of ids."""
        if self._tokenizer is None:
            raise MissingTokenizerError(self._no_tokenizer)
        return self._tokenizer

    @property
    def max_context(self) -> int:
        return self._open().max_context

    def encode(self, prompt: Prompt) -> list[int]:
        """Ids of a prompt, with BOS where the model wants it; a list of ids is taken as it is."""
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else [int(i) for i in prompt]

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or several (text or ids), with one SamplingParams for all or one for each, in order."""
        many = _as_list(prompts)
        params = _as_params(sampling_params, len(many))
        encoded = [self.encode(prompt) for prompt in many]
        for ids in encoded:
            self._open().check(ids)
        return [self._collect(prompt, ids, p) for prompt, ids, p in zip(many, encoded, params, strict=True)]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[str]:
        """The answer's text, piece by piece. Closing the iterator ends the request."""
        for piece in self.pieces(self.encode(prompt), sampling_params or SamplingParams()):
            if piece.text:
                yield piece.text

    def pieces(self, prompt_ids: list[int], params: SamplingParams) -> Iterator[Piece]:
        """Tokens with their text. A stop string ends the answer and is left out of it, as are the tokens after it."""
        if self._tokenizer is None:
            if params.stop:
                raise ValueError("stop strings need a vocabulary, and this model has none")
            for event in self._open().generate(prompt_ids, params):
                yield Piece(event, "", event.finish)
            return
        decoder, stops = StreamDecoder(self._tokenizer), StopStrings(params.stop)
        for event in self._open().generate(prompt_ids, params):
            text = stops.push(decoder.push(event.token_id))
            if stops.stopped:
                yield Piece(event, text, Finish.STOP)
                return
            if event.finish is not None:
                text += stops.push(decoder.flush()) + stops.flush()
            yield Piece(event, text, event.finish)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """float32 [T, vocab_size]: what the model expects after each prefix of `ids`."""
        return self._open().logits(list(ids))

    def score(self, ids: Sequence[int]) -> NDArray[np.float64]:
        """float64 [T - 1]: log-probability of each token after the first, given those before it."""
        logprobs = log_softmax(self.logits(ids)[:-1])
        chosen: NDArray[np.float64] = logprobs[np.arange(len(ids) - 1), np.asarray(ids[1:])]
        return chosen

    def close(self) -> None:
        """Free the weights and the cache. Anything but another close fails afterwards."""
        self._engine = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Engine:
        if self._engine is None:
            raise ValueError("this LLM has been closed")
        return self._engine

    def _collect(self, prompt: Prompt, prompt_ids: list[int], params: SamplingParams) -> RequestOutput:
        pieces = list(self.pieces(prompt_ids, params))
        finish = pieces[-1].finish
        output = CompletionOutput(
            index=0,
            text="".join(piece.text for piece in pieces),
            token_ids=[piece.event.token_id for piece in pieces],
            logprobs=None if params.logprobs is None else [self._logprobs(piece.event) for piece in pieces],
            finish_reason=finish.value if finish else None,
        )
        return RequestOutput(prompt if isinstance(prompt, str) else None, prompt_ids, [output])

    def _logprobs(self, event: TokenEvent) -> dict[int, Logprob]:
        assert event.logprob is not None
        ranks = {token_id: rank for rank, (token_id, _) in enumerate(event.top_logprobs, 1)}
        values = {event.token_id: event.logprob, **dict(event.top_logprobs)}
        text = self._tokenizer.token_text if self._tokenizer else lambda _: None
        return {i: Logprob(value, ranks.get(i), text(i)) for i, value in values.items()}


def pick_backend(device: str, threads: int | None) -> Ops:
    """ValueError for a device that is not there."""
    if device not in ("auto", "cpu"):
        raise ValueError(f"device must be auto or cpu, not {device!r}")
    return CpuOps(threads)


def pick_context(config: ModelConfig, asked: int | None) -> int:
    """Tokens of context to run with. ValueError for more than the model was made for."""
    if asked is None:
        return min(config.max_context, DEFAULT_CONTEXT)
    if not 2 <= asked <= config.max_context:
        raise ValueError(f"the context must be between 2 and the model's {config.max_context} tokens, not {asked}")
    return asked


def _replay_mode() -> str:
    """What GRISTMILL_REPLAY says. ValueError before anything is loaded."""
    mode = os.environ.get("GRISTMILL_REPLAY", "on")
    if mode not in REPLAY:
        raise ValueError(f"GRISTMILL_REPLAY must be one of {', '.join(REPLAY)}, not {mode!r}")
    return mode


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    items = list(prompts)
    if items and all(isinstance(item, int | np.integer) for item in items):
        return [[int(item) for item in items if not isinstance(item, str | Sequence)]]
    return [item for item in items if isinstance(item, str | Sequence)]


def _as_params(given: SamplingParams | Sequence[SamplingParams] | None, n: int) -> list[SamplingParams]:
    if given is None or isinstance(given, SamplingParams):
        return [given or SamplingParams()] * n
    if len(given) != n:
        raise ValueError(f"{len(given)} sampling_params for {n} prompts; give one for all or one for each")
    return list(given)
