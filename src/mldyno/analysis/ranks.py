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

STRAGGLES = 1.1  # times what the others take for the same work: a rank that is slower is named
PARTS = 4  # of the rounds of a process


@dataclass(frozen=True)
class Factor:
    """A ratio or a share with its 95 % interval, where there is one."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RankSplit:
    """A step of several ranks, taken apart."""

    ranks: int
    waiting: Factor
    """Share of a step that waits for gradients: what computing does not hide of their exchange."""
    hidden: Factor | None
    """Share of the exchange that computing hides."""
    wrapper: Factor
    """How many times as long a step takes with the wrapper, without an exchange, as without it."""
    over_same_threads: Factor | None
    """How many times as many items a second as one process with the threads of one rank; None where it has none."""
    over_all_cores: Factor | None
    """The same against one process with all cores; None on an accelerator."""
    straggler: tuple[int, Factor] | None
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
        waiting=Factor(1 - computing.value, _rest(computing.high), _rest(computing.low)),
        hidden=_hidden(records),
        wrapper=_ratio(records, "compute", "bare"),
        over_same_threads=same,
        over_all_cores=all_cores,
        straggler=_straggler(records),
    )


def _beside(record: Record, name: str) -> list[float]:
    return record.values(f"{name}_time", "beside")


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _ratio(records: Sequence[Record], over: str, under: str, more: float = 0.0) -> Factor:
    """How many times as long the one takes as the other, times e to the power of `more`."""
    logs = [_logs(_beside(record, over), _beside(record, under)) for record in records]
    return _factor([each for each in logs if each], more)


def _logs(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return rounds.log_ratios(dict(enumerate(over)), dict(enumerate(under)))


def _factor(by_process: Sequence[list[float]], more: float = 0.0) -> Factor:
    centre, width = rounds.pooled(by_process)
    if not math.isfinite(width):
        return Factor(math.exp(centre + more), None, None)
    return Factor(math.exp(centre + more), math.exp(centre + more - width), math.exp(centre + more + width))


def _hidden(records: Sequence[Record]) -> Factor | None:
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
    low, high = (value - width, value + width) if math.isfinite(width) else (None, None)
    return Factor(_within(value), None if low is None else _within(low), None if high is None else _within(high))


def _share(step: Sequence[float], compute: Sequence[float], exchange: Sequence[float]) -> float:
    return 1 - (median(step) - median(compute)) / median(exchange)


def _within(share: float) -> float:
    return min(1.0, max(0.0, share))


def _straggler(records: Sequence[Record]) -> tuple[int, Factor] | None:
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
