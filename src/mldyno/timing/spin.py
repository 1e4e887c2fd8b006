"""How much of the machine a process can have: a thread on each core works for a moment, and counts what it got.

Hashing lets go of the interpreter's lock, so that threads of one process really run side by side.
"""

from __future__ import annotations

import hashlib
import threading
import time

from mldyno.timing import clock

SPIN_S = 0.5  # that all cores are tried for
CHUNK = bytes(range(256)) * (8 << 12)  # 8 MiB: some 10 ms of work, beside which taking the lock is nothing


def free_cores(cores: int) -> float:
    """How many of so many cores a process can have now."""
    return sum(shares(cores, SPIN_S))


def shares(threads: int, seconds: float) -> list[float]:
    """The share of a core that each of so many threads got, when all of them worked for so many s."""
    together = threading.Barrier(threads)
    gained: list[float] = []

    def work() -> None:
        together.wait()
        began, worked = clock.now(), time.thread_time_ns()
        while (passed := clock.now() - began) < seconds * 1e9:
            hashlib.sha256(CHUNK)
        gained.append(min(1.0, (time.thread_time_ns() - worked) / max(1, passed)))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return gained
