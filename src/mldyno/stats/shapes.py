"""The shape of a series: does it drift, did it jump, does it have two speeds?

Drift is judged on the medians of 20 segments, never on raw steps, and without the autocorrelation of the segments:
correlated noise wanders, and that is no drift.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.stats.intervals import autocorrelation, batches, mean, median, quantile, trend

SEGMENTS = 20
DRIFT_Z = 2.45  # |z| of Mann-Kendall: 1.2 % of steady series pass it
JUMP_T = 4.5  # Student's t at the best of 15 places: 0.3 % pass it
MIN_CHANGE = 0.01  # a smaller change does not matter
JUMP_OVER_LINE = 0.8  # a jump leaves less than this share of what a line leaves
MAX_BACK = 0.03  # share of the values that may lie on the other side of a jump, beyond what noise puts there
EDGE = 3  # segments before the first and after the last place of a jump

MIN_FOR_MODES = 40  # values
MIN_SHARE = 0.1  # of the values in the smaller mode
MIN_APART = 0.1  # relative difference of the two speeds
MIN_D = 4.0  # Ashman's D: the halves of a normal have 2.7, of a uniform 3.5
MAX_VALLEY = 0.1  # share of the smaller mode that may lie in the middle third between the two


@dataclass(frozen=True)
class Drift:
    """A change of level: its relative size over the series, how certain it is, and where it jumped."""

    change: float
    z: float
    change_point: float | None  # share of the series before the jump; None where the change is gradual


@dataclass(frozen=True)
class Modes:
    """Two speeds: the median of each, and the share of the values that are slow."""

    fast: float
    slow: float
    slow_share: float


@dataclass(frozen=True)
class Fit:
    """A description of a series by few numbers: the squares it leaves, and the level of each value."""

    left: float
    levels: tuple[float, ...]
    place: int = 0  # values before the jump or bend


def line(values: Sequence[float]) -> Fit:
    """Fit a straight line by least squares."""
    n = len(values)
    centre, middle = mean(values), (n - 1) / 2
    slope = sum((i - middle) * v for i, v in enumerate(values)) / (n * (n * n - 1) / 12)
    levels = tuple(centre + slope * (i - middle) for i in range(n))
    return Fit(sum((v - level) ** 2 for v, level in zip(values, levels, strict=True)), levels)


def jump(values: Sequence[float], first: int = EDGE, last: int | None = None) -> Fit:
    """Fit one level up to a place and another from there, by least squares; at least `first` values before it."""
    n, total = len(values), sum(values)
    last = n - EDGE if last is None else last
    before = list(itertools.accumulate(values))
    # The squares left are least where those between the two levels are most.
    place = max(range(first, last + 1), key=lambda k: before[k - 1] ** 2 / k + (total - before[k - 1]) ** 2 / (n - k))
    low, high = before[place - 1] / place, (total - before[place - 1]) / (n - place)
    levels = (low,) * place + (high,) * (n - place)
    return Fit(sum((v - level) ** 2 for v, level in zip(values, levels, strict=True)), levels, place)


def drift(values: Sequence[float]) -> Drift | None:
    """Return the drift of a series relative to its level, where there is one; at least 20 values are needed."""
    if len(values) < SEGMENTS:
        return None
    medians = [median(segment) for segment in batches(values, SEGMENTS)]
    level = median(medians)
    if level <= 0:
        return None
    z, change = trend(medians)
    straight, stepped = line(medians), jump(medians)
    jumped = stepped.left < JUMP_OVER_LINE * straight.left
    z /= autocorrelation(_without(values, [change * i / (SEGMENTS - 1) for i in range(SEGMENTS)])).inflation(SEGMENTS)
    certain = abs(z) > DRIFT_Z or (jumped and _certain_jump(values, medians, stepped))
    if jumped:
        change = median(medians[stepped.place :]) - median(medians[: stepped.place])
        level = median(medians[: stepped.place])
    if not certain or abs(change) <= MIN_CHANGE * level:
        return None
    return Drift(change / level, z, stepped.place / SEGMENTS if jumped else None)


def _without(values: Sequence[float], levels: Sequence[float]) -> list[float]:
    """Return the values less the level of their segment."""
    segments = zip(batches(values, len(levels)), levels, strict=True)
    return [value - level for segment, level in segments for value in segment]


def _certain_jump(values: Sequence[float], medians: Sequence[float], fit: Fit) -> bool:
    """Return whether the two levels differ for certain, and the first one never comes back."""
    n, place = len(medians), fit.place
    step = fit.levels[-1] - fit.levels[0]
    noise = _without(values, fit.levels)
    error = math.sqrt(fit.left / (n - 2) * (1 / place + 1 / (n - place)))
    if abs(step) <= JUMP_T * error * autocorrelation(noise).inflation(n):
        return False
    spread = 1.4826 * median([abs(v) for v in noise])
    middle, cut = (fit.levels[0] + fit.levels[-1]) / 2, round(place * len(values) / n)
    across = sum((v > middle) == (step < 0) for v in values[cut:]) + sum(
        (v > middle) == (step > 0) for v in values[:cut]
    )
    by_chance = 0.5 * math.erfc(abs(step) / 2 / spread / math.sqrt(2)) if spread else 0.0
    expected = by_chance * len(values)
    return across <= expected + 3 * math.sqrt(expected) + MAX_BACK * len(values)


def modes(values: Sequence[float]) -> Modes | None:
    """Return the two speeds of a series of positive values that clearly has two; None where it has one."""
    n = len(values)
    ordered = sorted(values)
    if n < MIN_FOR_MODES or ordered[0] <= 0:
        return None
    logs = [math.log(v) for v in ordered]
    # A few wild values must not draw the split to themselves: what counts as a mode survives this.
    low, high = quantile(logs, MIN_SHARE / 2), quantile(logs, 1 - MIN_SHARE / 2)
    before = list(itertools.accumulate(min(high, max(low, v)) for v in logs))
    total, least = before[-1], math.ceil(MIN_SHARE * n)
    cut = max(
        range(least, n - least + 1), key=lambda k: before[k - 1] ** 2 / k + (total - before[k - 1]) ** 2 / (n - k)
    )
    fast, slow = logs[:cut], logs[cut:]
    quick, late = quantile(fast, 0.5), quantile(slow, 0.5)
    apart = late - quick
    if apart < math.log(1 + MIN_APART):
        return None
    deviations = [1.4826 * median([abs(v - centre) for v in half]) for half, centre in ((fast, quick), (slow, late))]
    if math.sqrt(2) * apart < MIN_D * math.hypot(*deviations):
        return None
    slow_ones = n - bisect.bisect(logs, quick + apart / 2)
    fewer = min(slow_ones, n - slow_ones)
    between = bisect.bisect(logs, late - apart / 3) - bisect.bisect(logs, quick + apart / 3)
    if fewer < least or between > 1 + MAX_VALLEY * fewer:
        return None
    return Modes(math.exp(quick), math.exp(late), slow_ones / n)
