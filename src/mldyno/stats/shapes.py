"""The shape of a series: does it drift, did it jump, does it have two speeds?

Drift is judged on 20 block medians, never on raw steps, and with what neighbouring blocks have in
common taken off: correlated noise wanders, and that is no drift.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.stats.intervals import autocorrelation, batches, mean, median, quantile, trend

BLOCKS = 20
SURE = 2.45  # |z| of Mann-Kendall: 1.2 % of steady series pass it
SURE_OF_JUMP = 4.5  # Student's t at the best of 15 places: 0.3 % pass it
SMALLEST = 0.01  # a smaller change matters to nobody
CLEARER = 0.8  # a jump leaves less than this share of what a line leaves
BACK = 0.03  # share of the values that may lie on the other side of a jump, beyond what noise puts there
EDGE = 3  # blocks before the first and after the last place of a jump

FEWEST_FOR_MODES = 40
LEAST_SHARE = 0.1
LEAST_APART = 0.1
LEAST_D = 4.0  # Ashman's D: the halves of a normal have 2.7, of a uniform 3.5
VALLEY = 0.1  # share of the smaller mode that may lie in the middle third between the two


@dataclass(frozen=True)
class Drift:
    """A change of level: its relative size over the series, how sure it is, and where it jumped."""

    change: float
    z: float
    change_point: float | None
    """Share of the series before the jump; None where the change is gradual."""


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
    place: int = 0
    """Values before the jump or bend."""


def line(values: Sequence[float]) -> Fit:
    """The straight line of least squares."""
    n = len(values)
    centre, middle = mean(values), (n - 1) / 2
    slope = sum((i - middle) * v for i, v in enumerate(values)) / (n * (n * n - 1) / 12)
    levels = tuple(centre + slope * (i - middle) for i in range(n))
    return Fit(sum((v - level) ** 2 for v, level in zip(values, levels, strict=True)), levels)


def jump(values: Sequence[float], first: int = EDGE, last: int | None = None) -> Fit:
    """One level up to a place and another from there, by least squares; at least `first` values before it."""
    n, total = len(values), sum(values)
    last = n - EDGE if last is None else last
    before = list(itertools.accumulate(values))
    # The squares left are least where those between the two levels are most.
    place = max(range(first, last + 1), key=lambda k: before[k - 1] ** 2 / k + (total - before[k - 1]) ** 2 / (n - k))
    low, high = before[place - 1] / place, (total - before[place - 1]) / (n - place)
    levels = (low,) * place + (high,) * (n - place)
    return Fit(sum((v - level) ** 2 for v, level in zip(values, levels, strict=True)), levels, place)


def drift(values: Sequence[float]) -> Drift | None:
    """The drift of a series, where there is one; relative to its level, and at least 20 values are needed."""
    if len(values) < BLOCKS:
        return None
    medians = [median(block) for block in batches(values, BLOCKS)]
    level = median(medians)
    if level <= 0:
        return None
    z, change = trend(medians)
    straight, stepped = line(medians), jump(medians)
    jumped = stepped.left < CLEARER * straight.left
    z /= autocorrelation(_without(values, [change * i / (BLOCKS - 1) for i in range(BLOCKS)])).inflation(BLOCKS)
    sure = abs(z) > SURE or (jumped and _sure_of_jump(values, medians, stepped))
    if jumped:
        change = median(medians[stepped.place :]) - median(medians[: stepped.place])
        level = median(medians[: stepped.place])
    if not sure or abs(change) <= SMALLEST * level:
        return None
    return Drift(change / level, z, stepped.place / BLOCKS if jumped else None)


def _without(values: Sequence[float], levels: Sequence[float]) -> list[float]:
    """The values less the level of their block."""
    found: list[float] = []
    for block, level in zip(batches(values, len(levels)), levels, strict=True):
        found += [value - level for value in block]
    return found


def _sure_of_jump(values: Sequence[float], medians: Sequence[float], fit: Fit) -> bool:
    """Whether the two levels differ for certain, and the first one never comes back."""
    n, place = len(medians), fit.place
    step = fit.levels[-1] - fit.levels[0]
    noise = _without(values, fit.levels)
    error = math.sqrt(fit.left / (n - 2) * (1 / place + 1 / (n - place)))
    if abs(step) <= SURE_OF_JUMP * error * autocorrelation(noise).inflation(n):
        return False
    spread = 1.4826 * median([abs(v) for v in noise])
    middle, cut = (fit.levels[0] + fit.levels[-1]) / 2, round(place * len(values) / n)
    across = sum((v > middle) == (step < 0) for v in values[cut:]) + sum(
        (v > middle) == (step > 0) for v in values[:cut]
    )
    by_chance = 0.5 * math.erfc(abs(step) / 2 / spread / math.sqrt(2)) if spread else 0.0
    expected = by_chance * len(values)
    return across <= expected + 3 * math.sqrt(expected) + BACK * len(values)


def modes(values: Sequence[float]) -> Modes | None:
    """The two speeds of a series of positive values that clearly has two; None where it has one."""
    n = len(values)
    ordered = sorted(values)
    if n < FEWEST_FOR_MODES or ordered[0] <= 0:
        return None
    logs = [math.log(v) for v in ordered]
    # A few wild values must not draw the split to themselves: what counts as a mode survives this.
    low, high = quantile(logs, LEAST_SHARE / 2), quantile(logs, 1 - LEAST_SHARE / 2)
    before = list(itertools.accumulate(min(high, max(low, v)) for v in logs))
    total, least = before[-1], math.ceil(LEAST_SHARE * n)
    cut = max(
        range(least, n - least + 1), key=lambda k: before[k - 1] ** 2 / k + (total - before[k - 1]) ** 2 / (n - k)
    )
    fast, slow = logs[:cut], logs[cut:]
    quick, late = quantile(fast, 0.5), quantile(slow, 0.5)
    apart = late - quick
    if apart < math.log(1 + LEAST_APART):
        return None
    deviations = [1.4826 * median([abs(v - centre) for v in part]) for part, centre in ((fast, quick), (slow, late))]
    if math.sqrt(2) * apart < LEAST_D * math.hypot(*deviations):
        return None
    slow_ones = n - bisect.bisect(logs, quick + apart / 2)
    fewer = min(slow_ones, n - slow_ones)
    between = bisect.bisect(logs, late - apart / 3) - bisect.bisect(logs, quick + apart / 3)
    if fewer < least or between > 1 + VALLEY * fewer:
        return None
    return Modes(math.exp(quick), math.exp(late), slow_ones / n)
