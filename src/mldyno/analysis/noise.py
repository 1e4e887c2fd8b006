"""How quiet a machine is, judged from the times of the same work, over and over, and the system's own counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mldyno.analysis.conditions import STOLEN_LIMIT, WAITING_LIMIT
from mldyno.analysis.symptoms import Noise, Verdict
from mldyno.stats import shapes
from mldyno.stats.intervals import autocorrelation, batch_half_width, batches, mean, median, paired, spread
from mldyno.units import show_percent

ROUNDS, FEWEST_COMPARISONS = 400, 10  # of a comparison of identical work, and how many there are at least
SEGMENT_BLOCKS = 20  # whose median is one value of the variation
RUN_BATCHES = 10
SURE = 2.0  # half-widths: a difference of this size shows nearly always, one of a single half-width every other time

# Up to the first a machine is quiet, over the second very noisy. A drift or a second speed is as bad as a variation.
WAITING = (0.02, WAITING_LIMIT)
STOLEN = (0.01, STOLEN_LIMIT)
VARIATION = (0.03, 0.10)


def judge(values: Sequence[float], seconds: float, waiting: float | None = None, stolen: float | None = None) -> Noise:
    """Return the verdict on times in s of blocks of the same work; a share that is not counted does not count."""
    medians = [median(segment) for segment in batches(values, max(2, len(values) // SEGMENT_BLOCKS))]
    variation = spread(medians) / mean(medians)
    drift, two = shapes.drift(values), shapes.modes(values)
    change = drift.change if drift else 0.0
    apart = two.slow / two.fast - 1 if two else None
    worst = max(grade for grade, _ in _graded(variation, change, apart, waiting, stolen))
    verdicts: tuple[Verdict, ...] = ("quiet", "noisy", "very noisy")
    turns, separate = _detectable_paired(values), _detectable_separate(values)
    if turns is not None and separate is not None:
        separate = max(turns, separate)
    return Noise(seconds, verdicts[worst], variation, change, apart, waiting, stolen, turns, separate)


def causes(noise: Noise) -> list[str]:
    """Say what the verdict rests on: whatever is as bad as the worst."""
    graded = _graded(noise.variation, noise.drift, noise.two_speeds, noise.waiting, noise.stolen)
    worst = max(grade for grade, _ in graded)
    return [words for grade, words in graded if grade == worst]


def _graded(
    variation: float, drift: float, apart: float | None, waiting: float | None, stolen: float | None
) -> list[tuple[int, str]]:
    """Return each figure that is known: 0 where it is that of a quiet machine, 2 of a very noisy one; and in words."""
    way = "slower" if drift > 0 else "faster"
    figures = [
        (variation, VARIATION, "the same work varied by {}"),
        (abs(drift), VARIATION, f"the same work became {{}} {way}"),
        (apart, VARIATION, "the same work had two speeds, {} apart"),
        (waiting, WAITING, "the work waited for its core {} of the time"),
        (stolen, STOLEN, "the host took {} of the machine's time"),
    ]
    return [(sum(value > limit for limit in limits), words.format(show_percent(value)))
            for value, limits, words in figures if value is not None]  # fmt: skip


def _detectable_paired(values: Sequence[float]) -> float | None:
    """Return the largest difference that comparisons of identical work, every other block, leave open."""
    logs = [math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=False)]
    if len(logs) < 2 * FEWEST_COMPARISONS:
        return None
    compared = map(paired, batches(logs, max(FEWEST_COMPARISONS, len(logs) // ROUNDS)))
    widest = max(abs(centre) + width for centre, width in compared)
    return math.expm1(widest) if widest < 10 else None


def _detectable_separate(values: Sequence[float]) -> float | None:
    """Return the same for two separate runs."""
    width = batch_half_width(values, RUN_BATCHES) * autocorrelation(values).inflation(RUN_BATCHES)
    return SURE * math.sqrt(2) * width / mean(values) if math.isfinite(width) else None
