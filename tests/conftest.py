"""What holds for every test, before any module is imported.

Triton's kernels are run by its interpreter, unless TRITON_INTERPRET=0 says to compile them for the card at hand: Triton
looks at the variable when it is imported, which some test may cause before those of the kernels. And Ctrl-C is heeded,
also by the processes that tests start, where a shell that put the tests in the background had it ignored.
"""

from __future__ import annotations

import os
import signal

os.environ.setdefault("TRITON_INTERPRET", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)
