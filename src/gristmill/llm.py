"""class LLM: a model file, a backend and an engine behind text. The only place that picks a backend."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill import _kernels
from gristmill.answers import Answers
from gristmill.bundled import STORY_MODEL
from gristmill.engine.adjust import Mask
from gristmill.engine.draft_model import check_draft
from gristmill.engine.drafts import LONGEST
from gristmill.engine.engine import Engine, EngineSettings
from gristmill.engine.runner import REPLAY
from gristmill.formats.checkpoint import shown
from gristmill.formats.open import open_checkpoint
from gristmill.formats.qtypes import quantize_type
from gristmill.hub.names import as_name
from gristmill.hub.store import locate
from gristmill.kv.cache import plan
from gristmill.models.build import Progress, build, bytes_as_loaded
from gristmill.models.hyperparameters import read_config
from gristmill.models.sampling import Advice, Recommended
from gristmill.ops.cpu import CpuOps
from gristmill.ops.interface import Ops
from gristmill.outputs import Piece, RequestOutput, TextReader, Timed, up_to_stop
from gristmill.prompts import Ids, Prompt, as_ids, as_prompt, as_prompts
from gristmill.tokenizer.bad_words import ids_of_word
from gristmill.tokenizer.chat import ChatTemplate, encode_parts
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.model_text import ModelText
from gristmill.types import (
    Event,
    Failure,
    ModelConfig,
    PromptLogprobs,
    PromptRows,
    Request,
    SamplingParams,
    TokenEvent,
    Wants,
)

if TYPE_CHECKING:  # what chats and grammars need is imported by the first, so that other starts are a little shorter
    from gristmill.dialogue.format import ChatFormat, ChatPrompt
    from gristmill.dialogue.reader import DialogueReader
    from gristmill.engine.guide import GuideCompiler

T = TypeVar("T")
_log = logging.getLogger(__name__)

DEFAULT_CONTEXT = 8192
"""Context where none is asked for and the model allows as much."""

_SHORT = 4096
"""Characters, or ids, that are encoded and checked within some 0.2 ms."""

_CONTROL_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Where both versions say what memory a container may take, and has taken, and how its statistics begin."""

Message = Mapping[str, Any]


