"""What got in the way, window by window: waiting for a core, stolen time, forced switches, page faults (Linux).

All are counters that the system keeps anyway; they are read at the two ends of a window. A thread that is ready but has
no core counts as waiting; one that sleeps does not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from mldyno import system_queries
from mldyno.hardware import Reading, ReadingMeter
from mldyno.records import Case, Device, Unit


def _first_line(path: str, parse: Callable[[bytes], float]) -> float | None:
    """Return a number from the first line of a file in /proc; None if it is not there."""
    try:
        with open(path, "rb", 0) as counters:
            return parse(counters.read(160).split(b"\n")[0])
    except (OSError, ValueError, IndexError):
        return None


def run_delay() -> float | None:
    """Return the time in s that this process's threads were ready but had no core; None if not counted."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat", "rb", 0) as counters:
                total += int(counters.read(96).split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def stolen() -> float | None:
    """Return the time in s that the host took from this virtual machine's cores; None if not counted."""
    return _first_line("/proc/stat", lambda line: int(line.split()[8]) / os.sysconf("SC_CLK_TCK"))


def cpu_of_others(beside_siblings: bool = False) -> float | None:
    """Return the CPU time in s of all processes outside this one's group; None if not counted.

    With `beside_siblings`, exclude the groups of its parent's other children too, such as ranks.
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
    """Return the time in s that any thread of the machine had to wait for a core; None if not counted."""
    return _first_line("/proc/pressure/cpu", lambda line: int(line.rpartition(b"total=")[2]) / 1e6)


def forced_switches() -> float | None:
    """Return how often a thread of this process lost its core before it was done; None if not counted.

    macOS counts every end of a time slice there, whether another thread wanted the core or not.
    """
    return None if sys.platform == "darwin" else system_queries.usage("ru_nivcsw")


def page_faults() -> float | None:
    """Return how often this process touched memory that the system had to provide first; None if not counted.

    Many of them in every step mean that the allocator returns memory and requests it again.
    """
    return system_queries.usage("ru_minflt")


COUNTERS: dict[str, Callable[[], float | None]] = {
    "window_time": time.monotonic,
    "cpu_time": time.process_time,
    "run_delay": run_delay,
    "stolen_time": stolen,
    "cpu_pressure": pressure,
    "forced_switches": forced_switches,
    "page_faults": page_faults,
}
UNITS: dict[str, Unit] = {"forced_switches": "1", "page_faults": "1"}  # else s


class Contention(ReadingMeter):
    """Read the counters at both ends of a window, and the load at the start."""

    def readings(self, case: Case, device: Device) -> list[Reading]:
        gains = [Reading(name, UNITS.get(name, "s"), "gain of a window", read) for name, read in COUNTERS.items()]
        load = [Reading("load", "1", "start", lambda: os.getloadavg()[0])] if hasattr(os, "getloadavg") else []
        return gains + load


METERS = (Contention,)
