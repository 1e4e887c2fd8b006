"""The clock, in ns; how long a thread had no core; how many of the machine's cores a process can have."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

Clock = Callable[[], int]

now: Clock = time.perf_counter_ns
SPIN_S = 0.5  # for which `free_cores` tries all cores
HASHED_BYTES = 8 << 20  # some 10 ms of work, so that taking the interpreter's lock costs nothing


def run_delay() -> int | None:
    """Return the time in ns that this thread was ready to run but had no core; None where that is not counted."""
    try:
        with open("/proc/thread-self/schedstat", "rb", 0) as counters:
            return int(counters.read(96).split()[1])
    except (OSError, ValueError, IndexError):
        return None


def free_cores(cores: int) -> float:
    """Return how many of the machine's cores a process can have now."""
    return sum(shares(cores, SPIN_S))


def shares(threads: int, seconds: float) -> list[float]:
    """Let threads work side by side for that many s; return the share of a core that each of them had.

    Hashing releases the interpreter's lock, so that threads of one process really run side by side.
    """
    chunk = bytes(HASHED_BYTES)
    together = threading.Barrier(threads)
    gained: list[float] = []

    def work() -> None:
        together.wait()
        began, worked = now(), time.thread_time_ns()
        while (passed := now() - began) < seconds * 1e9:
            hashlib.sha256(chunk)
        gained.append(min(1.0, (time.thread_time_ns() - worked) / max(1, passed)))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return gained
