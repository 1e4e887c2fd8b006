"""Whether the machine was slowed down to stay cool, and whether it swapped, while a case was measured.

Throttling: Linux counts it per core; macOS gives a speed limit on Intel's chips, and on its own ones a level of thermal
pressure. Swapping: pages that went to or came from the disk, over the whole machine.
Counters are read twice, at the start and at the end of a case; the level, which is at hand, after each window.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from glob import glob

from mldyno import system_queries
from mldyno.hardware import Meter
from mldyno.records import Case, Device, Series

CORE_COUNTERS = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
PRESSURE_NAME = b"com.apple.system.thermalpressurelevel"


def core_throttles() -> float | None:
    """How often cores have been slowed down for heat since the system started; None where not counted."""
    throttles = None
    for path in glob(CORE_COUNTERS):
        with suppress(OSError, ValueError), open(path, encoding="ascii") as counter:
            throttles = (throttles or 0.0) + float(counter.read())
    return throttles


def speed_limit() -> float | None:
    """The share of its full speed that macOS lets the CPU have; None where it does not say."""
    for line in system_queries.ask("pmset", "-g", "therm").splitlines():
        if "CPU_Speed_Limit" in line:
            with suppress(ValueError):
                return float(line.partition("=")[2]) / 100
    return None


def pressure_reader() -> Callable[[], float] | None:
    """What reads macOS's level of thermal pressure: 0 none, 1 moderate, 2 heavy and more; None on other systems."""
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
    """Memory in B that has gone to or come from the disk since the system started; None where not counted."""
    try:
        if sys.platform == "darwin":
            lines = system_queries.ask("vm_stat").splitlines()
            pages = [int(line.split()[-1].rstrip(".")) for line in lines if line.startswith(("Swapins", "Swapouts"))]
            return float(sum(pages) * os.sysconf("SC_PAGE_SIZE")) if pages else None
        with open("/proc/vmstat", encoding="ascii") as lines_:
            pages = [int(line.split()[1]) for line in lines_ if line.startswith(("pswpin ", "pswpout "))]
        return float(sum(pages) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


class Throttling(Meter):
    """Counters that are read when a case is warm and when it ends."""

    def start(self, case: Case, device: Device) -> bool:
        """Note where the counters stand."""
        self._before = {"throttle_events": core_throttles(), "swapped_memory": swapped()}
        self._pressure, self._levels = pressure_reader(), list[float]()
        return True

    def end_window(self) -> None:
        """Note the level, which is not."""
        if self._pressure is not None:
            self._levels.append(self._pressure())

    def stop(self) -> list[Series]:
        """What the counters gained, and what holds at the end; what the system does not say is omitted."""
        series = []
        for name, after in (("throttle_events", core_throttles()), ("swapped_memory", swapped())):
            before = self._before[name]
            if before is not None and after is not None:
                unit = "B" if name == "swapped_memory" else "1"
                series.append(Series(name, unit, (max(0.0, after - before),), stage="process"))  # type: ignore[arg-type]
        for name, now in (("speed_limit", speed_limit()), ("thermal_pressure", max(self._levels, default=None))):
            if now is not None:
                series.append(Series(name, "1", (now,), stage="process"))
        return series


METERS = (Throttling,)
