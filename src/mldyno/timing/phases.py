"""Phases of a step, and other work beside it, each timed by itself: one after the other, with a wait after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mldyno.timing.clock import Clock

MIN_ROUNDS = 3  # where they fit into the time


class InPhases(Protocol):
    """What can be done phase by phase."""

    def run_phase(self, name: str) -> None:
        """Issue a phase."""

    def synchronize(self) -> None:
        """Wait for it."""


def time_phases(
    program: InPhases, names: Iterable[str], seconds: float, clock: Clock, tick: Callable[[list[float], int], None]
) -> dict[str, list[float]]:
    """Times in s of each phase, one value a round, for so many s: one round at least, three if twice the time allows.

    `tick` sees the first phase's values and the clock after each round.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    began = now = clock()
    rounds = 0
    while rounds == 0 or now - began < seconds * 1e9 * (2 if rounds < MIN_ROUNDS else 1):
        for name, values in times.items():
            start = clock()
            program.run_phase(name)
            program.synchronize()
            values.append((clock() - start) / 1e9)
        rounds += 1
        now = clock()
        tick(next(iter(times.values())), now)
    return times
