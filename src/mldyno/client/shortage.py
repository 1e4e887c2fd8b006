"""A machine that runs short of memory: whether a case took it, or other programs did; and the wait until it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

from mldyno import machine
from mldyno.units import show_bytes

RESERVE_SHARE, SMALLEST_RESERVE = 0.05, 512 << 20  # memory that a worker must leave free
FILLING_SHARE = 0.1  # of all memory: a case that held less is not what filled the machine
PATIENCE_S, LOOK_EVERY_S = 60.0, 0.5  # for how long a run waits in all until other programs have given memory back


@cache
def total() -> int:
    """Memory in B of this machine, or of its container; 0 where it is not known."""
    return machine.describe().memory or 0


@cache
def reserve() -> int:
    """Memory in B that is left to the rest of the machine."""
    return max(round(RESERVE_SHARE * total()), SMALLEST_RESERVE)


def taken_by_others(held: int, grown: int | None = None) -> bool:
    """Whether other programs filled the machine, and not a case that held so much, in B.

    `grown` is what the others have taken since the case was started, where that is known.
    """
    return held < FILLING_SHARE * total() or (grown is not None and held < grown)


def explained(held: int, left: int) -> str:
    """What happened to a case that held so much when so much was left, in B."""
    others = show_bytes(max(0, total() - left - held))
    return f"the machine ran out of memory, but this case held only {show_bytes(held)}; other programs hold {others}"


class Patience:
    """Time in s that may still be spent waiting for memory, in all."""

    def __init__(self, seconds: float | None = None) -> None:
        self.left = PATIENCE_S if seconds is None else seconds

    def wait(self, needed: int, check: Callable[[], None] = lambda: None) -> bool:
        """Wait until so much memory in B is available, beside twice the reserve; gives whether it is."""
        while True:
            check()
            available = machine.available_memory()
            if available is None or available >= needed + 2 * reserve():
                return True
            if self.left <= 0:
                return False
            self.left -= LOOK_EVERY_S
            time.sleep(LOOK_EVERY_S)
