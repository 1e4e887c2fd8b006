"""The peak of the process's resident memory, in bytes, as the system counts it."""

from __future__ import annotations

import sys

from mldyno.records import Series


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


class PeakMemory:
    """Reads the system's own high-water mark: no thread, no sampling, nothing missed."""

    def start(self) -> None:
        """Nothing to begin: the system counts from the start of the process."""

    def stop(self) -> list[Series]:
        """The highest resident size so far, in B; nothing where the system does not say."""
        peak = peak_resident()
        return [] if peak is None else [Series("peak_memory", "B", (float(peak),), phase="process")]


METER = PeakMemory
