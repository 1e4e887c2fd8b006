"""Cases measured against each other, after each was measured alone.

Three ways, the nearest that is possible: together in one process, block by block; live processes
that take turns; whole processes in alternation, where they do not fit in memory side by side. A
paired comparison gives times for ratios only: first steps and peaks come from a process with one case in it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from mldyno.records import Pairing
from mldyno.runner.case_run import CaseRun, series_of
from mldyno.stats.intervals import paired
from mldyno.timing.stopping import FIRST_LOOK, GROWTH, Stopping

TURN = 0.05  # s that a live process works before it hands over
FEWEST_ROUNDS = 12  # as many pairs as an interval has batches
SHARE = 0.5  # of a case's budget that its paired comparisons may take


def run_paired(
    pairing: Pairing, cases: Sequence[CaseRun], stopping: Stopping, chance: random.Random, times: int
) -> None:
    """One of so many `times` that these cases are compared, in the way that `pairing` names."""
    if pairing == "interleaved":
        interleaved(cases, stopping, chance)
    elif pairing == "live-processes":
        live_processes(cases, stopping, chance, times)
    else:
        alternating_processes(cases, stopping, chance, times)


def interleaved(cases: Sequence[CaseRun], stopping: Stopping, chance: random.Random) -> None:
    """All cases in one process; rounds of one block each until their ratios are known well enough."""
    worker = cases[0].worker
    worker.start()
    for case in cases:
        case.open(start=False)
    budget = SHARE * stopping.budget * len(cases)
    seconds = FIRST_LOOK * len(cases)
    while True:
        command = {"do": "rounds", "key": 0, "keys": [case.key for case in cases], "seconds": seconds, "least": 2,
                   "seed": chance.random()}  # fmt: skip
        answer = worker.ask(command, cases[0].timeout, cases[0].tell)
        for case, content in zip(cases, answer["series"], strict=True):
            case.take(series_of(content))
        found = [case.values for case in cases]
        elapsed = sum(case.elapsed for case in cases)
        if elapsed >= budget or (len(found[0]) >= FEWEST_ROUNDS and ratios_known(found, stopping.target)):
            return
        seconds = max(FIRST_LOOK, min((GROWTH - 1) * elapsed, budget - elapsed))


def ratios_known(found: Sequence[Sequence[float]], target: float) -> bool:
    """Whether the ratio of every case to the first is known to half the target: close ones can then be told equal."""
    base = found[0]
    widths = [paired([math.log(a / b) for a, b in zip(base, other, strict=True)])[1] for other in found[1:]]
    return max(widths) <= target / 2


def live_processes(cases: Sequence[CaseRun], stopping: Stopping, chance: random.Random, times: int) -> None:
    """A fresh, live process for each case; they take turns in random order, one of them at a time."""
    for case in cases:
        case.open()
    budget = SHARE * stopping.budget * len(cases) / times
    for number in range(FEWEST_ROUNDS):
        for case in chance.sample(cases, len(cases)):
            case.turn(TURN)
        if number and sum(case.elapsed for case in cases) >= budget:
            return


def alternating_processes(cases: Sequence[CaseRun], stopping: Stopping, chance: random.Random, times: int) -> None:
    """One whole process after the other, in random order."""
    share = SHARE * stopping.budget / times
    for case in chance.sample(cases, len(cases)):
        try:
            case.open()
            case.turn(max(share, TURN))
        finally:
            case.worker.kill()
