"""From an answer's ids to deltas: which special tokens a parser sees, and stop strings. It knows no format."""

from __future__ import annotations

from collections.abc import Iterable

from gristmill.dialogue.types import ContentDelta, Delta, Parser
from gristmill.tokenizer.interface import Tokenizer
from gristmill.tokenizer.stream import StopStrings, StreamDecoder


class DialogueReader:
    """One answer. Give it every token, the one that ends it included, then `finish`.

    stop        strings that end the answer's content, and are no part of it, unless it shows_stop. In thoughts and
                arguments they mean nothing
    min_tokens  one that the first so many tokens complete is text
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        parser: Parser,
        stop: Iterable[str] = (),
        min_tokens: int = 0,
        *,
        shows_stop: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._parser = parser
        self._marks = parser.marks
        self._ends = frozenset(tokenizer.eos_ids)
        self._decoder = StreamDecoder(tokenizer, skip_special=False)
        self._stops = StopStrings(stop, shows_stop=shows_stop)
        self._n_left = min_tokens
        self._free = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string came: nothing more does."""
        return self._stops.stopped

    @property
    def stopped_by(self) -> str | None:
        """The stop string that came."""
        return self._stops.stopped_by

    def push(self, token_id: int) -> list[Delta]:
        """What a token adds."""
        self._free = self._n_left > 0
        self._n_left -= 1
        return [] if self._hides(token_id) else self._cut(self._parser.push(token_id, self._decoder.push(token_id)))

    def _hides(self, token_id: int) -> bool:
        if self._marks is None:
            return False
        hidden = self._tokenizer.is_special(token_id) or token_id in self._ends
        return hidden and self._tokenizer.token_text(token_id) not in self._marks

    def finish(self) -> list[Delta]:
        """The answer has ended: what was held back. Empty once a stop string came."""
        last_text = self._decoder.flush()
        deltas = self._parser.push(-1, last_text) if last_text else []
        deltas = self._cut([*deltas, *self._parser.finish()])
        held = self._stops.flush()
        return [*deltas, ContentDelta(held)] if held else deltas

    def _cut(self, deltas: list[Delta]) -> list[Delta]:
        """Content up to a stop string; what comes after content that may be the beginning of one lets it go first."""
        kept: list[Delta] = []
        for delta in deltas:
            if self._stops.stopped:
                break
            if isinstance(delta, ContentDelta):
                text, others = self._stops.push(delta.text, free=self._free), []
            else:
                text, others = self._stops.flush(), [delta]
            kept += [ContentDelta(text), *others] if text else others
        return kept
