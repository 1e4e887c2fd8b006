"""The measures that are taken on this very machine, in processes of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mldyno.analysis.comparisons import verdict
from mldyno.analysis.processes import Process, headline, usual_for
from mldyno.errors import MldynoError
from mldyno.messages import RunTask
from mldyno.selftest.contract import SILENCE_TIMEOUT_S
from mldyno.selftest.measures import Measure, lower_bound, meets, upper_bound
from mldyno.selftest.on_processes import coverage, judged
from mldyno.stats.intervals import mean, median, paired, spread
from mldyno.worker.client import Ended, WorkerProcess

Tick = Callable[[], None]
MODULE = "mldyno.selftest.in_child"
PAIRS = 384  # rounds of one comparison
MOST_IN_PROCESS = 20  # comparisons: where its memory lies, a process may favour one side, in all of them
STEP_MATMULS = 500  # small ones in a step
SLOWER_MATMULS = 515  # and in one that is 3 % longer
KERNELS_S = (0.2e-3, 1e-3, 20e-3, 1.0)


def child(task: str, framework: str, tick: Tick, **arguments: Any) -> list[dict[str, Any]]:
    """The rows that a task finds out in a process of its own; `tick` hears of each."""
    rows: list[dict[str, Any]] = []

    def hear(row: dict[str, Any]) -> None:
        rows.append(row)
        tick()

    try:
        with WorkerProcess() as worker:
            worker.request(RunTask(MODULE, task, framework, arguments), SILENCE_TIMEOUT_S, hear, reset_timeout=True)
    except Ended as end:
        raise MldynoError(f"the self-test's process failed: {end.reason}") from None
    return rows


def harness_overhead(framework: str, pairs: int, tick: Tick) -> list[Measure]:
    """Measure 1: what the harness's loop costs."""
    rows = child("overhead", framework, tick, pairs=pairs)
    centre, width = paired([math.log(row["ratio"]) for row in rows])
    value = math.exp(centre)
    return [
        Measure(
            1, "CPU time of the harness's loop / a bare loop, 30 us step", value, math.exp(centre + width), "<= 1.005",
            value <= 1.005, pairs, peers="optimum-benchmark's idiom 1.156, torch Timer pair 1.071, list per step 1.017",
            raw=tuple(rows),
        )
    ]  # fmt: skip


def _verdicts(framework: str, second: int, comparisons: int, tick: Tick) -> tuple[list[str], list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    while len(rows) < comparisons:
        count = min(MOST_IN_PROCESS, comparisons - len(rows))
        rows += child("verdicts", framework, tick, first=STEP_MATMULS, second=second, comparisons=count, pairs=PAIRS)
    edges = [(row["log_ratio"] - row["half_width"], row["log_ratio"] + row["half_width"]) for row in rows]
    return [verdict(math.exp(low), math.exp(high)) for low, high in edges], rows


def false_verdicts(framework: str, comparisons: int, tick: Tick) -> list[Measure]:
    """Measure 2: identical code that is called different."""
    verdicts, rows = _verdicts(framework, STEP_MATMULS, comparisons, tick)
    wrong = sum(said in ("faster", "slower") for said in verdicts)
    equal = verdicts.count("equivalent")
    share = wrong / comparisons
    return [
        Measure(
            2, "identical code called faster or slower", share, upper_bound(wrong, comparisons), "<= 5 %",
            meets(wrong, comparisons, most=0.05), comparisons, "share", "17-67 %", f"equivalent in {equal}",
            raw=tuple(rows),
        )
    ]  # fmt: skip


def power(framework: str, comparisons: int, tick: Tick) -> list[Measure]:
    """Measures 3 and 4: a true 3 % that is found, and the time it takes to say so."""
    verdicts, rows = _verdicts(framework, SLOWER_MATMULS, comparisons, tick)
    hits = verdicts.count("faster")
    share, seconds = hits / comparisons, [row["seconds"] for row in rows]
    return [
        Measure(
            3, "a true 3 % found (500 against 515 products)", share, lower_bound(hits, comparisons), ">= 95 %",
            meets(hits, comparisons, least=0.95), comparisons, "share", "1-87 %",
            f"called slower in {verdicts.count('slower')}", raw=tuple(rows),
        ),
        Measure(
            4, "time to that verdict", median(seconds), max(seconds), "<= 1 s", median(seconds) <= 1.0, comparisons,
            "s", "pyperf 65-85 s for each side",
        ),
    ]  # fmt: skip


def reproducibility(framework: str, processes: int, seconds: float, tick: Tick) -> list[Measure]:
    """Measures 6, 7 and 13: how far fresh processes differ, what the reference kernel explains, what they claim."""
    rows = [child("estimate", framework, tick, seconds=seconds)[0] for _ in range(processes)]
    plain, scaled = ([row[name] for row in rows] for name in ("median", "per_reference"))
    fresh = [
        Process("", str(number), (), None, row["when"], math.log(row["median"]), math.log(row["reference"]))
        for number, row in enumerate(rows)
    ]
    headlines = [headline([each], usual_for(each, [other for other in fresh if other != each]))[0] for each in fresh]
    ratio, longest = max(headlines) / min(headlines), max(row["seconds"] for row in rows)
    gain = _variation(scaled) / _variation(plain)
    return [
        Measure(
            6, f"largest / smallest headline of {processes} fresh processes", ratio, None,
            "<= 1.05 in <= 2 s", ratio <= 1.05 and longest <= 2.0, processes, "1",
            "torch blocked 3.83, adaptive 2.37, pyperf 1.49 in 70 s",
            f"of medians {max(plain) / min(plain):.3f}; {longest:.1f} s at most", raw=tuple(rows),
        ),
        Measure(
            7, "variation between processes over the reference kernel / in seconds", gain, None, "<= 0.5", gain <= 0.5,
            processes,
            "1", "none has one", f"{_variation(scaled):.2%} against {_variation(plain):.2%}",
        ),
        coverage(13, list(judged(fresh, (1,)))),
    ]  # fmt: skip


def _variation(values: Sequence[float]) -> float:
    return spread(values) / mean(values)


def simulated_device(tick: Tick) -> list[Measure]:
    """Measure 8: the error on a device that works asynchronously and whose truth is known."""
    rows = child("simulated", "fake", tick, kernels=list(KERNELS_S))
    worst = max(abs(row["error"]) for row in rows)
    return [
        Measure(
            8, "error on a simulated asynchronous device", worst, worst, "<= 0.5 %", worst <= 0.005, len(rows),
            "share", "without a wait -80 %, a wait each step +1 %", raw=tuple(rows),
        )
    ]  # fmt: skip


def late_changes(cases: int, tick: Tick) -> list[Measure]:
    """Measure 11: a graph compiled, or memory reserved, within the measured part."""
    rows = child("late_changes", "fake", tick, cases=cases)
    there = [row["seen"] for row in rows if row["there"]]
    alarms = sum(row["seen"] for row in rows if not row["there"])
    share = sum(there) / len(there)
    return [
        Measure(
            11, "late recompile or allocation flagged", share, lower_bound(sum(there), len(there)), "100 %",
            share == 1.0 and alarms == 0, len(there), "share", "none", f"{alarms} false alarms", raw=tuple(rows),
        )
    ]  # fmt: skip
