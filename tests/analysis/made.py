"""Outcomes that are made, not measured: their times, intervals and paired comparisons are what a test says they are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mldyno.analysis.outcomes import Outcome
from mldyno.records import SCHEMA, Case, Checks, Machine, Record, Run, Series, Software, Status, seal

ROUNDS = 48


def outcome(
    step: float,
    processes: int = 3,
    apart: float = 0.002,
    blocks: int = 20,
    error: float | None = None,
    status: Status = "ok",
    reason: str = "",
    real: bool = False,
    **axes: Any,
) -> Outcome:
    """A case alone: the medians of its processes lie evenly around a step time in s, so far apart relative to it."""
    case = Case(**{"workload": "mlp", "batch": 8, **axes})
    records = []
    for number in range(processes):
        level = step * (1 + apart * (number - (processes - 1) / 2))
        series = (Series("step_time", "s", (level,) * blocks, turn=0),) if status == "ok" else ()
        record = Record(
            SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r", repeat=number), case, status, reason, Machine("m"),
            software=Software(versions={"torch": "2"}, threads=2), series=series, checks=Checks(error=error),
            facts={"wall_time": 3.0} if real else {},
        )  # fmt: skip
        records.append(seal(record))
    return Outcome(tuple(records))


def met(*sides: Outcome, noise: float = 0.004, group: int = 1) -> list[Outcome]:
    """The same outcomes after a paired comparison in one process; the first one's rounds are off by so much."""
    found = []
    for place, side in enumerate(sides):
        step = side.records[len(side.records) // 2].values("step_time")[0]
        off = noise if place == 0 else 0.0
        times = tuple(step * math.exp(off * math.sin(7.0 * number)) for number in range(ROUNDS))
        first = side.records[0]
        met_others = replace(
            first,
            run=replace(first.run, pairing="interleaved", group=group),
            series=(Series("step_time", "s", times, stage="paired"),),
        )
        found.append(Outcome(side.records, (*side.pairings, seal(met_others))))
    return found
