"""Figure 9: the peak memory of a worker over that of a bare script that trains the same model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.intervals import median
from mldyno.records import Record
from mldyno.units import show_bytes

MORE = 1.02  # the worker's peak over the script's, at most
TURNS = 3
STEPS = 2  # that are measured
_SCRIPT = Path(__file__).resolve().parent / "bare_training.py"


def measure(work: Work) -> Chapter:
    """The peak of resident memory in training, mldyno's over a bare script's."""
    chapter = Chapter("9. Peak memory of a worker, over a bare script's")
    workload, batch, seq, turns = ("mnist-linear", 64, None, 1) if work.quick else ("bert-base", 16, 128, TURNS)
    ours, theirs, steps = [], [], 0
    for number in range(turns):
        say(f"  turn {number + 1} of {turns}")
        record = _record(work, workload, batch, seq)
        steps = trained(record)
        ours.append(record.values("peak_memory", "process")[0])
        theirs.append(_bare({"workload": workload, "batch": batch, "seq": seq}, steps))
    how = (
        f"batch {batch}{f', sequence {seq}' if seq else ''}, fp32, the CPU; `peak_memory` of a record with {STEPS}"
        " measured steps over the resident high-water mark of a script with the same model, optimiser, 4 batches and"
        f" {steps} training steps; medians of {turns}, in turns"
    )
    chapter.figures.append(Figure(f"`{workload}` train", median(ours) / median(theirs), "×", MORE, how))
    for name, peaks in (("the worker", ours), ("the bare script", theirs)):
        chapter.notes.append(f"{name}: {', '.join(show_bytes(peak) for peak in peaks)}.")
    return chapter


def _record(work: Work, workload: str, batch: int, seq: int | None) -> Record:
    found = api.run(
        workload, mode="train", device="cpu", batch=batch, seq=seq, repeats=1, steps=STEPS,
        store=str(work.folder / "memory.sqlite"),
    )  # fmt: skip
    (record,) = found.records
    assert record.status in ("ok", "unsteady"), record.reason  # times that vary say nothing about memory
    return record


def trained(record: Record) -> int:
    """Training steps that a record tells of: the first, those of the warm-up, and those measured."""
    return sum(one.block * len(one.values) for one in record.series if one.metric == "step_time")


def _bare(case: dict[str, object], steps: int) -> float:
    command = [sys.executable, str(_SCRIPT), json.dumps(case), str(steps)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
