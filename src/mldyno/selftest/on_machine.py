"""The measures that are taken on this very machine, in processes of their own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mldyno.analysis.comparisons import verdict
from mldyno.errors import MldynoError
from mldyno.selftest.measures import Measure, allowed, lower_bound, upper_bound
from mldyno.stats.intervals import mean, median, paired, spread

Tick = Callable[[], None]
PAIRS = 384  # rounds of one comparison
STEP = 500  # small products in a step
SLOWER = 515  # and in one that is 3 % longer
KERNELS = (0.2e-3, 1e-3, 20e-3, 1.0)  # s


def child(command: dict[str, Any], tick: Tick) -> list[dict[str, Any]]:
    """What a process of its own finds out, an object a line; `tick` hears of each."""
    arguments = [sys.executable, "-m", "mldyno.selftest.in_child", json.dumps(command)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    found = []
    try:
        for line in process.stdout:
            found.append(json.loads(line))
            tick()
        words = process.stderr.read().strip().splitlines()
        if process.wait() != 0:
            told = words[-1] if words else f"exit code {process.returncode}"
            raise MldynoError(f"the self-test's process failed: {told}")
        return found
    finally:
        process.kill()
        process.communicate()


def harness_overhead(framework: str, pairs: int, tick: Tick) -> list[Measure]:
    """Measure 1: what the harness's loop costs."""
    found = child({"do": "overhead", "framework": framework, "pairs": pairs}, tick)
    centre, width = paired([math.log(one["ratio"]) for one in found])
    value = math.exp(centre)
    return [
        Measure(
            1, "CPU time of the harness's loop / a bare loop, 30 us step", value, math.exp(centre + width), "<= 1.005",
            value <= 1.005, pairs, peers="optimum-benchmark's idiom 1.156, torch Timer pair 1.071, list per step 1.017",
            raw=tuple(found),
        )
    ]  # fmt: skip


def _verdicts(framework: str, second: int, comparisons: int, tick: Tick) -> tuple[list[str], list[dict[str, Any]]]:
    command = {"do": "verdicts", "framework": framework, "first": STEP, "second": second,
               "comparisons": comparisons, "pairs": PAIRS}  # fmt: skip
    found = child(command, tick)
    edges = [(one["log_ratio"] - one["half_width"], one["log_ratio"] + one["half_width"]) for one in found]
    return [verdict(math.exp(low), math.exp(high)) for low, high in edges], found


def false_verdicts(framework: str, comparisons: int, tick: Tick) -> list[Measure]:
    """Measure 2: identical code that is called different."""
    told, found = _verdicts(framework, STEP, comparisons, tick)
    wrong = sum(one in ("faster", "slower") for one in told)
    equal = told.count("equivalent")
    share = wrong / comparisons
    return [
        Measure(
            2, "identical code called faster or slower", share, upper_bound(wrong, comparisons), "<= 5 %",
            share <= 0.05 + allowed(0.05, comparisons), comparisons, "share", "17-67 %", f"equivalent in {equal}",
            raw=tuple(found),
        )
    ]  # fmt: skip


def power(framework: str, comparisons: int, tick: Tick) -> list[Measure]:
    """Measures 3 and 4: a true 3 % that is found, and the time it takes to say so."""
    told, found = _verdicts(framework, SLOWER, comparisons, tick)
    hits = told.count("faster")
    share, seconds = hits / comparisons, [one["seconds"] for one in found]
    return [
        Measure(
            3, "a true 3 % found (500 against 515 products)", share, lower_bound(hits, comparisons), ">= 95 %",
            share >= 0.95 - allowed(0.95, comparisons), comparisons, "share", "1-87 %",
            f"called slower in {told.count('slower')}", raw=tuple(found),
        ),
        Measure(
            4, "time to that verdict", median(seconds), max(seconds), "<= 1 s", median(seconds) <= 1.0, comparisons,
            "s", "pyperf 65-85 s for each side",
        ),
    ]  # fmt: skip


def reproducibility(framework: str, processes: int, seconds: float, tick: Tick) -> list[Measure]:
    """Measures 6 and 7: how far fresh processes differ, and what the reference kernel does about it."""
    command = {"do": "estimate", "framework": framework, "seconds": seconds}
    found = [child(command, tick)[0] for _ in range(processes)]
    fast, plain, scaled = ([one[name] for one in found] for name in ("uncontended", "median", "in_yardsticks"))
    ratio, longest = max(fast) / min(fast), max(one["seconds"] for one in found)
    gain = _variation(scaled) / _variation(plain)
    return [
        Measure(
            6, f"largest / smallest uncontended time of {processes} fresh processes", ratio, None,
            "<= 1.05 in <= 2 s", ratio <= 1.05 and longest <= 2.0, processes, "1",
            "torch blocked 3.83, adaptive 2.37, pyperf 1.49 in 70 s",
            f"of medians {max(plain) / min(plain):.3f}; {longest:.1f} s at most", raw=tuple(found),
        ),
        Measure(
            7, "variation between processes over the reference kernel / in seconds", gain, None, "<= 0.5", gain <= 0.5,
            processes,
            "1", "none has one", f"{_variation(scaled):.2%} against {_variation(plain):.2%}",
        ),
    ]  # fmt: skip


def _variation(values: Sequence[float]) -> float:
    return spread(values) / mean(values)


def simulated_device(tick: Tick) -> list[Measure]:
    """Measure 8: the error on a device that works asynchronously and whose truth is known."""
    found = child({"do": "simulated", "framework": "fake", "kernels": list(KERNELS)}, tick)
    worst = max(abs(one["error"]) for one in found)
    return [
        Measure(
            8, "error on a simulated asynchronous device", worst, worst, "<= 0.5 %", worst <= 0.005, len(found),
            "share", "without a wait -80 %, a wait each step +1 %", raw=tuple(found),
        )
    ]  # fmt: skip


def late_changes(cases: int, tick: Tick) -> list[Measure]:
    """Measure 11: a graph compiled, or memory reserved, within the measured part."""
    found = child({"do": "late_changes", "framework": "fake", "cases": cases}, tick)
    there = [one["seen"] for one in found if one["there"]]
    alarms = sum(one["seen"] for one in found if not one["there"])
    share = sum(there) / len(there)
    return [
        Measure(
            11, "late recompile or allocation flagged", share, lower_bound(sum(there), len(there)), "100 %",
            share == 1.0 and alarms == 0, len(there), "share", "none", f"{alarms} false alarms", raw=tuple(found),
        )
    ]  # fmt: skip
