"""The one clock: the host's monotonic high-resolution counter, in ns; and how long a thread had no core."""

from __future__ import annotations

import hashlib
import threading
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


# -- spin ------------------------------------------------------------------------------------------


SPIN_S = 0.5  # that all cores are tried for
HASHED_CHUNK = bytes(range(256)) * (8 << 12)  # 8 MiB: some 10 ms of work, beside which taking the lock is nothing


def free_cores(cores: int) -> float:
    """How many of so many cores a process can have now."""
    return sum(shares(cores, SPIN_S))


def shares(threads: int, seconds: float) -> list[float]:
    """The share of a core that each of so many threads got, when all of them worked for so many s."""
    together = threading.Barrier(threads)
    gained: list[float] = []

    def work() -> None:
        together.wait()
        began, worked = now(), time.thread_time_ns()
        while (passed := now() - began) < seconds * 1e9:
            hashlib.sha256(HASHED_CHUNK)
        gained.append(min(1.0, (time.thread_time_ns() - worked) / max(1, passed)))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return gained
