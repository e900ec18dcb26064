"""Streams: pieces joined are the whole, no half characters, and stop strings whatever the cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_lines import random_lines
from tokenizer_oracles import our_o200k, ours

from gristmill.tokenizer.stream import StopStrings, StreamDecoder


def get(name: str):  # type: ignore[no-untyped-def]
    return our_o200k() if name == "o200k" else ours(name)


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "o200k"])
def test_pieces_join_to_decode(name: str) -> None:
    tokenizer = get(name)
    for line in random_lines(61, 300):
        ids = tokenizer.encode(line)
        stream = StreamDecoder(tokenizer, at_start=True)
        pieces = [stream.push(token_id) for token_id in ids]
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in line
        assert stream.flush() == ""
        assert "".join(pieces) == tokenizer.decode(ids, skip_special=True)


@pytest.mark.parametrize("name", ["qwen2", "llama-spm"])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_ids_join_to_decode(name: str, data: st.DataObject) -> None:
    """Random ids: broken UTF-8 in every way, special tokens, at every split of the stream."""
    tokenizer = get(name)
    ids = data.draw(st.lists(st.one_of(st.integers(0, 400), st.integers(0, tokenizer.vocab_size - 1)), max_size=30))
    for skip_special in (False, True):
        for end in range(len(ids) + 1):
            stream = StreamDecoder(tokenizer, skip_special=skip_special, at_start=True)
            text = "".join(map(stream.push, ids[:end])) + stream.flush()
            assert text == tokenizer.decode(ids[:end], skip_special=skip_special)


def test_an_answer_keeps_its_first_space() -> None:
    tokenizer = ours("llama-spm")
    ids = tokenizer.encode("hello", add_special=False)
    assert StreamDecoder(tokenizer).push(ids[0]) == " hello"
    assert StreamDecoder(tokenizer, at_start=True).push(ids[0]) == "hello"


def test_a_character_comes_whole() -> None:
    tokenizer = ours("llama-spm")
    ids = tokenizer.encode("\U0001f9ff", add_special=False)[1:]
    stream = StreamDecoder(tokenizer)
    assert [stream.push(token_id) for token_id in ids] == ["", "", "", "\U0001f9ff"]


@pytest.mark.parametrize("name", ["qwen2", "llama-spm"])
def test_ids_beyond_the_vocabulary_are_no_text(name: str) -> None:
    """Models may have rows for more ids than there are tokens."""
    tokenizer = ours(name)
    a, b = (tokenizer.encode(text, add_special=False)[-1] for text in ("a", "b"))
    stream = StreamDecoder(tokenizer)
    pushed = [stream.push(token_id) for token_id in (a, tokenizer.vocab_size, tokenizer.vocab_size + 100, b)]
    assert [piece.strip() for piece in pushed] == ["a", "", "", "b"]


def run_stops(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder = StopStrings(stops)
    text = "".join(map(finder.push, pieces))
    stopped = finder.stopped
    return text + finder.flush(), stopped


def expected_stop(stops: list[str], text: str) -> tuple[str, bool]:
    """By the definition: read character by character until some stop string is complete."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc\n", max_size=4), max_size=12),
)
def test_stop_strings_at_every_cut(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    expected = expected_stop(stops, text)
    assert run_stops(stops, pieces) == expected
    assert run_stops(stops, list(text)) == expected
    assert run_stops(stops, [text]) == expected


def test_only_what_may_be_a_stop_is_held_back() -> None:
    finder = StopStrings(["</s>", "User:"])
    assert [finder.push(piece) for piece in ["Hi <", "/", "b", " Us", "e", "d User", ":", "more"]] == [
        "Hi ",
        "",
        "</b",
        " ",
        "",
        "Used ",
        "",
        "",
    ]
    assert finder.stopped
    assert finder.flush() == ""


def test_flush_gives_what_was_held_back() -> None:
    finder = StopStrings(["stop"])
    assert finder.push("a sto") == "a "
    assert (finder.stopped, finder.flush()) == (False, "sto")


def test_a_stop_that_is_completed_too_early_is_text() -> None:
    finder = StopStrings(["stop"])
    assert finder.push("a stop, st", free=True) == "a stop, "
    assert finder.push("op", free=True) == "stop"
    assert finder.push(" sto") == " "
    assert (finder.push("p!"), finder.stopped) == ("", True)


def test_a_stop_that_is_completed_too_early_stays_text_while_it_may_begin_another() -> None:
    finder = StopStrings(["\n", "\n\n"])
    assert [finder.push("a\n", free=True), finder.push("b")] == ["a", "\nb"]
    assert (finder.push("c\nd"), finder.stopped) == ("c", True)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings([""])
