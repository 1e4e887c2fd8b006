"""Resident memory of processes in bytes: its peak, as the system counts it, and its size at the end of each window."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from mldyno import system_queries
from mldyno.hardware import Reading, ReadingMeter
from mldyno.records import Case, Device


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


def resident(pid: int | None = None) -> int | None:
    """Return the memory of a process (by default this one) in B: resident on Linux, charged on macOS; else None."""
    charged = system_queries.footprint(pid or os.getpid())
    if charged is not None:
        return charged
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb", 0) as sizes:
            return int(sizes.read(64).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class Memory(ReadingMeter):
    """Read the peak that the system counts (no thread, no sampling, nothing missed), and the size of each window.

    The peak includes that of the largest process that this one has started and seen end.
    """

    def readings(self, case: Case, device: Device) -> list[Reading]:
        return [
            Reading("peak_memory", "B", "end", lambda: max(peak_resident() or 0, _peak(children=True) or 0) or None),
            Reading("resident_memory", "B", "end of a window", resident),
        ]


METERS = (Memory,)
