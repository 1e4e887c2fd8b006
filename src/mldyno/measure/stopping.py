"""When enough has been measured: both the 8-batch and the 16-batch half-width are under the target.

Never a rule on dispersion: the spread of samples says nothing about how well their mean is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.intervals import batch_half_width, mean

GROWTH = 1.5  # how much more is measured before the rule is looked at again
FIRST_LOOK = 0.25  # s


def relative_half_width(values: Sequence[float]) -> float | None:
    """The larger of the 8-batch and the 16-batch half-width, relative to the mean; None under 16 values."""
    if len(values) < 16:
        return None
    return max(batch_half_width(values, 8), batch_half_width(values, 16)) / mean(values)


@dataclass(frozen=True)
class Stopping:
    """The rule: a target for the relative half-width, a budget in s, or a fixed number of steps."""

    target: float = 0.02
    budget: float = 20.0
    steps: int | None = None
    least: float = 0.5

    def enough(self, half_width: float | None, elapsed: float, done: int) -> bool:
        """Whether to stop with the mean known so well, after so many s of measuring and so many steps."""
        if self.steps is not None:
            return done >= self.steps
        if elapsed >= self.budget:
            return True
        return elapsed >= self.least and self.reached(half_width)

    def reached(self, half_width: float | None) -> bool:
        """Whether the target is met; not as long as nothing is known."""
        return half_width is not None and half_width <= self.target

    def next_turn(self, elapsed: float) -> float:
        """How many s to measure before looking again."""
        return max(FIRST_LOOK, min((GROWTH - 1) * elapsed, self.budget - elapsed))
