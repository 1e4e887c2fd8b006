"""The one clock: the host's monotonic high-resolution counter, in ns; and how long a thread had no core."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]

now: Clock = time.perf_counter_ns


def run_delay() -> int | None:
    """Time in ns that this thread was ready to run but had no core, so far; None where that is not counted."""
    try:
        with open("/proc/thread-self/schedstat", "rb", 0) as counters:
            return int(counters.read(96).split()[1])
    except (OSError, ValueError, IndexError):
        return None
