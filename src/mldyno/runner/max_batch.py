"""The largest batch that fits: doubled until one does not, then bisected, each tried in a process of its own.

A batch fits where a few whole steps of it come to their end. On the CPU a process is refused memory
beyond what the machine can spare, and watched besides, so that no other program has to give way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from mldyno import machine
from mldyno.axes import LARGEST_WHOLE
from mldyno.errors import MldynoError
from mldyno.records import Case
from mldyno.runner.worker_process import Ended, WorkerProcess, memory_limit, reserve

STEPS = 2  # the second one finds the optimiser's state in place
FINE = 64  # the answer is exact up to this batch, and to one part in so many beyond


@dataclass(frozen=True)
class Attempt:
    """A batch that was tried: its peak memory in B where it fitted, else the reason."""

    batch: int
    fits: bool
    peak: int | None = None
    reason: str = ""


@dataclass
class Search:
    """What is known so far of the largest batch of a case."""

    case: Case
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def fits(self) -> Attempt | None:
        """The largest that has been seen to fit."""
        return max((one for one in self.attempts if one.fits), key=lambda one: one.batch, default=None)

    @property
    def too_large(self) -> Attempt | None:
        """The smallest that has been seen not to fit."""
        return min((one for one in self.attempts if not one.fits), key=lambda one: one.batch, default=None)

    def next(self, most: int) -> int | None:
        """The batch to try next; None where the answer is known, or `most` fits."""
        low, high = self.fits, self.too_large
        if high is None:
            following = 2 * low.batch if low else self.case.batch or 1
            return min(following, most) if low is None or low.batch < most else None
        floor = low.batch if low else 0
        if high.batch - floor <= max(1, floor // FINE):
            return None
        return (floor + high.batch) // 2


def largest(
    case: Case,
    python: str,
    timeout: float,
    most: int | None,
    tell: Callable[[Attempt], None],
    check_interrupt: Callable[[], None] = lambda: None,
) -> Search:
    """Search for the case's largest batch, from its own size up; `tell` hears of each attempt.

    A batch that is too slow to try in `timeout` s ends the search as one that runs out of memory does.
    """
    search = Search(case)
    while (batch := search.next(most or LARGEST_WHOLE)) is not None:
        found = _attempt(replace(case, batch=batch), python, timeout, search.fits is not None, check_interrupt)
        search.attempts.append(found)
        tell(found)
    return search


def _attempt(
    case: Case, python: str, timeout: float, smaller_fits: bool, check_interrupt: Callable[[], None]
) -> Attempt:
    """Try a batch. Some frameworks crash where memory runs out: where a smaller one fits, that means the same."""
    worker = WorkerProcess(python, check_interrupt)
    command = {"do": "attempt", "case": asdict(case), "steps": STEPS, "limit": _spare()}
    batch = case.batch or 1
    try:
        worker.start()
        answer = worker.ask(command, timeout, lambda step: None)
        return Attempt(batch, True, answer["peak"])
    except Ended as end:
        if end.status in ("oom", "timeout") or (end.crashed and smaller_fits):
            return Attempt(batch, False, reason=f"{end.status}: {end.reason}")
        raise MldynoError(f"{case.id}: {end.status}: {end.reason}.") from None
    finally:
        worker.kill()


def _spare() -> int | None:
    """Memory in B that the machine can spare for a worker, and the user allows it."""
    left = machine.available_memory()
    limits = [one for one in (memory_limit(), None if left is None else left - reserve()) if one is not None]
    return max(1 << 20, min(limits)) if limits else None
