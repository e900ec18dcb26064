"""What is wrong with a chat request that another API's came to, by the names that fields have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gristmill.serve.errors import ApiError, as_api_error

_ENDS = (".", "[", ":")


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """names: a field of chat requests, with an index perhaps -> the field that it came of."""
    try:
        yield
    except (ApiError, ValueError) as error:
        told = as_api_error(error)
        param = _renamed(told.param, names) if told.param is not None else None
        message = _renamed(told.message, names)
        raise ApiError(
            told.status, message, param=param, code=told.code, kind=told.kind, headers=told.headers
        ) from None


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """`text` where it begins with a field: the longest of its names counts."""
    for name in sorted(names, key=len, reverse=True):
        if text == name or (text.startswith(name) and text[len(name)] in _ENDS):
            return names[name] + text[len(name) :]
    return text
