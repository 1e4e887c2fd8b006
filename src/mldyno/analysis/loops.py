"""A user's own loop, taken apart: how long it waits for data, what its loader costs, and whether it got slower.

Waiting is the time within the loader, as the host saw it: where a device works on its own, it may have been busy
meanwhile. What the loader costs comes from rounds of real and held batches, and holds everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.estimates import BATCHES
from mldyno.analysis.rounds import log_ratios
from mldyno.records import Record
from mldyno.stats.intervals import batches, half_width, paired
from mldyno.stats.shapes import SEGMENTS, drift, jump
from mldyno.units import Interval


@dataclass(frozen=True)
class Change:
    """A loop that got slower, or faster: by how much, and from which step on; None where it was bit by bit."""

    change: float
    step: int | None


@dataclass(frozen=True)
class LoaderCost:
    """What the loader costs in each step: its share of it, and the time in s."""

    share: Interval
    time: Interval
    rounds: int


@dataclass(frozen=True)
class LoopParts:
    """A loop, taken apart."""

    waiting: Interval | None
    """Share of a step that was spent within the loader; None where the loop has none."""
    loader: LoaderCost | None
    change: Change | None
    long_blocks: int
    """Blocks that took several times as long by themselves: in one of their steps something was saved, say."""
    long_time: float
    """Time in s that they took, in all."""
    steps_each: int
    """Steps of such a block."""
    pauses: int = 0
    """How often the user, or a trainer, has kept something apart."""
    pause_time: float = 0.0
    """Time in s that this took, in all."""


def loop_parts(record: Record) -> LoopParts | None:
    """A tracked loop, taken apart, steady or not; None of any other record."""
    if not record.case.tracked or record.status not in ("ok", "unsteady"):
        return None
    apart = record.values("apart_time", "apart")
    long = [part for part in record.series if (part.metric, part.stage) == ("step_time", "long")]
    return LoopParts(
        waiting=_waiting(record.values("step_time"), record.values("data_wait")),
        loader=loader_cost(record.values("step_time", "beside"), record.values("held_time", "beside")),
        change=_change(record),
        long_blocks=sum(len(part.values) for part in long),
        long_time=math.fsum(part.block * math.fsum(part.values) for part in long),
        steps_each=max((part.block for part in long), default=1),
        pauses=len(apart),
        pause_time=math.fsum(apart),
    )


def _waiting(steps: Sequence[float], waits: Sequence[float]) -> Interval | None:
    """The share of all steps, with an interval from batches of blocks."""
    if not steps or len(steps) != len(waits) or not any(waits):
        return None
    share = math.fsum(waits) / math.fsum(steps)
    if len(steps) < BATCHES:
        return Interval(share)
    parts = zip(batches(waits, BATCHES), batches(steps, BATCHES), strict=True)
    width = half_width([math.fsum(within) / math.fsum(whole) for within, whole in parts])
    return Interval.around(share, width).clipped(0, 1)


def loader_cost(real: Sequence[float], held: Sequence[float]) -> LoaderCost | None:
    """What real batches cost beside held ones, round by round, in the unit of the times; None without rounds."""
    if not real or len(real) != len(held):
        return None
    ratio, width = paired(log_ratios(dict(enumerate(held)), dict(enumerate(real))))
    time, error = paired([mine - yours for mine, yours in zip(real, held, strict=True)])
    return LoaderCost(Interval.of_logs(ratio, width).complement, Interval.around(time, error), len(real))


def _change(record: Record) -> Change | None:
    """Whether it got slower or faster while it was steady, and from which step on, counted from the very first."""
    parts = [part for part in record.series if (part.metric, part.stage) == ("step_time", "steady")]
    values = [value for part in parts for value in part.values]
    shape = drift(values)
    if shape is None:
        return None
    if shape.change_point is None:  # of its beginning, as a jump is; the shape has it of the middle
        return Change(shape.change / max(0.5, 1 - shape.change / 2), None)
    near = len(values) / SEGMENTS
    first, last = (round(max(0.0, shape.change_point * len(values) + side * near)) for side in (-1, 1))
    place = first + jump(values[first:last], 1, last - first - 1).place if last - first > 2 else first
    before = sum(part.block * len(part.values) for part in record.series
                 if part.metric == "step_time" and part.stage in ("first", "warmup"))  # fmt: skip
    return Change(shape.change, before + place * parts[0].block + 1)
