"""When enough has been measured: both the 8-batch and the 16-batch half-width are under the target.

Four things keep it from stopping at a lucky moment. The widths are inflated by what neighbouring
batches still have in common; the width that follows from this correlation must be under the target
too; a series worth fewer than 30 independent values counts as less well known than it looks; and its
first two thirds must have agreed, as far as they can know.
Never a rule on dispersion: the spread of samples says nothing about how well their mean is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.stats.intervals import autocorrelation, batch_half_width, coarse, mean, spread, student_t

BATCH_COUNTS = (8, 16)
MIN_INDEPENDENT = 30.0  # values that a series should be worth, before its batches can be trusted
EARLIER = 2 / 3  # the part of the series that must have agreed already
GROWTH = 1.5  # how much more is measured before the rule is looked at again
FIRST_LOOK = 0.25  # s


def relative_half_width(values: Sequence[float]) -> float | None:
    """How well the mean is known, relative to it: half of its 95 % interval; None under 16 values."""
    if len(values) < max(BATCH_COUNTS):
        return None
    earlier = values[: round(EARLIER * len(values))]
    return max(_half_width(values), _half_width(earlier) * math.sqrt(EARLIER)) / mean(values)


def _half_width(values: Sequence[float]) -> float:
    """The largest of the half-widths from 8 batches, 16 batches and the correlation, in the unit of the values."""
    segments, correlation = coarse(values), autocorrelation(values)
    widths = [batch_half_width(segments, n) * correlation.inflation(n) for n in BATCH_COUNTS if len(values) >= n]
    # Eight batches alone are lucky now and then; all the segments know the spread better.
    freedom = max(1, round(correlation.independent) - 1)
    widths.append(student_t(freedom) * spread(segments) / math.sqrt(correlation.independent))
    return max(widths) * math.sqrt(max(1.0, MIN_INDEPENDENT / correlation.independent))


@dataclass(frozen=True)
class Stopping:
    """The rule: a target for the relative half-width, a budget in s, or a fixed number of steps."""

    target: float = 0.02
    budget: float = 20.0
    steps: int | None = None
    warm_up: float = 1.0
    """Time in s that the warm-up may take."""
    load: float = 0.0
    """Time in s that the device works before that, so that clocks, power and heat are those of a long run."""
    min_time: float = 0.5
    """Time in s that is measured in any case."""

    def enough(self, half_width: float | None, elapsed: float, done: int) -> bool:
        """Whether to stop with the mean known so well, after so many s of measuring and so many steps."""
        if self.steps is not None:
            return done >= self.steps
        if elapsed >= self.budget:
            return True
        return elapsed >= self.min_time and self.reached(half_width)

    def reached(self, half_width: float | None) -> bool:
        """Whether the target is met; not as long as nothing is known."""
        return half_width is not None and half_width <= self.target

    def next_turn(self, elapsed: float) -> float:
        """How many s to measure before looking again."""
        return max(FIRST_LOOK, min((GROWTH - 1) * elapsed, self.budget - elapsed))
