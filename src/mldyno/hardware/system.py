"""The system's counters during a case: contention, resident memory, throttling and swapping.

Contention (Linux), window by window: waiting for a core, stolen time, forced switches, page faults. All are counters
that the system keeps anyway; they are read at the two ends of a window. A thread that is ready but has no core counts
as waiting; one that sleeps does not. Memory in B: its peak, and its size at the end of each window. Throttling: Linux
counts it per core; macOS reports a speed limit on Intel chips, and a level of thermal pressure on its own. Swapping:
pages that went to or came from the disk, for the whole machine.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob

from mldyno import system_queries
from mldyno.hardware import Reading, ReadingMeter
from mldyno.records import Case, Device, Unit

CORE_COUNTERS = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
PRESSURE_NAME = b"com.apple.system.thermalpressurelevel"


# -- contention ----------------------------------------------------------------------------------
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
    "window_time": time.monotonic, "cpu_time": time.process_time, "run_delay": run_delay, "stolen_time": stolen,
    "cpu_pressure": pressure, "forced_switches": forced_switches, "page_faults": page_faults,
}  # fmt: skip
UNITS: dict[str, Unit] = {"forced_switches": "1", "page_faults": "1"}  # else s


class Contention(ReadingMeter):
    """Read the counters at both ends of a window, and the load at the start."""

    def readings(self, case: Case, device: Device) -> list[Reading]:
        gains = [Reading(name, UNITS.get(name, "s"), "gain of a window", read) for name, read in COUNTERS.items()]
        load = [Reading("load", "1", "start", lambda: os.getloadavg()[0])] if hasattr(os, "getloadavg") else []
        return gains + load


# -- memory --------------------------------------------------------------------------------------
def peak_resident() -> int | None:
    """Return the peak of this process's resident memory in B; None if the system does not count it.

    Linux has it in /proc; its `getrusage` would show the peak of the parent, which a child inherits.
    """
    with suppress(ValueError, IndexError):
        for line in system_queries.read("/proc/self/status").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return _peak(children=False)


def _peak(children: bool) -> int | None:
    peak = system_queries.usage("ru_maxrss", children)
    return peak if peak is None or sys.platform == "darwin" else peak * 1024


def peak_with_children() -> int | None:
    """Return the peak in B of this process or the largest that it has seen end; None if neither is counted."""
    return max(peak_resident() or 0, _peak(children=True) or 0) or None


def peak_of_children() -> int | None:
    """Return the peak in B of the largest process that this one has seen end; None where it is smaller than this one.

    Linux counts what a process held before it became another program: at least as much as this one.
    """
    peak = _peak(children=True) or 0
    return peak if peak > (peak_resident() or 0) or (peak and sys.platform == "darwin") else None


def resident(pid: int | None = None) -> int | None:
    """Return the memory of a process (by default this one) in B: resident on Linux, charged on macOS; else None."""
    charged = system_queries.footprint(pid or os.getpid())
    if charged is not None:
        return charged
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid or 'self'}/statm", "rb", 0) as sizes:
        return int(sizes.read(64).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


class Memory(ReadingMeter):
    """Read the peak that the system counts (no thread, no sampling, nothing missed), and the size of each window.

    The peak includes that of the largest process that this one has started and seen end; that of a command is of
    these alone.
    """

    def readings(self, case: Case, device: Device) -> list[Reading]:
        of_command = case.framework == "command"
        return [
            Reading("peak_memory", "B", "end", peak_of_children if of_command else peak_with_children),
            Reading("resident_memory", "B", "end of a window", resident),
        ]


# -- throttling and swapping ---------------------------------------------------------------------
def core_throttles() -> float | None:
    """Return how often cores were slowed down for heat since the system started; None if not counted."""
    throttles = None
    for path in glob(CORE_COUNTERS):
        with suppress(OSError, ValueError), open(path, encoding="ascii") as counter:
            throttles = (throttles or 0.0) + float(counter.read())
    return throttles


def speed_limit() -> float | None:
    """Return the share of its full speed to which macOS limits the CPU; None if it does not report it."""
    for line in system_queries.ask("pmset", "-g", "therm").splitlines():
        if "CPU_Speed_Limit" in line:
            with suppress(ValueError):
                return float(line.partition("=")[2]) / 100
    return None


def pressure_reader() -> Callable[[], float] | None:
    """Return a function that reads macOS's thermal pressure (0 none, 1 moderate, 2 heavy); None on other systems."""
    if sys.platform != "darwin":
        return None
    with suppress(OSError, AttributeError):
        system, token = ctypes.CDLL(None), ctypes.c_int()
        if system.notify_register_check(PRESSURE_NAME, ctypes.byref(token)) == 0:

            def read() -> float:
                level = ctypes.c_uint64()
                system.notify_get_state(token, ctypes.byref(level))
                return float(level.value)

            return read
    return None


def swapped() -> float | None:
    """Return the memory in B that went to or came from the disk since the system started; None if not counted."""
    try:
        if sys.platform == "darwin":
            text, names = system_queries.ask("vm_stat"), ("Swapins", "Swapouts")
        else:
            text, names = system_queries.read("/proc/vmstat"), ("pswpin ", "pswpout ")
        pages = [int(line.split()[-1].rstrip(".")) for line in text.splitlines() if line.startswith(names)]
        return float(sum(pages) * os.sysconf("SC_PAGE_SIZE")) if pages else None
    except (OSError, ValueError, IndexError):
        return None


class Throttling(ReadingMeter):
    """Read counters when a case is warm and when it ends, and the level of thermal pressure after each window."""

    def readings(self, case: Case, device: Device) -> list[Reading]:
        pressure = pressure_reader()
        readings = [
            Reading("throttle_events", "1", "gain", core_throttles),
            Reading("swapped_memory", "B", "gain", swapped),
            Reading("speed_limit", "1", "end", speed_limit),
        ]
        return readings + ([Reading("thermal_pressure", "1", "largest", pressure)] if pressure else [])


METERS = (Contention, Memory, Throttling)
