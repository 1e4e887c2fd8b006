"""Memory of this machine, or of the container that it looks like from inside."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from mldyno import system_queries
from mldyno.machine import _cgroup

PRESSURE, CRITICAL = "kern.memorystatus_vm_pressure_level", 4  # of macOS: 1 normal, 2 warning


def total_memory() -> int | None:
    """Memory in B that there is: the machine's, or the container's limit; None where that can't be found out."""
    try:
        import psutil

        total = int(psutil.virtual_memory().total)
    except Exception:
        return None
    limit = _cgroup.number("memory.max")
    return min(total, limit) if limit else total


def available_memory() -> int | None:
    """Memory in B that can still be taken before the machine, or its container, swaps or kills."""
    try:
        free = _free()
    except Exception:
        free = None
    limit = _cgroup.number("memory.max")
    if limit is not None and (used := _cgroup.number("memory.current")) is not None:
        left = limit - used + (_cgroup.row("memory.stat", "inactive_file") or 0)
        return left if free is None else min(free, left)
    return free


def resident_memory(pid: int) -> int | None:
    """Resident memory in B of a process; None where it is gone or can't be seen."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return None
    charged = system_queries.footprint(pid)
    if charged is not None:
        return charged
    import psutil

    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None


def _free() -> int | None:
    if sys.platform == "linux":  # a plain read: the watchdog asks a few times a second
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    import psutil

    if system_queries.kernel_number(PRESSURE) == CRITICAL:
        return 0  # what is called available there is compressed or on the disk by then
    return int(psutil.virtual_memory().available)
