"""How quiet a machine is, judged from the times of the same work, over and over, and the system's own counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mldyno.analysis.conditions import STOLEN_LIMIT, WAITING_LIMIT
from mldyno.analysis.symptoms import Noise, Verdict
from mldyno.stats import shapes
from mldyno.stats.intervals import autocorrelation, batch_half_width, batches, mean, median, paired, spread

SEGMENT_BLOCKS = 20  # whose median is one value of the variation
RUN_BATCHES = 10
SURE = 2.0  # half-widths: a difference of this size shows nearly always, one of a single half-width every other time

# Up to the first a machine is quiet, over the second very noisy. A drift or a second speed is as bad as a variation.
WAITING = (0.02, WAITING_LIMIT)
STOLEN = (0.01, STOLEN_LIMIT)
VARIATION = (0.03, 0.10)


def judge(values: Sequence[float], seconds: float, waiting: float | None = None, stolen: float | None = None) -> Noise:
    """The verdict on times in s of blocks of the same work; a share that is not counted does not count."""
    medians = [median(segment) for segment in batches(values, max(2, len(values) // SEGMENT_BLOCKS))]
    variation = spread(medians) / mean(medians)
    drift, two = shapes.drift(values), shapes.modes(values)
    change = drift.change if drift else 0.0
    apart = two.slow / two.fast - 1 if two else None
    judged = [(variation, VARIATION), (abs(change), VARIATION), (apart, VARIATION), (waiting, WAITING),
              (stolen, STOLEN)]  # fmt: skip
    worst = max(_grade(value, limits) for value, limits in judged if value is not None)
    verdicts: tuple[Verdict, ...] = ("quiet", "noisy", "very noisy")
    detectable = _detectable_paired(values), _detectable_separate(values)
    return Noise(seconds, verdicts[worst], variation, change, apart, waiting, stolen, *detectable)


def _grade(value: float, limits: tuple[float, float]) -> int:
    return sum(value > limit for limit in limits)


def _detectable_paired(values: Sequence[float]) -> float | None:
    """As if every other block were of another case."""
    _, width = paired([math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=False)])
    return math.expm1(SURE * width) if math.isfinite(width) and width < 10 else None


def _detectable_separate(values: Sequence[float]) -> float | None:
    """As if there were two such runs, one after the other."""
    width = batch_half_width(values, RUN_BATCHES) * autocorrelation(values).inflation(RUN_BATCHES)
    return SURE * math.sqrt(2) * width / mean(values) if math.isfinite(width) else None
