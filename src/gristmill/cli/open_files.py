"""How many files a process may have open, of which each connection is one."""

from __future__ import annotations

import resource


def allow_open_files(n: int) -> int:
    """For this process, as far as the system lets it: a common default is 1,024, which connections alone may need.

    How many of the n it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = n if hard == resource.RLIM_INFINITY else min(n, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
