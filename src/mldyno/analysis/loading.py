"""How many workers a loader should have: what each number of them brings over the fewest, and over the best before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, alike, compare
from mldyno.analysis.outcomes import Outcome

AXIS = "loader_workers"


@dataclass(frozen=True)
class MoreWorkers:
    """One number of workers."""

    over_fewest: Comparison
    over_best: Comparison
    """Against the smaller number that was fastest for sure."""

    @property
    def workers(self) -> int:
        """How many."""
        return self.over_best.other.case.loader_workers


@dataclass(frozen=True)
class LoaderGain:
    """One case with several numbers of loader workers."""

    steps: tuple[MoreWorkers, ...]
    """From the second number on, in order."""

    @property
    def best(self) -> int:
        """The number from which on no larger one was surely faster."""
        faster = [step.workers for step in self.steps if step.over_best.verdict == "faster"]
        return faster[-1] if faster else self.steps[0].over_fewest.base.case.loader_workers


def loader_gains(outcomes: Sequence[Outcome]) -> list[LoaderGain]:
    """What workers bring to each case that was measured with two numbers of them or more."""
    gains = []
    for group in alike([outcome for outcome in outcomes if outcome.status == "ok"], AXIS):
        fewest, *others = sorted(group, key=lambda outcome: outcome.case.loader_workers)
        best, steps = fewest, list[MoreWorkers]()
        for outcome in others:
            over_fewest, over_best = compare(fewest, outcome), compare(best, outcome)
            if over_fewest is None or over_best is None:
                continue
            steps.append(MoreWorkers(over_fewest, over_best))
            best = outcome if over_best.verdict == "faster" else best
        gains += [LoaderGain(tuple(steps))] if steps else []
    return gains
