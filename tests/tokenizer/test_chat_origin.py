"""Text that knows its origin: in these tests the author writes capitals and all others small letters, so case tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gristmill.tokenizer import template_text as texts
from gristmill.tokenizer.template_methods import METHODS, print_format
from gristmill.tokenizer.template_text import Marked

PIECES = st.text(alphabet="ABab", max_size=4)


def of_case(text: str) -> str:
    """`text` with capitals as the author's; as a plain string where there are none."""
    mask = bytes(character.isupper() for character in text)
    return Marked(text, mask) if 1 in mask else text


def holds(result: str, expected: str) -> bool:
    """The value is what str gives; and capitals, no others, are trusted."""
    return result == expected and texts.mask_of(result) == bytes(character.isupper() for character in expected)


@given(PIECES, PIECES, PIECES, st.integers(-5, 5), st.integers(-5, 5), st.integers(-1, 3))
def test_operations_keep_origins(a: str, b: str, c: str, start: int, stop: int, limit: int) -> None:
    text, other, third = of_case(a), of_case(b), of_case(c)
    assert holds(texts.join([text, other, third]), a + b + c)
    assert holds(texts.join([text, other], third), c.join([a, b]))
    assert holds(texts.cut(text, slice(start, stop)), a[start:stop])
    assert holds(texts.cut(text, slice(None, None, -1)), a[::-1])
    assert holds(texts.strip(text, b or None), a.strip(b or None))
    assert holds(texts.strip(text, b or None, right=False), a.lstrip(b or None))
    assert holds(texts.strip(text, b or None, left=False), a.rstrip(b or None))
    if b:
        assert holds(texts.replace(text, other, third, limit), a.replace(b, c, limit))
        for from_right in (False, True):
            expected = (str.rsplit if from_right else str.split)(a, b, limit)
            found = texts.split(text, other, limit, from_right=from_right)
            assert all(map(holds, found, expected))
            assert len(found) == len(expected)


@given(st.text(alphabet="ABab \n\r\x0b\x1f", max_size=12), st.integers(-1, 3))
def test_splitting_at_blanks_keeps_origins(a: str, limit: int) -> None:
    text = of_case(a)
    for from_right in (False, True):
        expected = (str.rsplit if from_right else str.split)(a, None, limit)
        found = texts.split(text, None, limit, from_right=from_right)
        assert found == expected
        assert all(texts.mask_of(part) == bytes(map(str.isupper, part)) for part in found)


def test_parts_keep_origins_where_the_separator_looks_like_them() -> None:
    parts = texts.split(Marked("xabb", b"\1\1\1\0"), "ab", -1)
    assert (parts, texts.mask_of(parts[1])) == (["x", "b"], b"\0")


def test_nothing_replaced_is_the_authors_where_all_is() -> None:
    for new, trusted in ((texts.mark("-"), True), ("-", False)):
        found = texts.replace(texts.mark("AB"), "", new)
        assert (found, texts.mask_of(found)) == ("-A-B-", bytes([trusted]) * 5)


def test_what_comes_of_no_text_is_not_trusted() -> None:
    assert not isinstance(texts.derive("7", 7), Marked)


class _Free:
    """An environment without limits, as far as methods ask for one."""

    def __init__(self) -> None:
        self.budget = self

    def charge(self, n_bytes: int) -> None:
        assert n_bytes >= 0

    def weigh(self, value: object) -> int:
        return 1

    def items(self, value: object) -> object:
        return value

    def text_of(self, value: object) -> str:
        return value if isinstance(value, str) else str(value)

    def concat(self, pieces: list[str]) -> str:
        return texts.join(pieces)


@given(st.text(alphabet="ABab\n", max_size=8), st.text(alphabet="ABab\n", min_size=1, max_size=2))
def test_methods_give_what_str_gives_and_trust_no_more(a: str, b: str) -> None:
    text, other = of_case(a), of_case(b)
    one = ("partition", "rpartition", "removeprefix", "removesuffix", "rsplit", "count", "rfind")
    calls: dict[str, tuple[object, ...]] = {
        **dict.fromkeys(("splitlines", "upper", "lower", "title", "strip", "isupper"), ()),
        **dict.fromkeys(one, (b,)),
        **dict.fromkeys(("center", "ljust", "rjust"), (9, "x")),
        "zfill": (9,),
    }
    for name, plain_arguments in calls.items():
        arguments = tuple(other if argument == b else argument for argument in plain_arguments)
        found = METHODS[str][name](_Free(), text, *arguments)
        assert found == getattr(str, name)(a, *plain_arguments), name
        parts = [found] if isinstance(found, str) else found if isinstance(found, list | tuple) else []
        if name not in ("upper", "lower", "title"):
            for part in parts:
                trusted = texts.mask_of(part)
                assert all(
                    not is_trusted or c.isupper() or c == "0" for c, is_trusted in zip(part, trusted, strict=True)
                ), name
        elif any(c.islower() for c in a):
            assert not any(1 in texts.mask_of(part) for part in parts), name


@given(st.sampled_from(["%s", "A%sB", "%5s|%d%%", "%(x)s", "%s%s"]), st.text(alphabet="ab%", max_size=3))
def test_formatting_gives_what_python_gives(form: str, value: str) -> None:
    values = {"x": value} if "(" in form else (value, 3) if "d" in form else (value, value) if form == "%s%s" else value
    found = print_format(_Free(), texts.mark(form), values)  # type: ignore[arg-type]
    assert found == form % values
    assert not any(is_trusted and c in "ab" for c, is_trusted in zip(found, texts.mask_of(found), strict=True))
