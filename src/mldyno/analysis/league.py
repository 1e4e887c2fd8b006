"""Machines in the same work, the fastest first: this one among published and imported ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, compare
from mldyno.analysis.grouping import grouped
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.published import work
from mldyno.records import Case
from mldyno.store.figures import marks


@dataclass(frozen=True)
class Division:
    """All devices that did one work."""

    outcomes: tuple[Outcome, ...]
    """The fastest first; those that are asked about among them."""
    ours: frozenset[int]
    """Places of those that are asked about."""

    @property
    def case(self) -> Case:
        """The work."""
        return self.outcomes[min(self.ours)].case

    @property
    def best(self) -> Outcome:
        """The fastest of those that are asked about."""
        return self.outcomes[min(self.ours)]

    @property
    def beside(self) -> list[Comparison]:
        """The fastest of ours against each other machine, the fastest of these first; ours is `other`."""
        others = [outcome for place, outcome in enumerate(self.outcomes) if place not in self.ours]
        return [comparison for each in others if (comparison := compare(each, self.best)) is not None]


def league(ours: Sequence[Outcome], others: Sequence[Outcome]) -> list[Division]:
    """A division for each work that any of ours shares with another machine, in the order of ours.

    Figures that their authors doubt, and fake times, are in none. Nor are a user's own commands and loops: that two of
    one name do the same work is not known.
    """
    mine, theirs = ([outcome for outcome in side if _counts(outcome)] for side in (ours, others))
    rivals = grouped(theirs, work)
    divisions = []
    for shared, own in grouped(mine, work).items():
        if shared in rivals:
            ranked = sorted([*own, *rivals[shared]], key=_step)
            divisions.append(Division(tuple(ranked), frozenset(map(ranked.index, own))))
    return divisions


def _counts(outcome: Outcome) -> bool:
    """Whether it has a time that nobody doubts."""
    record = outcome.records[0]
    return _step(outcome) > 0 and not (record.case.own_work or record.fact("fake_time") or marks(record))


def _step(outcome: Outcome) -> float:
    return outcome.step.value if outcome.step is not None else 0.0
