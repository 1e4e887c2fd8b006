"""Ranks that train together: what they gain, how long they wait for gradients, and whether one holds the others up.

All of it comes from one job. Steps with an exchange of gradients, steps without, the exchange by itself, and steps of
one process alone took turns in rounds, so each ratio is paired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis import rounds
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.stats.intervals import batches, half_width, mean, median
from mldyno.units import Interval

STRAGGLES = 1.1  # times what the others take for the same work: a rank that is slower is named
PARTS = 4  # of the rounds of a process


@dataclass(frozen=True)
class RankSplit:
    """A step of several ranks, taken apart."""

    ranks: int
    waiting: Interval
    """Share of a step that waits for gradients: what computing does not hide of their exchange."""
    hidden: Interval | None
    """Share of the exchange that computing hides."""
    wrapper: Interval
    """How many times as long a step takes with the wrapper, without an exchange, as without it."""
    over_same_threads: Interval | None
    """How many times as many items a second as one process with the threads of one rank; None where it has none."""
    over_all_cores: Interval | None
    """The same against one process with all cores; None on an accelerator."""
    straggler: tuple[int, Interval] | None
    """The rank that takes longest for its own work, and how many times as long as the others; None where none does."""


def split(outcome: Outcome) -> RankSplit | None:
    """A case's step, taken apart; None where it was not measured in ranks."""
    records = [record for record in outcome.good if _beside(record, "compute") and _beside(record, "step")]
    if not records:
        return None
    first = records[0]
    gain = math.log((first.fact("batch_in_all") or 1) / (outcome.case.batch or 1))
    computing = _ratio(records, "compute", "step")
    same, all_cores = (
        _ratio(records, name, "step", gain) if _beside(first, name) else None for name in ("alone", "all_cores")
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


def _beside(record: Record, name: str) -> list[float]:
    return record.values(f"{name}_time", "beside")


def _ratio(records: Sequence[Record], over: str, under: str, more: float = 0.0) -> Interval:
    """How many times as long the one takes as the other, times e to the power of `more`."""
    logs = [_logs(_beside(record, over), _beside(record, under)) for record in records]
    return _factor([each for each in logs if each], more)


def _logs(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return rounds.log_ratios(dict(enumerate(over)), dict(enumerate(under)))


def _factor(by_process: Sequence[list[float]], more: float = 0.0) -> Interval:
    centre, width = rounds.pooled(by_process)
    return Interval.of_logs(centre + more, width)


def _hidden(records: Sequence[Record]) -> Interval | None:
    """Of the exchange's own time, the share that a step does not take longer for."""
    series = [[_beside(record, name) for name in ("step", "compute", "exchange")] for record in records]
    if not all(map(all, series)):
        return None
    if len(series) < rounds.MIN_PROCESSES:  # then how far off it may be comes from parts of them
        parts = [zip(*(batches(values, PARTS) for values in each), strict=True) for each in series]
        shares = [_share(*part) for of_process in parts for part in of_process if all(part)]
    else:
        shares = [_share(*each) for each in series]
    value, width = mean([_share(*each) for each in series]), half_width(shares)
    return Interval.around(value, width).clipped(0, 1)


def _share(step: Sequence[float], compute: Sequence[float], exchange: Sequence[float]) -> float:
    return 1 - (median(step) - median(compute)) / median(exchange)


def _straggler(records: Sequence[Record]) -> tuple[int, Interval] | None:
    """From steps without an exchange: in the others each waits for the slowest, and all look alike."""
    ranks = range(records[0].case.ranks or 1)
    if len(ranks) < 2:
        return None
    by_rank = [[record.values("compute_time", f"rank-{rank}") for record in records] for rank in ranks]
    if not all(all(values) for values in by_rank):
        return None
    typical = [median([value for values in of_rank for value in values]) for of_rank in by_rank]
    slowest = max(ranks, key=lambda rank: typical[rank])
    logs = []
    for place in range(len(records)):
        others = [by_rank[rank][place] for rank in ranks if rank != slowest]
        logs.append(_logs(by_rank[slowest][place], [median(blocks) for blocks in zip(*others, strict=False)]))
    factor = _factor(logs)
    return (slowest, factor) if factor.low is not None and factor.low > 1 and factor.value >= STRAGGLES else None
