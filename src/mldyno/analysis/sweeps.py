"""Cases over sizes: from which size on one side beats another, and how time grows with the sequence length.

Crossovers. The logarithm of the ratio is a straight line over the logarithm of the size between neighbouring sizes, and
the crossing is where it passes 0. Its interval joins the ends of the comparisons' intervals in the same way, as if
neighbours erred in the same direction, moved apart by what a bend like those at both sizes can do between them.

Scaling. The exponent is the slope of a straight line through the logarithms, by least squares with equal weights, since
a bend matters more than noise. Its interval follows from those of the times (Welch and Satterthwaite); an exponent
between two lengths is that of their comparison. Where the ends of the range have no exponent in common, the line bends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mldyno.analysis.comparisons import Comparison, alike, compare, compared, verdict
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome, column, in_order
from mldyno.axes import SIZES, WAYS
from mldyno.stats.intervals import mean, student_t
from mldyno.units import LARGEST_LOG, Interval

WINS = {"faster": 1, "slower": -1}


@dataclass(frozen=True)
class Point:
    """The log-ratio of both sides at one size, positive where the other side is faster, and its half-width."""

    size: int
    log_ratio: float
    half_width: float

    @property
    def winner(self) -> int:
        """1 where the other side is faster, -1 where the base is, 0 where neither is clear."""
        ends = (self.log_ratio - self.half_width, self.log_ratio + self.half_width)
        low, high = (math.exp(min(end, LARGEST_LOG)) for end in ends)
        return WINS.get(verdict(low, high), 0)


@dataclass(frozen=True, kw_only=True)
class Crossing(Interval):
    """The size at which both are equally fast; it lies between `below` and `above`."""

    low: float
    high: float
    below: int  # the last size at which it is clear that the one is faster
    above: int  # the first size at which it is clear that the other one is
    winner: int  # who is faster above: 1 for the other side, -1 for the base


def crossings(points: Sequence[Point]) -> list[Crossing]:
    """Return all crossings, the smallest first; the points are ordered by size."""
    clear = [place for place, point in enumerate(points) if point.winner]
    bulges = _bulges(points)
    turns = [(a, b) for a, b in pairwise(clear) if points[a].winner != points[b].winner]
    return [_crossing(points[a : b + 1], bulges[a:b]) for a, b in turns]


def _crossing(within: Sequence[Point], bulges: Sequence[float]) -> Crossing:
    """Return the crossing between the first and the last point; `bulges` are those of the stretches between points."""
    way = within[-1].winner
    places = [math.log(point.size) for point in within]
    rises = [way * point.log_ratio for point in within]  # from under 0 to over 0
    widths = [point.half_width for point in within]
    none = [0.0] * len(bulges)
    upper = [rise + width for rise, width in zip(rises, widths, strict=True)]
    lower = [width - rise for rise, width in zip(rises, widths, strict=True)]
    back, mirrored = [-place for place in reversed(places)], [-rise for rise in reversed(rises)]
    middle = mean([_reaches_zero(places, rises, none), -_reaches_zero(back, mirrored, none)])
    low = _reaches_zero(places, upper, bulges)
    high = -_reaches_zero(back, lower[::-1], bulges[::-1])
    sides = {"below": within[0].size, "above": within[-1].size, "winner": way}
    return Crossing(math.exp(middle), low=math.exp(low), high=math.exp(high), **sides)


def _reaches_zero(places: Sequence[float], heights: Sequence[float], bulges: Sequence[float]) -> float:
    """Return where a line that begins under 0 first comes up to it; between two places it may bulge upwards.

    At a share t of the way from one place to the next it is higher by `bulge * t * (1 - t)` than the straight line.
    """
    for number, bulge in enumerate(bulges):
        here, there = heights[number], heights[number + 1]
        slope = there - here + bulge
        inside = slope * slope + 4 * bulge * here
        share = 0.0 if here >= 0 else math.inf
        if here < 0 and slope > 0 and inside >= 0:
            share = -2 * here / (slope + math.sqrt(inside))
        if share <= 1:
            return places[number] + share * (places[number + 1] - places[number])
    return places[-1]


def _bulges(points: Sequence[Point]) -> list[float]:
    """Return, for each interval between neighbours, how far a bend like those at its ends can leave the line.

    At a share t of the way that is `bulge * t * (1 - t)`.
    """
    places = [math.log(point.size) for point in points]
    bends = [0.0] * len(points)  # the second derivative of the log-ratio, by the neighbours on both sides
    for n in range(1, len(points) - 1):
        before, after = places[n] - places[n - 1], places[n + 1] - places[n]
        rise, next_rise = (points[k + 1].log_ratio - points[k].log_ratio for k in (n - 1, n))
        bends[n] = abs(next_rise / after - rise / before) * 2 / (before + after)
    return [max(bends[n], bends[n + 1]) * (b - a) ** 2 / 2 for n, (a, b) in enumerate(pairwise(places))]


@dataclass(frozen=True)
class Crossover:
    """Two values of an axis compared over sizes."""

    axis: str
    over: str
    base: Any
    other: Any
    tried: tuple[Outcome, ...]  # all outcomes on both sides, the smallest first
    comparisons: tuple[Comparison, ...]  # one for each size at which both succeeded, the smallest first
    value: str = "step"  # what is compared: the time of a step, or its energy

    def size(self, comparison: Comparison) -> int:
        return int(column(comparison.other, self.over))

    @property
    def missing(self) -> list[Outcome]:
        """The outcomes that did not succeed, the smallest first."""
        return [outcome for outcome in self.tried if outcome.status != "ok"]

    @property
    def points(self) -> list[Point]:
        """The sizes at which the comparison has an interval."""
        return [
            Point(self.size(each), math.log(each.ratio), (math.log(each.high) - math.log(each.low)) / 2)
            for each in self.comparisons
            if each.low and each.high
        ]

    @property
    def crossings(self) -> list[Crossing]:
        return crossings(self.points)

    @property
    def verdict(self) -> str:
        """crosses, always, never, equivalent, or open: no crossing, and not clear at each size."""
        verdicts = {comparison.verdict for comparison in self.comparisons}
        if self.crossings:
            return "crosses"
        known = {"faster": "always", "slower": "never", "equivalent": "equivalent"}
        return known.get(verdicts.pop(), "open") if len(verdicts) == 1 else "open"


def crossovers(outcomes: Sequence[Outcome], axes: Sequence[str] = WAYS, value: str = "step") -> list[Crossover]:
    """Return all comparisons of two ways to do the same work, along these axes, at two sizes or more."""
    swept = []
    for axis in axes:
        for over in SIZES:
            for group in alike([outcome for outcome in outcomes if column(outcome, over) is not None], axis, over):
                base, *rest = in_order({(column(outcome, axis),) for outcome in group})
                swept += [_between(group, axis, over, base[0], other[0], value) for other in rest]
    return [sweep for sweep in swept if len({column(tried, sweep.over) for tried in sweep.tried}) > 1]


def _between(group: Sequence[Outcome], axis: str, over: str, base: Any, other: Any, value: str) -> Crossover:
    """Compare two values of an axis at the sizes that both were tried at."""
    sides = [{column(o, over): o for o in group if column(o, axis) == value} for value in (base, other)]
    pairs = [(sides[0][size], sides[1][size]) for size in sorted(sides[0].keys() & sides[1].keys())]
    tried = tuple(outcome for pair in pairs for outcome in pair)
    return Crossover(axis, over, base, other, tried, tuple(compared(pairs, value)), value)


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

    outcomes: tuple[Outcome, ...]  # one for each length, the shortest first
    fit: Exponent  # over all lengths
    first: Exponent  # between the two shortest
    last: Exponent  # between the two longest; the same as the first where there are only two

    @property
    def bends(self) -> bool:
        """True if the exponent is another one at the longest lengths than at the shortest."""
        if self.first.half_width is None or self.last.half_width is None:
            return False
        apart = abs(self.last.value - self.first.value)
        return apart > max(BEND, self.first.half_width + self.last.half_width)


def scalings(outcomes: Sequence[Outcome]) -> list[Scaling]:
    """Return the growth of all cases that were measured at two lengths or more."""
    growths = []
    for group in alike(outcomes, "seq"):
        lengths = {o.case.seq: (o, o.step) for o in group if o.case.seq and o.step and o.step.value > 0}
        points = sorted(lengths.items())
        if len(points) > 1:
            ordered = [outcome for _, (outcome, _) in points]
            first, last = _exponent_between(*ordered[:2]), _exponent_between(*ordered[-2:])
            fit = fitted([(seq, step) for seq, (_, step) in points]) if len(points) > 2 else first
            growths.append(Scaling(tuple(ordered), fit, first, last))
    return growths


def fitted(points: Sequence[tuple[int, Estimate]]) -> Exponent:
    """Return the exponent over all points, each a length and a time; no interval where not each time has one."""
    places, heights = [math.log(length) for length, _ in points], [math.log(time.value) for _, time in points]
    centre = mean(places)
    power = sum((place - centre) ** 2 for place in places)
    shares = [(place - centre) / power for place in places]  # what each height adds to the slope
    value = sum(share * height for share, height in zip(shares, heights, strict=True))
    width = _width(shares, [time for _, time in points])
    ends = {"shortest": points[0][0], "longest": points[-1][0]}
    return Exponent.around(value, width, **ends, how=f"fitted over {len(points)} lengths")


def _width(shares: Sequence[float], times: Sequence[Estimate]) -> float | None:
    """Return the half-width of a weighted sum of the logarithms of times."""
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


def _exponent_between(shorter: Outcome, longer: Outcome) -> Exponent:
    """Return the exponent between two lengths, from their comparison."""
    ends = int(shorter.case.seq or 1), int(longer.case.seq or 1)
    apart = math.log(ends[1] / ends[0])
    comparison = compare(shorter, longer)
    if comparison is None:
        raise AssertionError("unreachable: both have a time")
    comparison = comparison.per_step
    low, high = comparison.low, comparison.high
    width = (math.log(high) - math.log(low)) / 2 / apart if low and high else None
    value = -math.log(comparison.ratio) / apart
    return Exponent.around(value, width, shortest=ends[0], longest=ends[1], how=comparison.how)
