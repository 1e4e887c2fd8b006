"""What the copy costs: the part of a step that goes into copying its batch in, and its result back.

A step with the copy against one without it, or with one copy less: how many times as fast the step with
it is, is what is left of a step when the copy is taken away. So the share has the comparison's interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, alike, compare
from mldyno.analysis.outcomes import Outcome
from mldyno.units import Interval

WAYS = (("device", "host", "in"), ("device", "roundtrip", "in and back"), ("host", "roundtrip", "back"))


@dataclass(frozen=True)
class CopyCost:
    """What copying one way takes, as a share of a step that does it, with a 95 % interval where there is one."""

    way: str
    """in, back, or in and back."""
    comparison: Comparison
    """The step that copies against the one that does not."""

    @property
    def share(self) -> Interval:
        """The share of the step; negative where the step that copies was the faster one."""
        return self.comparison.speedup.complement

    @property
    def seconds(self) -> float | None:
        """The share in s, of the step as it took alone."""
        step = self.comparison.other.step
        return None if step is None else self.share.value * step.value


def copy_costs(outcomes: Sequence[Outcome]) -> list[CopyCost]:
    """The cost of each copy that these outcomes tell."""
    costs = []
    for group in alike(outcomes, "placement"):
        placed = {str(outcome.case.placement): outcome for outcome in group if outcome.status == "ok"}
        for less, more, way in WAYS:
            if less in placed and more in placed:
                comparison = compare(placed[less], placed[more])
                costs += [CopyCost(way, comparison)] if comparison is not None else []
    return costs
