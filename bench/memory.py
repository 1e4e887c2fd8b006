"""Figure 9: the peak memory of a worker over that of a bare script that trains the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.records import Record
from mldyno.stats.intervals import median
from mldyno.units import show_bytes

MORE = 1.02  # the worker's peak over the script's, at most
TURNS = 2
STEPS = 2  # that are measured
FULL: Mapping[str, Any] = {"workload": "bert-base", "batch": 16, "seq": 128}
QUICK: Mapping[str, Any] = {"workload": "mnist-linear", "batch": 64}
# glibc keeps freed tensors of up to 32 MiB in its heap, and how full of holes that gets is a matter of the order in
# which memory is taken. With a fixed threshold all of them go back at once: the peak is what is alive.
WAYS: Mapping[str, Mapping[str, str]] = {
    "": {},
    ", freed memory given back at once": {"MALLOC_MMAP_THRESHOLD_": str(2**20)},
}
_SCRIPT = Path(__file__).resolve().parent / "bare_training.py"


@dataclass(frozen=True)
class Turn:
    """A run of each, one after the other: their peaks in B, and the training steps that both did."""

    ours: float
    theirs: float
    steps: int


def measure(work: Work) -> Chapter:
    """The peak of resident memory in training, mldyno's over a bare script's."""
    chapter = Chapter("9. Peak memory of a worker, over a bare script's")
    turns, case = (1, QUICK) if work.quick else (TURNS, FULL)
    found: dict[str, list[Turn]] = {way: [] for way in WAYS}
    for number in range(turns):
        for way, environment in WAYS.items():
            say(f"  turn {number + 1} of {turns}{way}")
            with _environment(environment):
                found[way].append(_turn(work, case))
    size = ", ".join(
        f"{'sequence' if name == 'seq' else name} {case[name]}" for name in ("batch", "seq") if name in case
    )
    for way, seen in found.items():
        name = f"`{case['workload']}` train{way}"
        setting = "".join(f"; `{key}={value}` for both" for key, value in WAYS[way].items())
        how = (
            f"{size}, fp32, the CPU; `peak_memory` of a record with {STEPS} measured steps over the resident"
            f" high-water mark of a script with the same model, optimiser, 4 batches and {seen[-1].steps} training"
            f" steps; medians of {turns}, in turns{setting}"
        )
        ours, theirs = [one.ours for one in seen], [one.theirs for one in seen]
        chapter.figures.append(Figure(name, median(ours) / median(theirs), "×", MORE, how))
        chapter.notes.append(f"{name}: the worker {_listed(ours)}; the script {_listed(theirs)}.")
    return chapter


def _listed(peaks: Sequence[float]) -> str:
    return ", ".join(show_bytes(peak) for peak in peaks)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started see these variables too."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            del os.environ[name]


def _turn(work: Work, case: Mapping[str, Any]) -> Turn:
    record = _record(work, case)
    steps = trained(record)
    return Turn(record.values("peak_memory", "process")[0], _bare(case, steps), steps)


def _record(work: Work, case: Mapping[str, Any]) -> Record:
    axes = {name: value for name, value in case.items() if name != "workload"}
    store = str(work.folder / "memory.sqlite")
    found = api.run(case["workload"], mode="train", device="cpu", repeats=1, steps=STEPS, store=store, **axes)
    (record,) = found.records
    assert record.status in ("ok", "unsteady"), record.reason  # times that vary say nothing about memory
    return record


def trained(record: Record) -> int:
    """Training steps that a record tells of: the first, those of the warm-up, and those measured."""
    return sum(one.block * len(one.values) for one in record.series if one.metric == "step_time")


def _bare(case: Mapping[str, Any], steps: int) -> float:
    command = [sys.executable, str(_SCRIPT), json.dumps(case), str(steps)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
