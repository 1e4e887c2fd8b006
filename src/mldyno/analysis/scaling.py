"""How the time of a step grows with the length of its sequences: the exponent, and whether there is just one.

The fit is a straight line through the logarithms, by least squares, in which every length counts the same:
weights would let the lengths that happen to be known best decide, and where the line bends, that matters more
than their noise. Its interval follows from how well each time is known, with the degrees of freedom that all
of them have together (Welch and Satterthwaite). An exponent between two lengths is
that of their comparison, so it is paired where they were paired. Where those at both ends of the range do not have
a value in common, the line bends, and no one exponent describes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import alike, compare
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.stats.intervals import mean, student_t
from mldyno.units import Interval

BEND = 0.05  # exponents that are no further apart count as one


@dataclass(frozen=True, kw_only=True)
class Exponent(Interval):
    """The power of the length that time grows with, from one length to another."""

    shortest: int
    longest: int
    how: str


@dataclass(frozen=True)
class Scaling:
    """The time of a step over lengths."""

    outcomes: tuple[Outcome, ...]
    """One for each length, the shortest first."""
    fit: Exponent
    """Over all lengths."""
    first: Exponent
    """Between the two shortest."""
    last: Exponent
    """Between the two longest; the same as the first where there are only two."""

    @property
    def bends(self) -> bool:
        """Whether the exponent is another one at the longest lengths than at the shortest."""
        if self.first.half_width is None or self.last.half_width is None:
            return False
        apart = abs(self.last.value - self.first.value)
        return apart > max(BEND, self.first.half_width + self.last.half_width)


def scalings(outcomes: Sequence[Outcome]) -> list[Scaling]:
    """The growth of all cases that were measured at two lengths or more."""
    growths = []
    for group in alike(outcomes, "seq"):
        lengths = {o.case.seq: o for o in group if o.case.seq is not None and _time(o) is not None}
        if len(lengths) > 1:
            growths.append(_scaling([lengths[length] for length in sorted(lengths)]))
    return growths


def _time(outcome: Outcome) -> Estimate | None:
    step = outcome.step
    return step if step is not None and step.value > 0 else None


def _scaling(outcomes: Sequence[Outcome]) -> Scaling:
    first, last = _between(*outcomes[:2]), _between(*outcomes[-2:])
    fit = first
    if len(outcomes) > 2:
        fit = fitted([(int(o.case.seq or 1), time) for o in outcomes if (time := _time(o)) is not None])
    return Scaling(tuple(outcomes), fit, first, last)


def fitted(points: Sequence[tuple[int, Estimate]]) -> Exponent:
    """The exponent over all points, each a length and a time; no interval where not each time has one."""
    places, heights = [math.log(length) for length, _ in points], [math.log(time.value) for _, time in points]
    centre = mean(places)
    power = sum((place - centre) ** 2 for place in places)
    shares = [(place - centre) / power for place in places]  # what each height adds to the slope
    value = sum(share * height for share, height in zip(shares, heights, strict=True))
    width = _width(shares, [time for _, time in points])
    how = f"fitted over {len(points)} lengths"
    return Exponent.around(value, width, shortest=points[0][0], longest=points[-1][0], how=how)


def _width(shares: Sequence[float], times: Sequence[Estimate]) -> float | None:
    """Half of the interval of a sum of such shares of the logarithms of times."""
    variances, freedoms = [], []
    for share, time in zip(shares, times, strict=True):
        if time.half_width is None:
            return None
        freedoms.append(time.freedom)
        variances.append((share * time.half_width / time.value / student_t(time.freedom)) ** 2)
    most = max(variances)
    if most == 0:
        return 0.0
    parts = [variance / most for variance in variances]
    freedom = sum(parts) ** 2 / sum(part**2 / own for part, own in zip(parts, freedoms, strict=True))
    return student_t(max(1, math.floor(freedom))) * math.sqrt(sum(variances))


def _between(shorter: Outcome, longer: Outcome) -> Exponent:
    """The exponent between two lengths, from their comparison."""
    ends = int(shorter.case.seq or 1), int(longer.case.seq or 1)
    apart = math.log(ends[1] / ends[0])
    found = compare(shorter, longer)
    if found is None:
        raise AssertionError("unreachable: both have a time")
    comparison = found.per_step
    low, high = comparison.low, comparison.high
    width = (math.log(high) - math.log(low)) / 2 / apart if low and high else None
    value = -math.log(comparison.ratio) / apart
    return Exponent.around(value, width, shortest=ends[0], longest=ends[1], how=comparison.how)
