"""What holds for every test, before any module is imported.

Triton's kernels are run by its interpreter, unless TRITON_INTERPRET=0 says to compile them for the card at hand: Triton
looks at the variable when it is imported, which some test may cause before those of the kernels. And Ctrl-C is heeded,
also by the processes that tests start, where a shell that put the tests in the background had it ignored.

What earlier modules left is kept from Python's garbage collector, which would else stop some later test for seconds.
Hypothesis sets examples no deadline, which a busy machine would break, and tries the same ones every time: it looks for
others where GRISTMILL_THOROUGH is set.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TRITON_INTERPRET", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "gristmill",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("GRISTMILL_THOROUGH"),
)
settings.load_profile("gristmill")


def set_aside_what_lives() -> None:
    """Free what nobody holds; of the rest, millions of objects late in a session, a full pass would take seconds."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    set_aside_what_lives()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    yield
    if nextitem is not None and nextitem.path != item.path:
        set_aside_what_lives()


def pytest_unconfigure() -> None:
    gc.unfreeze()
