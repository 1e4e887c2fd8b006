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
from mldyno.stats.intervals import batch_half_width, mean, median

STRAGGLES = 1.1  # times what the others take for the same work: a rank that is slower is named
INTERVAL_BATCHES = 12


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
    over_same_threads: Factor
    """How many times as many items a second as one process with the threads of one rank."""
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
    all_cores = _ratio(records, "all_cores", "step", gain) if _beside(first, "all_cores") else None
    return RankSplit(
        ranks=outcome.case.ranks or 1,
        waiting=Factor(1 - computing.value, _rest(computing.high), _rest(computing.low)),
        hidden=_hidden(records),
        wrapper=_ratio(records, "compute", "bare"),
        over_same_threads=_ratio(records, "alone", "step", gain),
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
    """Of the exchange's own time, what a step does not take longer for; from round to round."""
    shares = [
        1 - max(0.0, step - compute) / exchange
        for record in records
        for step, compute, exchange in zip(
            _beside(record, "step"), _beside(record, "compute"), _beside(record, "exchange"), strict=False
        )
        if exchange > 0
    ]
    if not shares:
        return None
    value, width = mean(shares), batch_half_width(shares, INTERVAL_BATCHES)
    low, high = (None, None) if not math.isfinite(width) else (value - width, value + width)
    return Factor(min(1.0, max(0.0, value)), low and max(0.0, low), high and min(1.0, high))


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
