"""The largest batch that fits: doubled until one does not, then bisected, each tried in a process of its own.

A batch fits where a few whole steps of it come to their end. On the CPU a process is refused memory
beyond what the machine can spare, and watched besides, so that no other program has to give way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mldyno import machine, sources
from mldyno.axes import LARGEST_WHOLE
from mldyno.client.shortage import Patience, reserve
from mldyno.client.worker_process import Ended, WorkerProcess, memory_limit
from mldyno.errors import MldynoError
from mldyno.messages import TrySteps
from mldyno.records import Case

SHORTEST_TIMEOUT_S = 900.0  # of an attempt, where the user names none
STEPS_TRIED = 2  # the second one finds the optimiser's state in place
LEAST_SHARE = 0.5  # of the memory that could be spared at first, without which other programs are in the way
EXACT_BATCH = 64  # the answer is exact up to this batch, and to one part in so many beyond


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
        """The largest that fitted."""
        return max((tried for tried in self.attempts if tried.fits), key=lambda tried: tried.batch, default=None)

    @property
    def too_large(self) -> Attempt | None:
        """The smallest that did not fit."""
        return min((tried for tried in self.attempts if not tried.fits), key=lambda tried: tried.batch, default=None)

    def next(self, most: int) -> int | None:
        """The batch to try next; None where the answer is known, or `most` fits."""
        low, high = self.fits, self.too_large
        if high is None:
            following = 2 * low.batch if low else self.case.batch or 1
            return min(following, most) if low is None or low.batch < most else None
        floor = low.batch if low else 0
        if high.batch - floor <= max(1, floor // EXACT_BATCH):
            return None
        return (floor + high.batch) // 2


def largest(case: Case, timeout: float, most: int | None, tell: Callable[[Attempt], None]) -> Search:
    """Search for the case's largest batch, from its own size up; `tell` hears of each attempt.

    A batch that is too slow to try in `timeout` s ends the search as one that runs out of memory does.
    """
    search, patience, spare = Search(case), Patience(), _spare() or 0
    while (batch := search.next(most or LARGEST_WHOLE)) is not None:
        tried = replace(case, batch=batch)
        _wait_for(tried, spare, patience)
        attempt = _attempt(tried, timeout, search.fits is not None, patience)
        search.attempts.append(attempt)
        tell(attempt)
    return search


def _wait_for(case: Case, spare: int, patience: Patience) -> None:
    """Wait until the machine can spare half of the memory in B that it could at first; raises where it does not."""
    needed = round(LEAST_SHARE * spare)
    if (_spare() or needed) < needed and not patience.wait(needed):
        raise MldynoError(
            f"{case.id}: other programs took the memory that was free at first; try again when they are done."
        )


def _attempt(case: Case, timeout: float, smaller_fits: bool, patience: Patience, again: bool = False) -> Attempt:
    """Try a batch; once more, where other programs had taken the memory and gave it back.

    Where memory runs out, some frameworks crash, and some libraries fail for reasons of their own: where a smaller one
    fits, that means the same.
    """
    batch = case.batch or 1
    try:
        with WorkerProcess(case=case) as worker:
            command = TrySteps(case, STEPS_TRIED, _spare(), sources.known(case.workload))
            return Attempt(batch, True, worker.ask(command, timeout).peak)
    except Ended as end:
        reason = f"{end.status}: {end.reason}"
        if end.status == "timeout":
            reason += "; give it more with --timeout"
        if end.held is not None and not again and patience.wait(0):
            return _attempt(case, timeout, smaller_fits, patience, again=True)
        failed = end.crashed or end.reason.startswith("RuntimeError")
        if end.status in ("oom", "timeout") or (failed and smaller_fits):
            return Attempt(batch, False, reason=reason)
        raise MldynoError(f"{case.id}: {reason}.") from None


def _spare() -> int | None:
    """Memory in B that the machine can spare for a worker, and the user allows it."""
    left = machine.available_memory()
    limits = [limit for limit in (memory_limit(), None if left is None else left - reserve()) if limit is not None]
    return max(1 << 20, min(limits)) if limits else None
