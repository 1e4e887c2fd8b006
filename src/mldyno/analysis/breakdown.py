"""Where the time of a step goes: its bottleneck, ranks that train together, and a user's own loop.

Bounds are shares of the device's peaks, or of a step that copies or waits for the host; the largest names the bound, if
it is large. A model that works in caches can move more bytes than memory allows: its share is not clipped.
Ranks: all steps of one job were interleaved in rounds, so each ratio is paired.
Loops: waiting is the time within the loader, as the host saw it, while a device may have been busy. The loader's cost
comes from rounds of real and held batches, and is right on every device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.estimates import BATCHES, MIN_PROCESSES, log_ratios, pooled, step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.stats.intervals import batches, half_width, mean, median, paired
from mldyno.stats.shapes import SEGMENTS, drift, jump
from mldyno.units import Interval, show_percent, show_seconds

CLEAR_SHARE = 0.3  # of a peak: from here on it is the bottleneck
WAITING_SHARE = 0.5  # of a step: from here on copies or data loading are the bottleneck
LOADING_SHARE = 0.9  # of the rate that the loader's workers can sustain: from here on steps wait for them
SHORT_KERNEL = 20e-6  # s, on average: below it, launching kernels is most of the work


@dataclass(frozen=True)
class Bound:
    """The bottleneck of a case: compute, memory, host, copy, or unclear; with the reason in words."""

    kind: str
    why: str


@dataclass(frozen=True)
class Shares:
    """The share of each peak that a case uses; None where unknown."""

    compute: float | None
    memory: float | None
    copy: float | None
    data: float | None


def shares(record: Record) -> Shares | None:
    """Return the shares of a record that succeeded; None where it has no time of a step."""
    estimate = step_time([record]) if record.status == "ok" and record.alone else None
    if estimate is None or estimate.value <= 0:
        return None
    step = estimate.value

    def rate(fact: str, peak: str) -> float | None:
        work, most = record.fact(fact), record.fact(peak)
        return work / step / most if work and most else None

    return Shares(
        compute=rate("flops_per_step", "peak_flops"),
        memory=rate("bytes_per_step", "peak_bandwidth"),
        copy=rate("copied_per_step", "peak_copy_bandwidth"),
        data=Outcome((record,)).waits_for_data(),
    )


def bound(record: Record) -> Bound | None:
    """Return the bottleneck of a case; None where there is no time, or no peak is known."""
    of_peaks, loads_ahead = shares(record), record.case.loads_ahead
    if of_peaks is None or of_peaks == Shares(None, None, None, None):
        return None
    data, copy = of_peaks.data or 0.0, of_peaks.copy or 0.0
    if loads_ahead and data >= LOADING_SHARE:
        return Bound("host", f"steps take {show_percent(data)} of what the loader's workers can load")
    if not loads_ahead and data >= WAITING_SHARE:
        return Bound("host", f"{show_percent(data)} of a step is getting its batch from disk")
    if copy >= WAITING_SHARE:
        return Bound("copy", f"{show_percent(copy)} of a step is copying between host and device")
    return _working(record, of_peaks)


def _working(record: Record, of_peaks: Shares) -> Bound:
    """Return the peak that is near, whatever the host does meanwhile; else what the host holds up."""
    compute, memory = of_peaks.compute or 0.0, of_peaks.memory or 0.0
    parts = [(of_peaks.compute, "matmul rate"), (of_peaks.memory, "memory bandwidth")]
    why = ", ".join(f"{show_percent(share)} of the peak {what}" for share, what in parts if share is not None)
    if max(compute, memory) >= CLEAR_SHARE:
        return Bound("compute" if compute >= memory else "memory", why)
    codes = {warning.code for warning in record.warnings}
    if "host-bound" in codes:
        return Bound("host", "the device is done when its last kernel is issued: it waits for the host")
    if "step-waits" in codes:
        return Bound("host", f"{why}; each step waits for the device within itself, and the host can't run ahead")
    kernels, step = record.fact("kernels_per_step"), step_time([record])
    kernel = step.value / kernels if step is not None and kernels else math.inf  # the host's work for it included
    if kernel < SHORT_KERNEL:
        return Bound("host", f"{why}; a kernel takes {show_seconds(kernel)} on average: issuing them is the work")
    return Bound("unclear", why)


STRAGGLES = 1.1  # times the other ranks' time for the same work: a slower rank is reported
PARTS = 4  # of the rounds of a process


@dataclass(frozen=True)
class RankSplit:
    """The parts of a step of two or more ranks."""

    ranks: int
    waiting: Interval
    """Share of a step that waits for gradients: the part of their exchange that does not overlap with compute."""
    hidden: Interval | None  # share of the exchange that overlaps with compute
    wrapper: Interval
    """How many times as long a step takes with the DDP or FSDP wrapper, without an exchange, as without it."""
    over_same_threads: Interval | None
    """How many times as many items a second as one process with the threads of one rank; None where it has none."""
    over_all_cores: Interval | None  # the same against one process with all cores; None on an accelerator
    straggler: tuple[int, Interval] | None
    """The rank that takes longest for its own work, and how many times as long as the rest; None where none does."""


def split(outcome: Outcome) -> RankSplit | None:
    """Return the parts of a step; None where it was not measured in ranks."""
    records = [record for record in outcome.good if _ablated(record, "compute") and _ablated(record, "step")]
    if not records:
        return None
    first = records[0]
    gain = math.log((first.fact("batch_in_all") or 1) / (outcome.case.batch or 1))
    computing = _ratio(records, "compute", "step")
    same, all_cores = (
        _ratio(records, name, "step", gain) if _ablated(first, name) else None for name in ("alone", "all_cores")
    )
    return RankSplit(
        ranks=outcome.case.ranks or 1,
        waiting=computing.complement.clipped(0, 1),
        hidden=_hidden(records),
        wrapper=_ratio(records, "compute", "bare"),
        over_same_threads=same,
        over_all_cores=all_cores,
        straggler=_straggler(records),
    )


def _ablated(record: Record, name: str) -> list[float]:
    return record.values(f"{name}_time", "beside")


def _ratio(records: Sequence[Record], over: str, under: str, more: float = 0.0) -> Interval:
    """Return how many times as long the one takes as the other, times e to the power of `more`."""
    logs = [_logs(_ablated(record, over), _ablated(record, under)) for record in records]
    centre, width = pooled([each for each in logs if each])
    return Interval.of_logs(centre + more, width)


def _logs(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return log_ratios(dict(enumerate(over)), dict(enumerate(under)))


def _hidden(records: Sequence[Record]) -> Interval | None:
    """Return the share of the exchange's time that a step does not take longer for."""

    def share(step: Sequence[float], compute: Sequence[float], exchange: Sequence[float]) -> float:
        return 1 - (median(step) - median(compute)) / median(exchange)

    series = [[_ablated(record, name) for name in ("step", "compute", "exchange")] for record in records]
    if not all(map(all, series)):
        return None
    by_process = samples = [share(*each) for each in series]
    if len(series) < MIN_PROCESSES:  # too few to show how they vary: parts of them do
        parts = [zip(*(batches(values, PARTS) for values in each), strict=True) for each in series]
        samples = [share(*part) for of_process in parts for part in of_process if all(part)]
    return Interval.around(mean(by_process), half_width(samples)).clipped(0, 1)


