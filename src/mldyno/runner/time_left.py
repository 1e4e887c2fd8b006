"""How long a run still takes: each of its parts as estimated, corrected by how long those before it really took.

A run is a row of parts that is known before it begins: in each repeat, for each group of comparable cases, every
case alone and then their paired comparison. Where the run stands in this row is all that has to be known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mldyno.plan import Plan
from mldyno.records import Case
from mldyno.runner.forecast import Forecast
from mldyno.runner.pairing import groups

PRIOR_S = 10.0  # for which the forecast is believed, before what was seen weighs more


@dataclass(frozen=True)
class RunPart:
    """A case alone in a repeat, or a group's paired comparison (then its first case); and its time in s."""

    case: str
    repeat: int
    pairing: bool
    seconds: float


class TimeLeft:
    """Where a run stands, and what it still takes; all times in s."""

    def __init__(self, plan: Plan, forecasts: Sequence[Forecast], clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._clock = plan, clock
        self._expected = {expected.case.id: expected for expected in forecasts}
        self._groups = groups(plan.cases, plan.by)
        self._first = {case.id: group[0].id for group in self._groups for case in group}
        self._parts: list[RunPart] = []
        self._at = 0
        self._began = self._since = clock()

    def begin(self, todo: Sequence[tuple[Case, int]]) -> None:
        """The run begins, with these cases and repeats to do."""
        due = {(case.id, repeat) for case, repeat in todo}
        self._parts = [
            part
            for repeat in range(self._plan.repeats)
            for group in self._groups
            for part in self._of_group([case for case in group if (case.id, repeat) in due], repeat)
        ]
        self._at, self._began = 0, self._clock()
        self._since = self._began

    def _of_group(self, cases: Sequence[Case], repeat: int) -> list[RunPart]:
        repeats = self._plan.repeats
        known = [self._expected[case.id] for case in cases if case.id in self._expected]
        alone = [RunPart(each.case.id, repeat, False, (each.seconds - each.pairing) / repeats) for each in known]
        paired = sum(each.pairing for each in known) / repeats
        return [*alone, RunPart(self._first[cases[0].id], repeat, True, paired)] if paired else alone

    def reached(self, case: Case, repeat: int, pairing: bool = False) -> None:
        """A case, or the paired comparison of its group, begins now; whatever stands before it is over."""
        name = self._first.get(case.id) if pairing else case.id
        for place in range(self._at, len(self._parts)):
            part = self._parts[place]
            if (part.case, part.repeat, part.pairing) == (name, repeat, pairing):
                if place > self._at:
                    self._at, self._since = place, self._clock()
                return

    @property
    def elapsed(self) -> float:
        """Since the run began."""
        return self._clock() - self._began

    @property
    def pace(self) -> float:
        """How many times as long as estimated the parts took that are over."""
        before = sum(part.seconds for part in self._parts[: self._at])
        return (self._since - self._began + PRIOR_S) / (before + PRIOR_S)

    @property
    def of_part(self) -> float:
        """What the present part is expected to take in all."""
        return self._parts[self._at].seconds * self.pace if self._parts else 0.0

    @property
    def part_share(self) -> float:
        """How much of the present part is over, at most 0.99."""
        return min(0.99, (self._clock() - self._since) / max(0.01, self.of_part))

    @property
    def seconds(self) -> float:
        """Until the end of the run."""
        after = self.pace * sum(part.seconds for part in self._parts[self._at + 1 :])
        left = max(0.0, self.of_part - (self._clock() - self._since)) + after
        if self._plan.limit is not None:
            left = min(left, max(0.0, self._plan.limit - self.elapsed))
        return left

    @property
    def share(self) -> float:
        """How much of the run is over, at most 0.99."""
        return min(0.99, self.elapsed / max(0.01, self.elapsed + self.seconds))
