"""mldyno, called as a user calls it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from bench.peers.steps import WORKLOADS
from bench.peers.tools import Answer, Call

from mldyno.analysis.estimates import uncontended

BUDGET, TARGET = "20s", "2%"  # mldyno's own defaults
STANDING = ("virtualised",)  # facts of the machine, said in every run: no sign of a doubtful answer


@dataclass(frozen=True)
class Ours:
    """`mldyno run` with a store of its own; the answer is read from its JSON."""

    name: str = "mldyno"
    environment: str = "mldyno"
    steps: tuple[str, ...] = tuple(WORKLOADS)
    reference: str = "bare"
    settings: str = f"one process; `--budget {BUDGET} --target {TARGET}`, the defaults: stops when it is known to ±2 %"

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """One case, one process, a fresh store."""
        workload, batch, seq = WORKLOADS[step]
        words = ["mldyno", "run", workload, "--mode", "infer", "--batch-size", str(batch)]
        words += ["--seq-len", str(seq)] if seq else []
        words += [
            "--threads",
            "1",
            "--repeats",
            "1",
            "--budget",
            "2s" if quick else BUDGET,
            "--target",
            TARGET,
            "--json",
        ]
        return Call([*words, "--store", str(folder / "store.sqlite")])

    def read(self, output: str) -> Answer:
        """The headline: the median of all steady blocks, or the mean of the processes' medians."""
        records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        if not records:
            raise ValueError("no record")
        given = [one for record in records for one in record["warnings"] if one["code"] not in STANDING]
        warnings = [f"{one['code']}: {one['message']}" for one in given]
        if any(record["status"] != "ok" for record in records):
            return Answer(None, (*(f"{one['status']}: {one['reason']}" for one in records), *warnings))
        steady = [_steady(record["series"]) for record in records]
        fast = uncontended(sorted(value for values in steady for value in values))
        return Answer(fmean(map(median, steady)), tuple(warnings), uncontended=fast)


def _steady(series: list[dict[str, object]]) -> list[float]:
    found: list[float] = []
    for one in series:
        if one["metric"] == "step_time" and one["stage"] == "steady":
            values = one["values"]
            assert isinstance(values, list)
            found += values
    return found