def _straggler(records: Sequence[Record]) -> tuple[int, Interval] | None:
    """Return the slowest rank, by steps without an exchange: with one, all wait for the slowest."""
    ranks = range(records[0].case.ranks or 1)
    if len(ranks) < 2:
        return None
    by_rank = [[record.values("compute_time", f"rank-{rank}") for record in records] for rank in ranks]
    if not all(all(values) for values in by_rank):
        return None
    typical = [median([value for values in of_rank for value in values]) for of_rank in by_rank]
    slowest = max(ranks, key=lambda rank: typical[rank])
    logs = []
    for place, own in enumerate(by_rank[slowest]):
        rest = [by_rank[rank][place] for rank in ranks if rank != slowest]
        logs.append(_logs(own, [median(blocks) for blocks in zip(*rest, strict=False)]))
    factor = Interval.of_logs(*pooled(logs))
    return (slowest, factor) if factor.low is not None and factor.low > 1 and factor.value >= STRAGGLES else None


@dataclass(frozen=True)
class Change:
    """A loop that got slower or faster: by how much, and from which step on; None where it was gradual."""

    change: float
    step: int | None


@dataclass(frozen=True)
class LoaderCost:
    """The loader's cost in each step: its share of it, and the time in s."""

    share: Interval
    time: Interval
    rounds: int


@dataclass(frozen=True)
class LoopParts:
    """The parts of a loop."""

    waiting: Interval | None  # share of a step that was spent within the loader; None where the loop has none
    loader: LoaderCost | None
    change: Change | None
    long_blocks: int
    """Blocks that took much longer than the rest, such as those with a checkpoint in one of their steps."""
    long_time: float  # their total time in s
    steps_each: int  # steps in such a block
    pauses: int = 0  # how often the user, or a trainer, excluded other work, such as an evaluation
    pause_time: float = 0.0  # the total time of these in s


def loop_parts(record: Record) -> LoopParts | None:
    """Return the parts of a tracked loop, steady or not; None for any other record."""
    if not record.case.tracked or record.status not in ("ok", "unsteady"):
        return None
    apart = record.values("apart_time", "apart")
    long = [part for part in record.series if (part.metric, part.stage) == ("step_time", "long")]
    return LoopParts(
        waiting=_waiting_for_data(record.values("step_time"), record.values("data_wait")),
        loader=loader_cost(record.values("step_time", "beside"), record.values("held_time", "beside")),
        change=_change(record),
        long_blocks=sum(len(part.values) for part in long),
        long_time=math.fsum(part.block * math.fsum(part.values) for part in long),
        steps_each=max((part.block for part in long), default=1),
        pauses=len(apart),
        pause_time=math.fsum(apart),
    )


def _waiting_for_data(steps: Sequence[float], waits: Sequence[float]) -> Interval | None:
    if not steps or len(steps) != len(waits) or not any(waits):
        return None
    share = math.fsum(waits) / math.fsum(steps)
    if len(steps) < BATCHES:
        return Interval(share)
    parts = zip(batches(waits, BATCHES), batches(steps, BATCHES), strict=True)
    width = half_width([math.fsum(within) / math.fsum(whole) for within, whole in parts])
    return Interval.around(share, width).clipped(0, 1)


def loader_cost(real: Sequence[float], held: Sequence[float]) -> LoaderCost | None:
    """Return what real batches cost over held ones, round by round, in the unit of the times; None without rounds."""
    if not real or len(real) != len(held):
        return None
    ratio, width = paired(_logs(held, real))
    time, error = paired([mine - yours for mine, yours in zip(real, held, strict=True)])
    return LoaderCost(Interval.of_logs(ratio, width).complement, Interval.around(time, error), len(real))


def _change(record: Record) -> Change | None:
    """Return by how much a loop got slower or faster while steady, and from which step on."""
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
