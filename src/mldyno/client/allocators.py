"""The allocators of memory that a worker can be started with, as settings of its environment."""

from __future__ import annotations

import ctypes.util
import platform
import sys

# glibc gives large blocks back to the system when they are freed, and the next step touches their pages anew.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
LIBRARIES = {"jemalloc": "jemalloc", "tcmalloc": "tcmalloc_minimal"}
PACKAGES = {"jemalloc": "libjemalloc2", "tcmalloc": "libtcmalloc-minimal4"}


class NotHere(Exception):
    """An allocator that a worker can't have on this machine, and why."""


def settings_for(allocator: str | None) -> dict[str, str]:
    """The settings with which a worker has this allocator; raises NotHere where it can't have it here."""
    if allocator is None or allocator == "system":
        return {}
    if not sys.platform.startswith("linux"):
        raise NotHere(f"allocator {allocator} can be chosen on Linux only")
    if allocator == "steady":
        if platform.libc_ver()[0] != "glibc":
            raise NotHere("allocator steady is glibc's, and this Python uses another C library")
        return dict(KEEP)
    library = ctypes.util.find_library(LIBRARIES[allocator])
    if library is None:
        raise NotHere(f"{allocator} is not installed; on Debian and Ubuntu: apt install {PACKAGES[allocator]}")
    return {"LD_PRELOAD": library}
