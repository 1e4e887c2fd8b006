"""How long this process lives, and what comes of processes whose parent has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def die_with_parent() -> None:
    """Linux: be killed with the parent even if a library holds the interpreter's lock for ever."""
    parent = os.getppid()
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Linux: be the parent of what this process started and what then detached, so that it is found and ended."""
    _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(Exception):
            import ctypes

            ctypes.CDLL(None).prctl(option, value)
