"""How the time of a step went on while it was measured: raw samples, thinned out evenly where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record

STAGES = ("warmup", "steady")


@dataclass(frozen=True)
class Sample:
    """The time in s of a step in one block, and the number of steps that were done before it in its process."""

    process: int
    stage: str
    step: int
    seconds: float


def trace(outcome: Outcome, most: int) -> list[Sample]:
    """Samples of all processes of a case, about `most` of them."""
    every = [list(_samples(number, record)) for number, record in enumerate(outcome.records, 1)]
    counted = sum(map(len, every))
    share = min(1.0, most / counted) if counted else 1.0
    return [sample for samples in every for sample in thinned(samples, round(share * len(samples)))]


def sample_count(outcome: Outcome) -> int:
    """How many samples there are."""
    return sum(
        len(series.values)
        for record in outcome.records
        for series in record.series
        if _counts(series.metric, series.stage)
    )


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """So many samples at even distances, the first and the last among them."""
    if len(samples) <= most:
        return list(samples)
    most = max(2, most)
    return [samples[round(place * (len(samples) - 1) / (most - 1))] for place in range(most)]


def _counts(metric: str, stage: str) -> bool:
    return metric == "step_time" and stage in STAGES


def _samples(number: int, record: Record) -> Iterator[Sample]:
    done = 1  # the first step stands apart
    for series in record.series:
        if _counts(series.metric, series.stage):
            for value in series.values:
                yield Sample(number, series.stage, done, value)
                done += series.block
