"""When enough has been measured: both the 8-batch and the 16-batch half-width are under the target.

Never a rule on dispersion: the spread of samples says nothing about how well their mean is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.intervals import batch_half_width, mean

GROWTH = 1.5  # how much more is measured before the rule is looked at again
FIRST_LOOK = 0.25  # s


def relative_half_width(values: Sequence[float]) -> float:
    """The larger of the 8-batch and the 16-batch half-width, relative to the mean."""
    return max(batch_half_width(values, 8), batch_half_width(values, 16)) / mean(values)


@dataclass(frozen=True)
class Stopping:
    """The rule: a target for the relative half-width, a budget in s, or a fixed number of steps."""

    target: float = 0.02
    budget: float = 20.0
    steps: int | None = None
    least: float = 0.5

    def enough(self, values: Sequence[float], elapsed: float, done: int) -> bool:
        """Whether to stop after so many s of measuring and so many steps."""
        if self.steps is not None:
            return done >= self.steps
        if elapsed >= self.budget:
            return True
        return elapsed >= self.least and len(values) >= 16 and self.reached(values)

    def reached(self, values: Sequence[float]) -> bool:
        """Whether the target is met."""
        return relative_half_width(values) <= self.target if values else False

    def next_turn(self, elapsed: float) -> float:
        """How many s to measure before looking again."""
        return max(FIRST_LOOK, min((GROWTH - 1) * elapsed, self.budget - elapsed))
