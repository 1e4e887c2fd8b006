"""Throttling for heat, and swapping, while a case was measured.

Throttling: Linux counts it per core; macOS reports a speed limit on Intel chips, and a level of thermal pressure on
its own. Swapping: pages that went to or came from the disk, for the whole machine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from glob import glob

from mldyno import system_queries
from mldyno.hardware import Reading, ReadingMeter
from mldyno.records import Case, Device

CORE_COUNTERS = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
PRESSURE_NAME = b"com.apple.system.thermalpressurelevel"


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


METERS = (Throttling,)
