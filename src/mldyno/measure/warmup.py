"""Warm-up: the first step apart, then steps until the series and its causes stand still.

Series: it is steady when the medians of the pieces of its last half have no trend (Mann-Kendall at
the 1 % level, of more than 1 % in size); from there they are walked back as long as they lie near
the median of that half (within 1 % or three median deviations).
Causes: no new compiled graph and no growth of reserved memory over the same half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mldyno.intervals import batches, median, trend
from mldyno.measure.blocks import Blocks

PIECES = 20
TOLERANCE = 0.01
DEVIATIONS = 3.0
SURE = 2.58  # |z| of a trend at the 1 % level
FEWEST = 20  # blocks before the series can be judged
LEAST = 200_000_000  # ns: clocks ramp up and caches fill over time, however short the step
GROWTH = 1.5


def settled_from(values: Sequence[float]) -> int | None:
    """The index from which the series is steady; None where it has not settled by its last half."""
    pieces = batches(values, min(PIECES, len(values)))
    medians = [median(piece) for piece in pieces]
    half = len(medians) // 2
    level = median(values[len(values) // 2 :])
    deviation = median([abs(m - level) for m in medians[half:]])
    allowed = max(TOLERANCE * level, DEVIATIONS * deviation)
    first = half
    while first > 0 and abs(medians[first - 1] - level) <= allowed:
        first -= 1
    z, change = trend(medians[half:])
    if abs(z) > SURE and abs(change) > TOLERANCE * level:
        return None
    return sum(len(piece) for piece in pieces[:first])


@dataclass
class WarmUp:
    """What came before the steady state: times in ns, one value per block, each per step."""

    first_step: int
    values: list[float] = field(default_factory=list)
    steady: bool | None = None
    """None where the budget allowed too few blocks to judge."""
    reason: str = ""


def warm_up(
    blocks: Blocks, causes: Callable[[], tuple[int, ...]], budget: float, tick: Callable[[list[float]], None]
) -> WarmUp:
    """Run until steady, for at most `budget` s but three blocks at least; `tick` sees the values so far."""
    began = blocks.clock()
    limit = began + round(budget * 1e9)
    result = WarmUp(first_step=blocks.time(1))
    fastest = float(blocks.time(1))
    blocks.fit(fastest)
    values, seen, check = result.values, [causes()], FEWEST
    while True:
        values.append(blocks.time(blocks.size) / blocks.size)
        seen.append(causes())
        tick(values)
        if values[-1] < 0.7 * fastest:  # the step got faster: its block may need more of them
            fastest = values[-1]
            blocks.fit(fastest)
        now = blocks.clock()
        late = now >= limit
        due = len(values) >= check and now - began >= LEAST
        if due or (late and len(values) >= FEWEST):
            check = round(GROWTH * len(values))
            still = seen[-1] == seen[len(seen) // 2]
            settled = settled_from(values) is not None
            result.steady = still and settled
            result.reason = "" if still else "graphs or reserved memory kept growing"
            if not settled:
                result.reason = "step times had not settled"
        if result.steady or late:
            return result
