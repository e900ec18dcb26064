"""From ids, one at a time, to text that can be shown: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from gristmill.tokenizer.interface import Tokenizer


class StreamDecoder:
    """Pieces of text for ids as they come. All pieces and the flush together are what `decode` gives for all ids.

    at_start  the ids begin a text, so SentencePiece's space in front of it goes, as in `decode`; an answer that
              continues a prompt keeps it
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, at_start: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._strip = at_start and tokenizer.strips_first_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The characters that `token_id` completes; empty while one is incomplete, and of an id that the vocabulary
        lacks: models may have rows for more."""
        if token_id >= self._tokenizer.vocab_size:
            return ""
        special = self._tokenizer.is_special(token_id)
        if special and self._skip_special:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._strip and not special and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left when the ids end: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Passes text on until one of `stops` completes. Text that may be the start of one is held back until it is known.

    Where several complete, the one that completes first counts; so the result does not depend on how text is cut.

    shows_stop  the one that completes is text
    stopped_by  the one that has completed
    """

    def __init__(self, stops: Iterable[str], *, shows_stop: bool = False) -> None:
        self._stops = tuple(stops)
        self._shows_stop = shows_stop
        if any(not stop for stop in self._stops):
            raise ValueError("stop: an empty string would stop at once; leave it out")
        self._held = ""
        self.stopped_by: str | None = None

    @property
    def stopped(self) -> bool:
        return self.stopped_by is not None

    def push(self, text: str, *, free: bool = False) -> str:
        """The text that may be shown now. Once `stopped`, nothing more comes.

        free  a stop string that this completes is text
        """
        if self.stopped:
            return ""
        if not self._stops:
            return text
        held = self._held + text
        starts = [held.find(stop, max(0, len(self._held) + 1 - len(stop))) for stop in self._stops]
        ends = [(start + len(stop), start) for start, stop in zip(starts, self._stops, strict=True) if start >= 0]
        if ends and not free:
            end, start = min(ends)
            self.stopped_by, self._held = held[start:end], ""
            return held[: end if self._shows_stop else start]
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What was held back, when the text ends without a stop."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
