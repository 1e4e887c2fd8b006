"""Coverage of intervals over processes: the interval from a few, against the mean of 30 other processes of the case."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from mldyno.analysis import grouped
from mldyno.analysis.estimates import Process, headline, undisturbed, usual_for
from mldyno.runner.recording import NEWEST_RECORDS
from mldyno.selftest.measures import Measure, Row, series_kind, together
from mldyno.stats.intervals import PREDICTED_PROCESSES, half_width, mean, median

SIZES = (1, 2, 3, 5)  # processes that an interval is computed from
MANY = 10  # processes of 2 s that start and run in the time of 3 of 20 s
LEAST, MOST = 0.93, 0.97  # share of the intervals that must hold
NAME = "intervals of a time that hold the mean of 30 other processes"


def judged(processes: Sequence[Process], sizes: Sequence[int] = (*SIZES, MANY), seed: int = 0) -> Iterator[Row]:
    """Yield the interval of each run of `size` consecutive processes, and whether it holds the mean of the others."""
    chance, waited = random.Random(seed), attrgetter("contended")
    in_order = sorted(processes, key=lambda process: process.when)
    for case, group in grouped(in_order, lambda process: process.case).items():
        for size in sizes:
            for start in range(0, len(group) - size + 1, size):
                run = [replace(process, run="this") for process in group[start : start + size]]
                before = [process for process in in_order if process.when < run[0].when][-NEWEST_RECORDS:]
                meanwhile = [
                    replace(process, run="this")
                    for process in in_order
                    if run[0].when < process.when < run[-1].when and process.case != case
                ]
                comparison = [process for process in group if not run[0].when <= process.when <= run[-1].when]
                if not comparison:
                    continue
                reference = undisturbed(chance.sample(comparison, min(PREDICTED_PROCESSES, len(comparison))), waited)
                own = undisturbed(run, waited)
                value, error = headline(own, usual_for(own[-1], [*before, *meanwhile, *run[:-1]]))
                truth = mean([math.exp(other.time) for other in reference])
                times = [math.exp(process.time) for process in run]
                yield {
                    "case": case.partition(" ")[0], "processes": size, "value": value, "truth": truth,
                    "half_width": math.expm1(error.half_width),
                    "held": abs(truth - value) <= math.expm1(error.half_width) * value,
                    "plain_half_width": half_width(times) / mean(times),
                }  # fmt: skip


def coverage(number: int, rows: Sequence[Row]) -> Measure:
    """Return the share of intervals that held, for the number of processes where it is farthest from 95 %."""
    sizes = sorted({row["processes"] for row in rows} & {*SIZES})
    cells = [
        series_kind(f"from {size}", sum(row["held"] for row in own), len(own), LEAST, MOST)
        for size in sizes
        if (own := [row for row in rows if row["processes"] == size])
    ]
    worst = max(cells, key=lambda cell: abs(cell.value - (LEAST + MOST) / 2))
    widths = ", ".join(
        f"±{median([row['half_width'] for row in rows if row['processes'] == size]):.1%} from {size}" for size in sizes
    )
    ok = together(cell.ok for cell in cells)
    return Measure(
        number, NAME, worst.value, worst.bound, "93-97 %", ok, worst.n, "share",
        "none claims it; ours was 26 % from one", f"worst {worst.name}; {widths}", tuple(cells), tuple(rows),
    )  # fmt: skip
