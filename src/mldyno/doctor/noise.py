"""The noise test: one core repeats the same work, while interruptions are counted.

The work is hashing with the standard library: it needs no framework, and takes the same time unless it is disturbed.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence

from mldyno.axes import unstated
from mldyno.doctor.symptoms import Noise, Verdict
from mldyno.frameworks import Steps
from mldyno.hardware import Windows
from mldyno.hardware.system import Contention
from mldyno.records import Device
from mldyno.runner.warnings import STOLEN_LIMIT, WAITING_LIMIT
from mldyno.stats import shapes
from mldyno.stats.intervals import autocorrelation, batch_half_width, batches, mean, median, paired, spread
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, time_blocks
from mldyno.units import digits, show_percent

CHUNK = bytes(range(256)) * 256  # 64 KiB: under 1 ms on any machine, and it fits into the cache of a core
LOOK_EVERY_NS = 20_000_000  # between two looks at the counters
FEWEST_BLOCKS = 40
ROUNDS, FEWEST_COMPARISONS = 400, 10  # of identical work: rounds in a comparison, and comparisons
SEGMENT_BLOCKS = 20  # the variation is that of their medians
RUN_BATCHES = 10
DETECTABLE_HALF_WIDTHS = 2.0  # a difference of this size is nearly always detected, of one half-width half the time

# A machine is quiet up to the first limit and very noisy over the second; a drift and two speeds count as variation.
WAITING = (0.02, WAITING_LIMIT)
STOLEN = (0.01, STOLEN_LIMIT)
VARIATION = (0.03, 0.10)


class Hashing:
    """The work: the hash of a fixed chunk."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            hashlib.sha256(CHUNK)

    def synchronize(self) -> None: ...  # the work is done when it returns


def listen(
    seconds: float, look: Callable[[], None], work: Steps | None = None, take_time: clock.Clock = clock.now
) -> Noise:
    """Work for some seconds and judge the times; `look` is called some 50 times a second, between two blocks."""
    blocks = Blocks(work or Hashing(), take_time)
    blocks.time(3)
    blocks.fit(min(blocks.time(1) for _ in range(9)))
    meter = Contention()
    meter.start(unstated("noise", "none"), Device("cpu", "none"))
    windows = Windows((meter,), take_time, lambda: None)

    def between(values: list[float], now: int) -> int:
        windows.look(now)
        look()
        return take_time() + LOOK_EVERY_NS

    windows.begin()
    values, _ = time_blocks(blocks, seconds, None, between)
    if len(values) < FEWEST_BLOCKS:
        values += time_blocks(blocks, 0.0, FEWEST_BLOCKS * blocks.size, between)[0]
    windows.end()
    gained = {series.metric: sum(series.values) for series in meter.stop()}
    return judge(values, seconds, _waiting(gained), _stolen(gained))


def _waiting(gained: dict[str, float]) -> float | None:
    """Return the share of time without a core: as the system counts it, else the time in which nothing ran."""
    if not gained.get("window_time"):
        return None
    if "run_delay" in gained:
        return gained["run_delay"] / max(1e-9, gained["run_delay"] + gained["cpu_time"])
    return max(0.0, 1 - gained["cpu_time"] / gained["window_time"])


def _stolen(gained: dict[str, float]) -> float | None:
    """Return the share of the time of all cores that the host of a virtual machine took."""
    whole = gained.get("window_time", 0.0) * (os.cpu_count() or 1)
    return gained["stolen_time"] / whole if whole and "stolen_time" in gained else None


def judge(values: Sequence[float], seconds: float, waiting: float | None = None, stolen: float | None = None) -> Noise:
    """Judge times in s of blocks of the same work; shares that are unknown do not count."""
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
    """Return the reasons of the verdict: all figures that are as bad as the worst."""
    graded = _graded(noise.variation, noise.drift, noise.two_speeds, noise.waiting, noise.stolen)
    worst = max(grade for grade, _ in graded)
    return [words for grade, words in graded if grade == worst]


def _graded(
    variation: float, drift: float, apart: float | None, waiting: float | None, stolen: float | None
) -> list[tuple[int, str]]:
    """Grade each known figure, from 0 for a quiet machine to 2 for a very noisy one, with its words."""
    way = "slower" if drift > 0 else "faster"
    figures = [
        (variation, VARIATION, "the same work varied by {}"),
        (abs(drift), VARIATION, f"the same work became {{}} {way}"),
        (apart, VARIATION, "the same work had two speeds, {apart} apart"),
        (waiting, WAITING, "the work waited for its core {} of the time"),
        (stolen, STOLEN, "the host took {} of the machine's time"),
    ]
    return [(sum(value > limit for limit in limits), words.format(show_percent(value), apart=show_apart(value)))
            for value, limits, words in figures if value is not None]  # fmt: skip


def show_apart(distance: float) -> str:
    """Show how much slower the slower of two speeds is: 50 %, 34x."""
    return show_percent(distance) if distance < 1 else f"{digits(1 + distance, most=2)}x"


def _detectable_paired(values: Sequence[float]) -> float | None:
    """Return the largest difference that paired comparisons of identical blocks can't exclude."""
    logs = [math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=False)]
    if len(logs) < 2 * FEWEST_COMPARISONS:
        return None
    compared = map(paired, batches(logs, max(FEWEST_COMPARISONS, len(logs) // ROUNDS)))
    widest = max(abs(centre) + width for centre, width in compared)
    return math.expm1(widest) if widest < 10 else None


def _detectable_separate(values: Sequence[float]) -> float | None:
    """Return the smallest difference that two separate runs can detect."""
    width = batch_half_width(values, RUN_BATCHES) * autocorrelation(values).inflation(RUN_BATCHES)
    return DETECTABLE_HALF_WIDTHS * math.sqrt(2) * width / mean(values) if math.isfinite(width) else None
