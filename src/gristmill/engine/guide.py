"""Structured output: which tokens may come next, as bits over the vocabulary. It compiles and walks grammars with
llguidance, imported on first use; it fails closed: whatever cannot be kept is a GuideError, never no constraint."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gristmill.engine.guide_grammar import build_grammar, constraint_field
from gristmill.engine.guide_schema import GuideError
from gristmill.engine.guide_vocabulary import GuideVocabulary
from gristmill.tokenizer.interface import Tokenizer
from gristmill.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

__all__ = ["Guide", "GuideCompiler", "GuideError"]

COMPILE_LIMIT_S: Final = 2.0
CACHE_BYTES: Final = 128 << 20
_STACK_BYTES = 256 << 20  # address space: the compiler recurses along rules and references
_AT_ONCE = 4  # compilations; one that runs past the limit cannot be ended, and keeps its place until it ends
_MAX_LEXER_STATES = 20_000
_BYTES_A_STATE = 2048
_BYTES_A_GRAMMAR = 320 << 10
_REGEX_ERROR = re.compile(
    r'(?:invalid regex ".*" \(in regex\): )?regex parse error:\n *(?P<regex>.*)\n *\^+\nerror: (?P<cause>.*)'
)


@dataclass(slots=True)
class _Compiled:
    """A grammar in its first state, from which guides are copied; they share its automata, which grow as they walk.

    weight_bytes  an estimate, for the cache: the library does not tell
    broken        an automaton reached its limit: guides that share it fail, so the cache must not give it out
    """

    matcher: LLMatcher
    weight_bytes: int
    broken: bool = False


class Guide:
    """The state of one sequence in its grammar. Mutable, for one thread at a time; guides of one grammar may be used
    by several threads at once (they take turns inside, as they share automata). `mask` lets go of the interpreter's
    lock, the rest takes microseconds.

    A guide is not changed by what a scheduler does to a sequence: tokens that stay keep their guide.
    """

    def __init__(self, compiled: _Compiled, matcher: LLMatcher, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._compiled = compiled
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._n_tokens = 0
        self._n_ends = 0  # ids in eos_ids that were taken; they are always the last

    @property
    def n_tokens(self) -> int:
        """Tokens taken by `advance`."""
        return self._n_tokens

    @property
    def finished(self) -> bool:
        """The grammar is complete: nothing but an id that ends the answer may follow (or such an id was taken)."""
        return self._n_ends > 0 or (self._matcher.is_stopped() and not self._matcher.is_error())

    @property
    def may_end(self) -> bool:
        """Whether the text so far is a whole answer; exactly then `mask` allows the ids that end one."""
        return self._n_ends > 0 or self._matcher.is_accepting()

    def mask(self, row: NDArray[np.uint32]) -> None:
        """Fill uint32 [ceil(vocab_size / 32)]: bit i % 32 of word i // 32 says whether token i may come next.

        Where the grammar leaves one text only, its usual tokens alone are allowed. Raises GuideError, with no bit
        set, where the grammar grew past its limits; the answer must then end as failed.
        """
        n_words = -(-self._vocab_size // 32)
        if row.dtype != np.uint32 or row.shape != (n_words,) or not row.flags.carray:
            raise ValueError(f"row must be writable, contiguous uint32 [{n_words}], not {row.dtype} {row.shape}")
        if self._n_ends:
            self._only_ends(row)
            return
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():  # the library then allows an end, which would be an answer that is not whole
            row.fill(0)
            self._fail()

    def _only_ends(self, row: NDArray[np.uint32]) -> None:
        row.fill(0)
        for token_id in self._eos_ids:
            row[token_id // 32] |= np.uint32(1 << token_id % 32)

    def advance(self, token_id: int) -> None:
        """Take the next token. ValueError, and no change, for one that the grammar does not allow here."""
        if token_id in self._eos_ids:
            if not self.may_end:
                raise ValueError(f"token {token_id} ends the answer where its grammar does not")
            self._n_ends += 1
        elif self._n_ends or not 0 <= token_id < self._vocab_size or not self._takes(token_id):
            raise ValueError(f"token {token_id} is not allowed after {self._n_tokens} tokens of this grammar")
        self._n_tokens += 1

    def _takes(self, token_id: int) -> bool:
        taken = self._matcher.try_consume_tokens([token_id]) == 1
        if self._matcher.is_error():
            self._fail()
        return taken

    def rollback(self, n_tokens: int) -> None:
        """Forget the last n_tokens (drafts that were not accepted, say)."""
        if not 0 <= n_tokens <= self._n_tokens:
            raise ValueError(f"cannot forget {n_tokens} of {self._n_tokens} tokens")
        n_ends = min(n_tokens, self._n_ends)
        if n_tokens > n_ends and not self._matcher.rollback(n_tokens - n_ends):
            self._fail()
        self._n_ends -= n_ends
        self._n_tokens -= n_tokens

    def copy(self) -> Guide:
        """An independent guide in the same state, for a sequence that forks."""
        other = Guide(self._compiled, self._matcher.deep_copy(), self._vocab_size, self._eos_ids)
        other._n_tokens, other._n_ends = self._n_tokens, self._n_ends
        return other

    def forced(self) -> list[int]:
        """Tokens that must come next, tokenized as the model is used to; empty where there is a choice.

        `mask` allows nothing else here, one after the other, so they can be taken without sampling or be drafts.
        """
        if self.finished:
            return []
        tokens = self._matcher.compute_ff_tokens()
        if self._matcher.is_error():
            self._fail()
        return tokens

    def _fail(self) -> None:
        self._compiled.broken = True
        raise GuideError("grammar", f"this answer cannot go on: {_shorten(self._matcher.get_error())}")


class GuideCompiler:
    """Constraints -> guides, for one vocabulary. Safe to use from several threads.

    vocab_size   of the model: ids beyond the tokenizer's are never allowed
    eos_ids      ids that end an answer, at least one; they and special tokens are never allowed as text. A Lark
                 grammar may name a special token that is no end, `<|name|>`
    cache_bytes  compiled grammars kept for later, by estimated size
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int], *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        if not eos_ids or not all(0 <= token_id < vocab_size for token_id in eos_ids):
            raise ValueError(
                f"structured outputs need ids that end an answer within the vocabulary of {vocab_size}, not {eos_ids}"
            )
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = tuple(dict.fromkeys(eos_ids))
        self._end_texts = frozenset(text for text, token_id in tokenizer.special_ids.items() if token_id in eos_ids)
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[bytes, _Compiled] = OrderedDict()
        self._lock = threading.Lock()
        self._vocabulary_lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def prepare(self) -> None:
        """Read the vocabulary now (half a second for 150,000 tokens) instead of in the first `compile`."""
        self._read_vocabulary()

    def compile(self, params: StructuredOutputsParams) -> Guide:
        """A guide at the beginning of `params`. Blocks for at most some 2 s, and once for `prepare`.

        Raises GuideError, which names the field and the reason, for anything that cannot be kept to the letter or
        is too large to compile.
        """
        grammar = build_grammar(params, self._end_texts)
        key = hashlib.sha256(grammar.encode()).digest()
        compiled = self._find(key)
        if compiled is None:
            vocabulary = self._read_vocabulary()
            compiled = self._compile_in_time(constraint_field(params), vocabulary, grammar)
            self._keep(key, compiled)
        return Guide(compiled, compiled.matcher.deep_copy(), self._vocab_size, frozenset(self._eos_ids))

    def _find(self, key: bytes) -> _Compiled | None:
        with self._lock:
            compiled = self._cache.get(key)
            if compiled is None or compiled.broken:
                return None
            self._cache.move_to_end(key)
            # Each answer may add automaton states; past its share a grammar is compiled anew, which gives them back.
            compiled.weight_bytes += _BYTES_A_STATE * 16
            if compiled.weight_bytes > self._cache_bytes // 4:
                del self._cache[key]
            self._trim()
            return compiled

    def _keep(self, key: bytes, compiled: _Compiled) -> None:
        with self._lock:
            self._cache[key] = compiled
            self._cache.move_to_end(key)
            self._trim()

    def _trim(self) -> None:
        total = sum(entry.weight_bytes for entry in self._cache.values())
        while total > self._cache_bytes and self._cache:
            total -= self._cache.popitem(last=False)[1].weight_bytes

    def _read_vocabulary(self) -> LLTokenizer:
        with self._vocabulary_lock:
            if self._vocabulary is None:
                from llguidance import LLTokenizer  # here, since few processes need it

                adapter = GuideVocabulary(self._tokenizer, self._vocab_size, self._eos_ids)
                self._vocabulary = LLTokenizer(adapter, eos_token=list(self._eos_ids))  # type: ignore[arg-type]
            return self._vocabulary

    def _compile_in_time(self, field: str, vocabulary: LLTokenizer, grammar: str) -> _Compiled:
        """Compile in a thread of its own: for its stack, and since it cannot be ended but can be left behind."""
        if not self._places.acquire(timeout=COMPILE_LIMIT_S):
            raise GuideError(field, f"{_AT_ONCE} other grammars are still being compiled; try again later")
        results: list[_Compiled | Exception] = []

        def work() -> None:
            try:
                results.append(_compile(field, vocabulary, grammar, self._vocab_size))
            except Exception as error:
                results.append(error)
            finally:
                self._places.release()

        thread = threading.Thread(target=work, name="gristmill-guide", daemon=True)
        self._start(thread)
        thread.join(COMPILE_LIMIT_S)
        if not results:
            raise GuideError(field, f"takes more than {COMPILE_LIMIT_S:.0f} s to compile; simplify it")
        result = results.pop()
        try:
            if isinstance(result, GuideError):
                raise result
            if isinstance(result, Exception):
                raise GuideError(field, _shorten(str(result))) from result
            return result
        finally:
            del result  # an error that leads back to itself would keep its callers, and so the engine

    def _start(self, thread: threading.Thread) -> None:
        with self._lock:
            before = threading.stack_size(_STACK_BYTES)
            try:
                thread.start()
            except RuntimeError:
                self._places.release()
                raise
            finally:
                threading.stack_size(before)


