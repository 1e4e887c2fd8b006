"""A worker and all processes that it started: their memory, their end; and waiting for a machine's memory."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mldyno import machine
from mldyno.rendezvous import JOB
from mldyno.temporary import has_ended, own_name
from mldyno.units import show_bytes

if TYPE_CHECKING:
    import psutil

TREE_SHARE = 0.001  # of a core, that looking for the worker's own processes may take
MOST_LOOKS = 5  # for processes that start more processes while they are ended


def new_mark() -> str:
    """Return the mark that a worker's processes have in their environment: who started it, and random digits."""
    return f"{own_name()}-{secrets.token_hex(8)}"


class ProcessTree:
    """A worker and all processes that it started: loaders' processes, ranks, a command and its children.

    A detached process is found by the mark in its environment. On Linux a worker also becomes its parent, so that a
    process that has cleared its environment is found too.
    """

    def __init__(self, root: int, mark: str) -> None:
        import psutil

        self._mark = mark
        self._root, self._worker = root, psutil.Process(root)  # which knows it from a later one of the same number
        self._started: dict[int, psutil.Process] = {}
        self._look_again = 0.0

    def resident(self) -> int | None:
        """Return the resident memory in B of all of them; None where the worker is not alive."""
        own = machine.resident_memory(self._root)
        if own is None:
            return None
        began = time.monotonic()
        if began >= self._look_again:
            self._look()
            ended = time.monotonic()
            self._look_again = ended + (ended - began) / TREE_SHARE
        return own + sum(machine.resident_memory(pid) or 0 for pid in self._started)

    def cpu_time(self) -> float | None:
        """Return the CPU time in s of all known processes; None where the worker is not alive."""
        import psutil

        try:
            times = [process.cpu_times() for process in (self._worker, *self._started.values())]
        except psutil.Error:
            return None
        return math.fsum(each.user + each.system for each in times)

    def _look(self) -> None:
        """Note which processes there are now, orphans included."""
        import psutil

        living = {pid: process for pid, process in self._started.items() if process.is_running()}
        with contextlib.suppress(psutil.Error):
            living |= {process.pid: process for process in self._worker.children(recursive=True)}
        self._started = living

    def kill(self) -> None:
        """Kill all of them: the worker's group, and what has left it."""
        import psutil

        self._look()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._root, signal.SIGKILL)
        for process in self._started.values():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for _ in range(MOST_LOOKS):
            if not _end(pid for pid, mark in marked() if mark == self._mark):
                return


def end_leftovers() -> None:
    """Kill what workers of a killed mldyno have left running."""
    _end(pid for pid, mark in marked() if has_ended(mark.rpartition("-")[0]))


def _end(pids: Iterator[int]) -> int:
    """Kill these processes; return how many there were."""
    ended = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended += 1
    return ended


def marked() -> Iterator[tuple[int, str]]:
    """Yield all living processes that have a mark in their environment and may be inspected, with their marks."""
    import psutil

    for pid in psutil.pids():
        mark = ""
        with contextlib.suppress(OSError, psutil.Error):
            if sys.platform == "linux":  # psutil takes ten times as long
                _, _, behind = Path(f"/proc/{pid}/environ").read_bytes().partition(f"{JOB}=".encode())
                mark = behind.partition(b"\0")[0].decode("ascii", "replace")
            else:
                mark = psutil.Process(pid).environ().get(JOB, "")
        if mark and pid != os.getpid():
            yield pid, mark


# -- memory of the machine -------------------------------------------------------------------------


RESERVE_SHARE, SMALLEST_RESERVE = 0.05, 512 << 20  # memory that a worker must leave free
FILLING_SHARE = 0.1  # of all memory: a case that held less is not what filled the machine
PATIENCE_S = 60.0  # for which a run waits in all until other programs have given memory back
MEMORY_LOOK_EVERY_S = 0.5


@cache
def total() -> int:
    """Return the memory in B of this machine, or of its container; 0 where it is not known."""
    return machine.describe().memory or 0


@cache
def reserve() -> int:
    """Return the memory in B that a worker must leave to the rest of the machine."""
    return max(round(RESERVE_SHARE * total()), SMALLEST_RESERVE)


def taken_by_others(held: int, grown: int | None = None) -> bool:
    """Return whether other programs filled the machine, and not a case that held this much, in B.

    `grown` is what the other programs have taken since the case was started, where that is known.
    """
    return held < FILLING_SHARE * total() or (grown is not None and held < grown)


def out_of_memory_reason(held: int, left: int) -> str:
    """Return why a case that held `held` B was ended when `left` B were left."""
    taken = show_bytes(max(0, total() - left - held))
    return f"the machine ran out of memory, but this case held only {show_bytes(held)}; other programs hold {taken}"


class Patience:
    """Time in s that may still be spent waiting for memory, in all."""

    def __init__(self, seconds: float | None = None) -> None:
        self.left = PATIENCE_S if seconds is None else seconds

    def wait(self, needed: int, check: Callable[[], None] = lambda: None) -> bool:
        """Wait until that much memory in B is available on top of twice the reserve; return whether it is."""
        while True:
            check()
            available = machine.available_memory()
            if available is None or available >= needed + 2 * reserve():
                return True
            if self.left <= 0:
                return False
            self.left -= MEMORY_LOOK_EVERY_S
            time.sleep(MEMORY_LOOK_EVERY_S)
