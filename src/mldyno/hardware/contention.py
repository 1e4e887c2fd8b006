"""How much got in the way, window by window: waiting for a core, stolen time, forced switches, page faults (Linux).

All are counters that the system keeps anyway; a window reads them at its two ends. A thread that is
ready but has no core counts as waiting; one that sleeps does not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from mldyno.hardware import Meter
from mldyno.records import Case, Device, Series


def run_delay() -> float | None:
    """Time in s that this process's threads were ready to run but had no core; None where not counted."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat", "rb", 0) as counters:
                total += int(counters.read(96).split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def stolen() -> float | None:
    """Time in s that the host took from this virtual machine's cores; None where not counted."""
    try:
        with open("/proc/stat", "rb", 0) as counters:
            return int(counters.read(160).split(b"\n")[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def cpu_of_others(beside_siblings: bool = False) -> float | None:
    """CPU time in s of all processes of the machine but those of this one's group; None where not counted.

    `beside_siblings`: nor those of the groups of its parent's other children. Ranks may be such.
    """
    used: dict[int, int] = {}
    groups = {os.getpgrp()}
    try:
        with open("/proc/stat", "rb", 0) as counters:
            user, nice, system, _, _, irq, softirq = map(int, counters.read(160).split(b"\n")[0].split()[1:8])
        for process in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process}/stat", "rb", 0) as counters:
                fields = counters.read(4096).rpartition(b")")[2].split()  # behind its name, which may hold anything
                parent, group = int(fields[1]), int(fields[2])
                used[group] = used.get(group, 0) + int(fields[11]) + int(fields[12])
                if beside_siblings and parent == os.getppid():
                    groups.add(group)
    except (OSError, ValueError, IndexError):
        return None
    own = sum(used.get(group, 0) for group in groups)
    return (user + nice + system + irq + softirq - own) / os.sysconf("SC_CLK_TCK")


def pressure() -> float | None:
    """Time in s that some thread of the whole machine had to wait for a core; None where not counted."""
    try:
        with open("/proc/pressure/cpu", "rb", 0) as counters:
            return int(counters.read(160).split(b"\n")[0].rpartition(b"total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def forced_switches() -> float | None:
    """How often a thread of this process lost its core before it was done; None where not counted.

    macOS counts every end of a time slice there, whether anyone else wanted the core or not.
    """
    if sys.platform == "darwin":
        return None
    try:
        import resource
    except ImportError:  # Windows
        return None
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def page_faults() -> float | None:
    """How often this process touched memory that the system had first to give it; None where not counted.

    Many of them in every step mean that the allocator hands memory back and fetches it again. Processes that
    do the same work differ in that, and so in their speed.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


COUNTERS: dict[str, Callable[[], float | None]] = {
    "window_time": time.monotonic,
    "cpu_time": time.process_time,
    "run_delay": run_delay,
    "stolen_time": stolen,
    "cpu_pressure": pressure,
    "forced_switches": forced_switches,
    "page_faults": page_faults,
}
UNITS = {"forced_switches": "1", "page_faults": "1"}  # else s


class Contention(Meter):
    """Reads the counters at both ends of a window."""

    def start(self, case: Case, device: Device) -> bool:
        """Find out which counters this system has, and how loaded it is."""
        self._counters = {name: read for name, read in COUNTERS.items() if read() is not None}
        self._gained: dict[str, list[float]] = {name: [] for name in self._counters}
        self._load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return True

    def begin_window(self) -> None:
        """Note where the counters stand."""
        self._before = {name: read() for name, read in self._counters.items()}

    def end_window(self) -> None:
        """Note what each has gained; a counter that went back, as /proc/stat may, has gained nothing."""
        after = {name: read() for name, read in self._counters.items()}
        for name, now in after.items():
            before = self._before[name]
            if before is not None and now is not None:
                self._gained[name].append(float(f"{max(0.0, now - before):.6g}"))
        self._before = after  # the next window may follow at once

    def stop(self) -> list[Series]:
        """What each counter gained in each window, in s; switches and page faults as numbers; the load at the start."""
        series = [
            Series(name, UNITS.get(name, "s"), tuple(values), stage="window")  # type: ignore[arg-type]
            for name, values in self._gained.items()
            if values
        ]
        if self._load is not None:
            series.append(Series("load", "1", (self._load,), stage="process"))
        return series


METERS = (Contention,)
