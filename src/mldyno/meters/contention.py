"""How much others got in the way: waiting for a core, stolen time, forced switches (Linux).

All are counters that the system keeps anyway; they are read twice, so the meter costs nothing while
a case is measured. A thread that is ready but has no core counts as waiting; one that sleeps does not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from mldyno.records import Series


def run_delay() -> float | None:
    """Time in s that this process's threads were ready to run but had no core; None where not counted."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as counters:
                total += int(counters.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def stolen() -> float | None:
    """Time in s that the host took from this virtual machine's cores; None where not counted."""
    try:
        with open("/proc/stat", encoding="ascii") as counters:
            return int(counters.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def forced_switches() -> int | None:
    """How often a thread of this process lost its core before it was done; None where not counted."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class Contention:
    """Reads the counters when a case is warm and when it ends."""

    def start(self) -> None:
        """Note where the counters stand."""
        self._before = self._read()

    def _read(self) -> dict[str, float | None]:
        return {"cpu_time": time.process_time(), "run_delay": run_delay(), "stolen_time": stolen(),
                "forced_switches": forced_switches()}  # fmt: skip

    def stop(self) -> list[Series]:
        """What each counter gained, in s; switches as a number. Counters that the system lacks are left out."""
        gained = []
        for metric, after in self._read().items():
            before = self._before[metric]
            if before is not None and after is not None:
                unit = "1" if metric == "forced_switches" else "s"
                gained.append((metric, unit, max(0.0, after - before)))
        return [Series(metric, unit, (value,), phase="process") for metric, unit, value in gained]  # type: ignore[arg-type]


METER = Contention