def _compile(field: str, vocabulary: LLTokenizer, grammar: str, vocab_size: int) -> _Compiled:
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if matcher.is_error():
        raise GuideError(field, _shorten(matcher.get_error()))
    if warnings := matcher.get_grammar_warnings():  # what the library would pass over
        raise GuideError(field, _shorten("; ".join(warnings)))
    compiled = _Compiled(matcher, _BYTES_A_GRAMMAR + 64 * len(grammar))
    probe = Guide(compiled, matcher.deep_copy(), vocab_size, frozenset())
    row = np.zeros(-(-vocab_size // 32), np.uint32)
    try:  # the first two steps show a grammar without any answer, and most that are too wide
        probe.mask(row)
        if not row.any():
            raise GuideError(field, "no finite answer satisfies it")
        opening = vocabulary.tokenize_str("{")
        if len(opening) == 1 and row[opening[0] // 32] >> np.uint32(opening[0] % 32) & 1:
            probe.advance(opening[0])
            probe.mask(row)
    except GuideError as error:
        reason = "no finite answer satisfies it" if "NoExtension" in error.reason else error.reason
        raise GuideError(field, reason) from None
    return compiled


def _shorten(message: str) -> str:
    """One line of a library's message, without its stack; what is wrong with a regex comes before the regex."""
    message = _REGEX_ERROR.sub(lambda found: f"{found['cause']} in the regex {found['regex']:.80}", message)
    for mark in ("<backtrace>", "<non-verbose/>", "<state>"):
        message = message.split(mark)[0]
    line = " ".join(message.split())
    return line if len(line) <= 300 else line[:300] + " ..."
