"""The little statistics that both sides share: quantiles, Student's t, batch intervals.

Standard library only, since the runner stops on these numbers and the read side shows them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache


def quantile(ordered: Sequence[float], p: float) -> float:
    """The p-quantile of values that are sorted already, interpolated linearly."""
    place = p * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return quantile(sorted(values), 0.5)


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """The sample standard deviation of at least two values."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def _t_upper_tail(t: float, df: int) -> float:
    """P(T > t) of Student's t with whole degrees of freedom, by its finite sum (Abramowitz 26.7.3-4)."""
    theta = math.atan2(t, math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    total, term = 0.0, 1.0
    first = 3 if df % 2 else 2
    if df > 1:
        total = 1.0
        for k in range(first, df - 1, 2):
            term *= cos2 * (k - 1) / k
            total += term
    if df % 2:
        inside = (theta + math.sin(theta) * math.cos(theta) * total) * 2 / math.pi
    else:
        inside = math.sin(theta) * total
    return (1 - inside) / 2


@lru_cache(maxsize=256)
def student_t(df: int, level: float = 0.95) -> float:
    """The two-sided critical value of Student's t: 2.262 for 9 degrees of freedom at 95 %."""
    low, high, tail = 0.0, 1e6, (1 - level) / 2
    for _ in range(200):
        middle = (low + high) / 2
        if _t_upper_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def batches(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """Cut the series, in its order, into `count` runs of nearly equal length."""
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [values[a:b] for a, b in itertools.pairwise(edges)]


def half_width(samples: Sequence[float], level: float = 0.95) -> float:
    """Half of the t-interval of the mean of independent samples; infinite for fewer than two."""
    if len(samples) < 2:
        return math.inf
    return student_t(len(samples) - 1, level) * spread(samples) / math.sqrt(len(samples))


def batch_half_width(values: Sequence[float], count: int) -> float:
    """Half-width of the mean from `count` batch means: right for correlated series too."""
    if len(values) < count:
        return math.inf
    return half_width([mean(batch) for batch in batches(values, count)])


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Mann-Kendall's z of a series, and its Theil-Sen change over the whole series.

    The change is in the unit of the values; |z| over 2.58 is a trend at the 1 % level.
    """
    n = len(values)
    if n < 3:
        return 0.0, 0.0
    pairs = [(values[j] - values[i], j - i) for i in range(n) for j in range(i + 1, n)]
    score = sum((rise > 0) - (rise < 0) for rise, _ in pairs)
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = (score - (score > 0) + (score < 0)) / deviation
    return z, median([rise / run for rise, run in pairs]) * (n - 1)
