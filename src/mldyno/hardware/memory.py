"""The process's resident memory in bytes: its peak, as the system counts it, and its size window by window."""

from __future__ import annotations

import os
import sys

from mldyno import system_queries
from mldyno.hardware import Meter
from mldyno.records import Case, Device, Series


def peak_resident() -> int | None:
    """The high-water mark of this process's resident memory in B; None where the system has none.

    Linux keeps it in /proc; its `getrusage` would show the parent's peak, which a child inherits.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_of_children() -> int | None:
    """The highest resident memory of any process that this one has started and seen end, in B."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident() -> int | None:
    """This process's memory now, in B: resident on Linux, charged on macOS; None where the system does not say."""
    charged = system_queries.footprint(os.getpid())
    if charged is not None:
        return charged
    try:
        with open("/proc/self/statm", "rb", 0) as sizes:
            return int(sizes.read(64).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class Memory(Meter):
    """Reads the system's own high-water mark: no thread, no sampling, nothing missed."""

    def start(self, case: Case, device: Device) -> bool:
        """The peak needs no start: the system counts from the beginning of the process."""
        self._sizes: list[float] = []
        return True

    def end_window(self) -> None:
        """Note the size: one that grows from window to window is a leak."""
        size = resident()
        if size is not None:
            self._sizes.append(float(size))

    def stop(self) -> list[Series]:
        """The highest resident size so far, and the size after each window, in B."""
        peak = max(peak_resident() or 0, peak_of_children() or 0)
        series = [] if not peak else [Series("peak_memory", "B", (float(peak),), stage="process")]
        return series + ([Series("resident_memory", "B", tuple(self._sizes), stage="window")] if self._sizes else [])


METERS = (Memory,)
