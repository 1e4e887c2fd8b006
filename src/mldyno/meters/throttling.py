"""Whether the machine was slowed down to stay cool, and whether it swapped, while a case was measured.

Throttling: Linux counts it per core, macOS gives a speed limit, NVIDIA's driver gives its reasons.
Swapping: pages that went to or came from the disk, over the whole machine.
All are read twice, at the start and at the end of a case; none while it is measured.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from glob import glob

from mldyno import system_queries
from mldyno.records import Case, Device, Series

CORE_COUNTERS = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
# Bits of the driver's mask that mean too hot or too much power; the others mean idle or a user's own limit.
HELD_BACK = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


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


def gpu_held_back() -> float | None:
    """1 where NVIDIA's driver holds a GPU's clock down for heat or power now, else 0; None without such a GPU."""
    if not os.environ.get("CUDA_VISIBLE_DEVICES", "0"):
        return None
    masks = system_queries.ask(
        "nvidia-smi", "--query-gpu=clocks_throttle_reasons.active", "--format=csv,noheader"
    ).split()
    with suppress(ValueError):
        reasons = [int(mask, 16) for mask in masks]
        return float(any(reason & HELD_BACK for reason in reasons)) if reasons else None
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


class Throttling:
    """Counters that are read when a case is warm and when it ends."""

    def start(self, case: Case, device: Device) -> bool:
        """Note where the counters stand."""
        self._before = {"throttle_events": core_throttles(), "swapped_memory": swapped()}
        return True

    def begin_window(self) -> None:
        """Nothing: these counters are slow to read."""

    def end_window(self) -> None:
        """Nothing."""

    def stop(self) -> list[Series]:
        """What the counters gained, and what holds at the end; what the system does not say is omitted."""
        series = []
        for name, after in (("throttle_events", core_throttles()), ("swapped_memory", swapped())):
            before = self._before[name]
            if before is not None and after is not None:
                unit = "B" if name == "swapped_memory" else "1"
                series.append(Series(name, unit, (max(0.0, after - before),), stage="process"))  # type: ignore[arg-type]
        for name, now in (("speed_limit", speed_limit()), ("gpu_held_back", gpu_held_back())):
            if now is not None:
                series.append(Series(name, "1", (now,), stage="process"))
        return series


METER = Throttling