class LLM:
    """A model that is ready to answer.

    model          a .gguf, .safetensors or llama2.c .bin file, a folder with config.json and *.safetensors, or the name
                   of a model of the Hugging Face hub that was pulled: org/name or org/name:QUANT;
                   None: the story model that comes along
    device         'cpu', 'cuda' (a card, with torch and Triton), or 'auto', which is the processor
    threads        None: as many as there are cores for this process
    max_context    tokens of prompt and answer together; None: the model's own, at most 8192
    max_sequences  requests that run at once; others wait for their turn
    kv_type        'f16', 'f32' or 'q8_0' (int8, a scale for each 32), what keys and values are kept in
    kv_budget      bytes for keys and values; None: what max_sequences of the whole context need, if four fifths of the
                   memory that the weights leave free (of the system's, and of a container's limit) hold it, and
                   otherwise that much. Pages come as they are used. On a card: what gpu_memory_fraction leaves
    speculate      most tokens that repetitions in a text may guess at a time, up to 15, which True stands for: the same
                   answers, faster where text repeats itself
    draft          a smaller model with the same vocabulary that guesses tokens ahead: the same answers, faster where it
                   is often right
    gpu_memory_fraction  share of a card's memory that weights, cache and all else may take
    quantize       None (or 'none'), 'int8' (a float32 scale a row), 'q8_0', 'q4_0' (a float16 scale for each 32) or
                   'mxfp4': what dense matrices of float models are kept as. Those are the projections of attention and
                   of feed-forward networks, and the head; experts and matrices of up to 32,768 elements are not, the
                   embedding only where it is the head too, and what a file has quantized already stays as it is, which
                   a warning says
    chat_template  a Jinja2 file to use instead of the model's own chat template
    tokenizer      a file to take the vocabulary from instead of the model's own
    lazy           on the processor: weights stay in their file, which must not change meanwhile, until they are used
                   for the second time. The first token comes sooner, the second later, all the same
    progress       called with (bytes loaded, bytes in all)
    warming        called with (steps done, steps in all) where kernels are compiled before the first request, on a card
    Raises FileNotFoundError, and ModelFormatError, HubError (of a model that was not pulled) or another ValueError
    that names what is wrong; MemoryError where a card has no room for the weights or the cache.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        max_context: int | None = None,
        max_sequences: int = 16,
        kv_type: str = "f16",
        kv_budget: int | None = None,
        gpu_memory_fraction: float = 0.9,
        quantize: str | None = None,
        speculate: int = 0,
        draft: str | Path | None = None,
        tokenizer: str | Path | None = None,
        chat_template: str | Path | None = None,
        lazy: bool = False,
        progress: Progress | None = None,
        warming: Callable[[int, int], None] | None = None,
    ) -> None:
        model = STORY_MODEL if model is None else model
        files = {"model": model, "draft": draft, "tokenizer": tokenizer, "chat_template": chat_template}
        for field, file in files.items():
            if not isinstance(file, str | os.PathLike | None):
                raise ValueError(f"{field} must be text or a path, not {file!r}")
        path = locate(model)
        target = quantize_type(quantize)
        replay = _replay_mode()
        if device == "cuda" and kv_type == "q8_0":
            raise ValueError("kv_type q8_0 is for device cpu; on cuda use f16 or f32")
        _check_count("max_sequences", max_sequences)
        if kv_budget is not None and not (isinstance(kv_budget, Real) and kv_budget > 0):
            raise ValueError(f"kv_budget must be a number of bytes over 0, not {kv_budget!r}")
        if not isinstance(lazy, bool):
            raise ValueError(f"lazy must be True or False, not {lazy!r}")
        if not isinstance(speculate, SupportsIndex) or speculate not in range(LONGEST + 1):
            raise ValueError(f"speculate must be True, False or a number of tokens up to {LONGEST}, not {speculate!r}")
        checkpoint = open_checkpoint(path)
        config = read_config(checkpoint)
        ops = pick_backend(device, threads, gpu_memory_fraction, lazy)
        self._ops: Ops | None = ops
        context = pick_context(config, max_context)
        draft_checkpoint = open_checkpoint(locate(draft)) if draft is not None else None
        draft_config = read_config(draft_checkpoint) if draft_checkpoint is not None else None
        n_bytes = sum(bytes_as_loaded(checkpoint, config, target, 0).values())
        if draft_checkpoint is not None and draft_config is not None:
            check_draft(draft_config, config, context)
            n_bytes += sum(bytes_as_loaded(draft_checkpoint, draft_config, target, 0).values())
        sizes = (context, max_sequences, ops.step_tokens)
        on_card = device == "cuda"
        budget = kv_budget if kv_budget is not None else spare_memory(n_bytes)
        if on_card:  # before the weights take their time
            check_room_on_card(ops, n_bytes)
        else:
            kv_plan = plan(ops, config, kv_type, *sizes, budget, draft_config)
        with ThreadPoolExecutor(1) as beside:
            reading = beside.submit(ModelText, checkpoint, tokenizer, chat_template)
            decoder = build(checkpoint, ops, _unless_failed(reading, progress), target)
            small = build(draft_checkpoint, ops, progress, target) if draft_checkpoint is not None else None
            self._text = reading.result()
        if tokenizer is not None and self._text.found is not None:
            check_vocabulary(tokenizer, self._text.found.vocab_size, config.vocab_size)
        for opened in (checkpoint, draft_checkpoint):
            if opened is not None:
                opened.release_all()  # of a lazy model the file stays open
        _kernels.trim_heap()  # what the vocabulary took to read goes back to the system
        if on_card:
            budget = kv_budget if kv_budget is not None else spare_on_card(ops)
            kv_plan = plan(ops, config, kv_type, *sizes, budget, draft_config)
        self.model_path = path
        self.model_name = name_of(model, path)
        self.config: ModelConfig = config
        self._advice = Advice.of(checkpoint)
        self._warned = False  # of special tokens in a prompt's text
        self._eos_ids = self._text.eos_ids
        settings = EngineSettings(
            context,
            max_sequences,
            step_tokens=ops.step_tokens,
            eos_ids=self._eos_ids,
            speculate=LONGEST if speculate is True else speculate,
            replay=replay,
        )
        self._engine: Engine | None = Engine(
            decoder, ops, settings, kv_plan, kv_type, self._guide_of(), small, warming, self._bad_ids()
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """MissingTokenizerError where the model's files hold no vocabulary: prompts are then lists of ids."""
        return self._text.tokenizer

    @property
    def max_context(self) -> int:
        return self._open().settings.max_context

    @property
    def engine(self) -> Engine:
        """What runs the requests, for those who need its events (a server). ValueError once this LLM is closed."""
        return self._open()

    @property
    def chat_template(self) -> ChatTemplate:
        """TemplateError (a ValueError) where there is none, or none that could be read."""
        return self._text.chat_template

    def get_default_sampling_params(self) -> SamplingParams:
        """SamplingParams with what the model's files recommend; `generate` and the others use just what they are given.

        ModelFormatError where that is out of range.
        """
        return replace(SamplingParams(), **self.recommended().said)

    def recommended(self) -> Recommended:
        """What the model's files recommend, in a chat and elsewhere. ModelFormatError where that is out of range."""
        return self._advice.read()

    @property
    def packing_s(self) -> float:
        """Seconds that requests have waited for a lazy model's weights to be packed."""
        ops = self._ops
        return ops.packing_s if isinstance(ops, CpuOps) else 0.0

    @contextmanager
    def packing(self) -> Iterator[None]:
        """Meanwhile what a lazy model has left in its file is packed; for callers who wait for something else."""
        ops, stopped = self._ops, threading.Event()
        with ThreadPoolExecutor(1) as beside:
            packed = beside.submit(ops.pack_waiting, stopped.is_set) if isinstance(ops, CpuOps) else None
            try:
                yield
            finally:
                stopped.set()
        if packed is not None:
            with suppress(MemoryError, OSError):  # whoever needs the weights will be told
                packed.result()

    def encode(self, prompt: Prompt, *, parse_special: bool = False) -> list[int]:
        """Ids of a prompt, with BOS where the model wants it; ids are taken as they are. ValueError for neither.

        parse_special  special tokens that the text spells become those tokens, and a BOS that it begins with is not put
                       there again: for what a template has rendered, and never for what users write. Otherwise they are
                       plain text, as in every prompt, which a warning says once
        """
        given = as_prompt(prompt, "the prompt")
        if not isinstance(given, str):
            return given
        if parse_special:
            return encode_parts(self.tokenizer, [(given, True)])
        self._warn_of_special(given)
        return self.tokenizer.encode(given)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] = 0,
    ) -> list[RequestOutput]:
        """Answer one prompt or several (text or ids), with one SamplingParams for all or one for each, in order.

        All run together, as far as max_sequences and the cache allow; none changes another's answer.
        Special tokens in a prompt's text are plain text: use `chat`, or for what a template has rendered
        `encode(text, parse_special=True)`.
        """
        return _wait_for(self._submit_all(prompts, sampling_params, priority))

    async def agenerate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] = 0,
    ) -> list[RequestOutput]:
        """The same for asyncio, whose loop goes on while long texts are encoded and grammars compiled. Cancelling the
        task ends the requests."""
        import asyncio  # it takes 25 ms that most programs can spare

        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        submitted, given_up = list[Answers](), threading.Event()

        def submit() -> None:
            submitted.append(self._submit_all(prompts, sampling_params, priority, wake))
            if given_up.is_set():
                submitted[0].cancel()

        try:
            if _is_short(prompts, sampling_params):
                submit()
            else:
                await asyncio.to_thread(submit)
            await done.wait()
        except BaseException:
            given_up.set()
            for answers in submitted:
                answers.cancel()
            raise
        return submitted[0].outputs()

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[str]:
        """The answer's text, piece by piece. Closing the iterator ends the request."""
        (params,) = _params_for_each(sampling_params, 1)
        for piece in self.pieces(self.encode(prompt), params):
            if piece.text:
                yield piece.text

    def pieces(self, prompt_ids: list[int], params: SamplingParams) -> Iterator[Piece]:
        """Tokens with their text. A stop string ends the answer and is left out of it, as are the tokens after it; one
        of stop_token_ids comes with no text of its own."""
        with closing(self.timed_pieces(prompt_ids, params)) as tokens:
            for token in tokens:
                yield token.piece

    def timed_pieces(self, prompt_ids: list[int], params: SamplingParams) -> Generator[Timed, None, None]:
        """`pieces`, with the times at which the engine had them. Closing the generator ends the request."""
        if params.n != 1 or params.prompt_logprobs is not None:
            raise ValueError("a stream has one answer and no prompt_logprobs: use generate for n and prompt_logprobs")
        engine, reader = self._open(), TextReader(self._text.found, params)
        told: SimpleQueue[tuple[Event, float, float]] = SimpleQueue()

        def tell(event: Event) -> None:
            told.put((event, time.perf_counter(), self.packing_s))

        request_id = engine.submit(Request(tuple(as_ids(prompt_ids, "prompt_ids")), params), tell)
        try:
            while True:
                event, at, packing_s = told.get()
                if isinstance(event, Failure):
                    raise event.error
                if isinstance(event, TokenEvent):
                    piece = reader.push(event)
                    yield Timed(piece, at, packing_s)
                    if piece.finish is not None:
                        return
        finally:
            engine.cancel(request_id)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or several: messages of "role" and "content" through the model's chat template.

        Each output has its `text` as the model wrote it, and as `message` what that is in OpenAI's words: content,
        reasoning_content, tool_calls. structured_outputs and stop are of the content; a thought before it is free. An
        answer that max_tokens ends (finish_reason "length") may be without content.
        Special tokens are never parsed in what messages say. TemplateError (a ValueError) for a model without a
        template, or messages that its template refuses.
        """
        are_several = isinstance(messages, Sequence) and all(isinstance(each, Sequence) for each in messages)
        several = messages if are_several else [messages]
        options = (tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        prompts = [self.chat_prompt(conversation, *options) for conversation in several]  # type: ignore[arg-type]
        asked = _params_for_each(sampling_params, len(prompts))
        constrained = [self.constrain_chat(prompt, params) for prompt, params in zip(prompts, asked, strict=True)]
        # Stop strings are the readers': they mean nothing in thoughts and calls.
        readers = [partial(self.chat_reader, *of) if of[1].stop else None for of in zip(prompts, asked, strict=True)]
        free = [replace(params, stop=()) for params in constrained]
        outputs = _wait_for(self._submit_all([list(prompt.ids) for prompt in prompts], free, 0, dialogues=readers))
        return [self._with_messages(*given) for given in zip(outputs, prompts, asked, strict=True)]

    def chat_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """A conversation as `chat` gives it to the model, for `constrain_chat` and `chat_reader`."""
        from gristmill.dialogue.tools import read_tools

        parts = self.chat_template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._chat_format().prompt(parts, read_tools(tools))

    def constrain_chat(self, prompt: ChatPrompt, params: SamplingParams) -> SamplingParams:
        """`params` with their structured_outputs as they are for the whole of an answer, its thought included."""
        constrained = self._chat_format().constrain(prompt, params.structured_outputs)
        return (
            replace(params, structured_outputs=constrained) if constrained is not params.structured_outputs else params
        )

    def chat_reader(self, prompt: ChatPrompt, params: SamplingParams) -> DialogueReader:
        """Reads one answer into thought, calls and content. params: as they were before `constrain_chat`."""
        constrained = params.structured_outputs is not None
        return self._chat_format().reader(
            prompt,
            params.stop,
            params.min_tokens,
            constrained=constrained,
            shows_stop=params.include_stop_str_in_output,
        )

    def _chat_format(self) -> ChatFormat:
        from gristmill.dialogue.format import ChatFormat

        return ChatFormat(self.tokenizer, self.chat_template)

    def _with_messages(self, output: RequestOutput, prompt: ChatPrompt, params: SamplingParams) -> RequestOutput:
        from gristmill.dialogue.message import AssistantMessage

        answers = []
        for answer in output.outputs:
            reader, message = self.chat_reader(prompt, params), AssistantMessage()
            shows_stop = params.include_stop_str_in_output
            by_id = isinstance(answer.stop_reason, int) and not shows_stop
            for token_id in answer.token_ids[:-1] if by_id else answer.token_ids:
                message.add(reader.push(token_id))
            message.add(reader.finish())
            body, stop = message.body(), reader.stopped_by
            text = answer.text if stop is None else up_to_stop(answer.text, body, stop, shows_stop=shows_stop)
            answers.append(replace(answer, text=text, message=body))
        return replace(output, outputs=answers)

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of a conversation as `chat` gives it to the model."""
        options = (tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return list(self.chat_prompt(messages, *options).ids)

    def logits(self, ids: Ids, start: int = 0) -> NDArray[np.float32]:
        """float32 [T - start, vocab_size]: what the model expects after each token from `start` on, given those before.

        Only these are computed, and what the cache has of the tokens before `start` is not computed again.
        """
        return self._rows(ids, Wants.LOGITS, start)

    def embed(self, ids: Ids, start: int = 0) -> NDArray[np.float32]:
        """float32 [T - start, d_model]: the last hidden state of each token from `start` on, after the last norm."""
        return self._rows(ids, Wants.HIDDEN, start)

    def score(self, ids: Ids, start: int = 1) -> NDArray[np.float64]:
        """float64 [T - start]: log-probability of each token from `start` on (1 or more), given those before it.

        The head computes no more than these, and what the cache has of the tokens before is not computed again.
        """
        given = as_ids(ids, "ids")
        _check_start(start, 1, len(given))
        events = self._ask(given, Wants.LOGPROBS, SamplingParams(prompt_logprobs=0), start - 1)
        tokens = [token for event in events if isinstance(event, PromptLogprobs) for token in event.tokens]
        return np.array([token.logprob for token in tokens], np.float64)

    def close(self) -> None:
        """End what runs, and free the weights and the cache. What needs them fails afterwards, but another close."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        self._ops = None  # which keeps the memory that it laid weights in

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

    def _guide_of(self) -> Callable[[SamplingParams], Mask] | None:
        """What makes guides; it reads the vocabulary when the first is made."""
        if self._text.found is None or not self._eos_ids:
            return None
        made: list[GuideCompiler] = []
        making = threading.Lock()
        arguments = (self._text.found, self.config.vocab_size, self._eos_ids)

        def guide_of(params: SamplingParams) -> Mask:
            from gristmill.engine.guide import GuideCompiler  # what grammars need is seldom used

            assert params.structured_outputs is not None
            with making:
                if not made:
                    made.append(GuideCompiler(*arguments))
            return made[0].compile(params.structured_outputs)

        return guide_of

    def _bad_ids(self) -> Callable[[str], list[tuple[int, ...]]] | None:
        tokenizer = self._text.found
        return None if tokenizer is None else partial(ids_of_word, tokenizer)

    def _warn_of_special(self, text: str) -> None:
        if self._warned:
            return
        found = next((special for special in self.tokenizer.special_ids if special in text), None)
        if found is not None:
            self._warned = True
            _log.warning(
                "%s in a prompt is plain text and not the special token: use chat (--chat) for conversations, and"
                " LLM.encode(text, parse_special=True) for what a template has rendered",
                shown(found),
            )

    def _submit_all(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int],
        on_end: Callable[[], object] = lambda: None,
        dialogues: Sequence[Callable[[], DialogueReader] | None] | None = None,
    ) -> Answers:
        engine, many = self._open(), as_prompts(prompts)
        params = _params_for_each(sampling_params, len(many))
        priorities = _for_each("priority", priority, len(many))
        encoded = [self.encode(prompt) for prompt in many]
        for ids in encoded:
            engine.check(ids)
        answers = Answers(engine, on_end)
        try:
            readers = dialogues or [None] * len(many)
            for prompt, ids, p, number, reader in zip(many, encoded, params, priorities, readers, strict=True):
                answers.submit(prompt if isinstance(prompt, str) else None, ids, p, number, self._text.found, reader)
        except BaseException:
            answers.cancel()
            raise
        answers.all_submitted()
        return answers

    def _ask(self, ids: list[int], wants: Wants, params: SamplingParams, start: int) -> list[Event]:
        """All events of a request that generates nothing."""
        engine, events = self._open(), list[Event]()
        ended = threading.Event()

        def take(event: Event) -> bool:
            events.append(event)
            if isinstance(event, Failure) or (isinstance(event, PromptLogprobs | PromptRows) and event.last):
                ended.set()
            return False

        request = Request(tuple(ids), params, wants=wants, rows_from=start)
        request_id = engine.submit(request, take)
        try:
            ended.wait()
        finally:
            engine.cancel(request_id)
        if isinstance(last := events[-1], Failure):
            raise last.error
        return events

    def _rows(self, ids: Ids, wants: Wants, start: int) -> NDArray[np.float32]:
        given = as_ids(ids, "ids")
        _check_start(start, 0, len(given))
        events = self._ask(given, wants, SamplingParams(), start)
        return np.concatenate([event.values for event in events if isinstance(event, PromptRows)])


def _is_short(prompts: object, params: object) -> bool:
    """One prompt of the usual kinds, and one free answer: handing it to another thread would take longer."""
    prompt = prompts[0] if isinstance(prompts, list) and len(prompts) == 1 else prompts
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(isinstance(i, int) for i in prompt[:1])):
        return False
    is_free = params is None or (
        isinstance(params, SamplingParams) and params.n == 1 and params.structured_outputs is None
    )
    return len(prompt) <= _SHORT and is_free


def _wait_for(answers: Answers) -> list[RequestOutput]:
    try:
        answers.wait()
    except BaseException:
        answers.cancel()
        raise
    return answers.outputs()


def _unless_failed(reading: Future[ModelText], progress: Progress | None) -> Progress:
    """`progress` that raises what has gone wrong beside it: so that nobody waits for weights to be told."""

    def report(done: int, total: int) -> None:
        if reading.done():
            reading.result()
        if progress is not None:
            progress(done, total)

    return report


def pick_backend(
    device: str,
    threads: int | None,
    gpu_memory_fraction: float = 0.9,
    lazy: bool = False,
) -> Ops:
    """threads: those that compute, and on a card those that quantize weights while loading. lazy: see `LLM`.

    ValueError for a device that is not there.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, not {device!r}")
    if device != "cuda":
        return CpuOps(threads, lazy=lazy)
    try:
        from gristmill.ops.cuda import CudaOps
    except ModuleNotFoundError as error:
        raise ValueError(f"device cuda needs {error.name}: pip install 'gristmill[cuda]'") from None
    return CudaOps(gpu_memory_fraction, threads)


def check_room_on_card(ops: Ops, n_bytes: int) -> None:
    """MemoryError for weights of so many bytes, or more once they are laid out, where the card has less."""
    room = spare_on_card(ops)
    if n_bytes > room:
        raise MemoryError(
            f"the weights take {n_bytes / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB of the card's memory may be taken:"
            " choose a smaller or quantized model, quantize, gpu_memory_fraction or device cpu"
        )


def spare_on_card(ops: Ops) -> int:
    """Bytes that may be taken there now; once the weights are loaded, by keys and values."""
    from gristmill.ops.cuda import CudaOps

    assert isinstance(ops, CudaOps)
    return ops.spare_memory()


def pick_context(config: ModelConfig, asked: int | None) -> int:
    """Tokens of context to run with. ValueError for more than the model was made for."""
    if asked is None:
        return min(config.max_context, DEFAULT_CONTEXT)
    if not isinstance(asked, SupportsIndex) or not 2 <= asked <= config.max_context:
        raise ValueError(f"the context must be between 2 and the model's {config.max_context} tokens, not {asked!r}")
    return asked


def check_vocabulary(tokenizer: str | Path, n_tokens: int, n_rows: int) -> None:
    """ValueError for a vocabulary that is larger than the model's: it has ids that would mean nothing."""
    if n_tokens > n_rows:
        raise ValueError(
            f"{tokenizer}: has {n_tokens} tokens, and the model {n_rows}: it is another model's vocabulary"
        )


def name_of(model: str | Path, path: Path) -> str:
    """What people call a model: its name on the hub, or its file's without the ending, as text whatever its bytes."""
    if name := as_name(model):
        return str(name)
    return os.fsencode(path.resolve().name if path.is_dir() else path.stem).decode(errors="replace")


def _replay_mode() -> str:
    """What GRISTMILL_REPLAY says. ValueError before anything is loaded."""
    mode = os.environ.get("GRISTMILL_REPLAY") or "on"
    if mode not in REPLAY:
        raise ValueError(f"GRISTMILL_REPLAY must be one of {', '.join(REPLAY)}, not {mode!r}")
    return mode


def _for_each(field: str, given: T | Sequence[T], n: int) -> list[T]:
    if not isinstance(given, Sequence):
        return [given] * n
    if len(given) != n:
        raise ValueError(f"{len(given)} {field} for {n} prompts; give one for all or one for each")
    return list(given)


def _params_for_each(given: SamplingParams | Sequence[SamplingParams] | None, n: int) -> list[SamplingParams]:
    """ValueError for what is none."""
    params = _for_each("sampling_params", SamplingParams() if given is None else given, n)
    for each in params:
        if not isinstance(each, SamplingParams):
            raise ValueError(f"sampling_params must be SamplingParams, not {type(each).__name__}")
    return params


def spare_memory(n_bytes: int) -> int:
    """Four fifths of the memory that is free once n_bytes more of it are taken; a GiB where the system does not say."""
    free = [n for n in (_free_in_system(), _free_in_container()) if n is not None]
    return max(0, min(free) - n_bytes) * 4 // 5 if free else 2**30


def _free_in_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def _free_in_container() -> int | None:
    """What is left of the control group's limit, counting what it keeps of files. None without a limit."""
    for folder, limit, used, prefix in _CONTROL_GROUPS:
        try:
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            n_files = int(stat[f"{prefix}inactive_file"]) + int(stat[f"{prefix}active_file"])
            return int(Path(folder, limit).read_text()) - int(Path(folder, used).read_text()) + n_files
        except (OSError, ValueError, KeyError):
            continue
    return None


def _check_start(start: int, low: int, n: int) -> None:
    if not isinstance(start, SupportsIndex) or not low <= start < low + max(1, n):
        raise ValueError(f"start must be a position from {low} to {low + n - 1}, as there are {n} tokens, not {start}")


def _check_count(field: str, value: int) -> None:
    if not isinstance(value, SupportsIndex) or not 1 <= value <= 4096:
        raise ValueError(f"{field} must be between 1 and 4096, not {value!r}")
