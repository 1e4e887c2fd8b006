"""The measures of this machine: real steps, timed by mldyno's own harness in fresh processes.

A worker carries out one of `TASKS` and yields rows; a function with the name of the measure judges them.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from mldyno import plugins
from mldyno.analysis.comparisons import verdict
from mldyno.analysis.estimates import Process, headline, log_ratios, uncontended, undelayed, usual_for
from mldyno.frameworks import Framework, Kernel
from mldyno.frameworks.program import Repeated
from mldyno.records import Case
from mldyno.selftest.measures import Measure, Row, lower_bound, meets, upper_bound
from mldyno.stats.intervals import batches, mean, median, paired, spread
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, BlocksOfOneThread, rounds, time_blocks
from mldyno.worker.session import STEPS_FIRST_NS, CaseSession, ReferenceKernel, Reporter, open_case

CASE = Case("mlp", mode="infer", threads=1)
MATMUL_SIZE = 16  # of the matrices of a short matmul, some 2 us
SHORT_STEP_MATMULS = 13  # short matmuls in a step of some 30 us
MATMULS = (500, 515)  # short ones in a step, and in one that is 3 % longer
ROUNDS = 384  # of one comparison
SIMULATED_KERNELS_S = (0.2e-3, 1e-3, 20e-3, 1.0)


def repeated(product: Kernel, count: int) -> Repeated:
    """Return a step made of `count` matmuls."""
    return Repeated(partial(product.run, count), product.synchronize, count * product.work)


def _matmuls(framework: Framework, count: int) -> Repeated:
    return repeated(framework.matmul(CASE, MATMUL_SIZE), count)


def _short_blocks(framework: Framework) -> Blocks:
    blocks = Blocks(_matmuls(framework, SHORT_STEP_MATMULS), clock.now)
    blocks.time(100)
    blocks.fit(min(blocks.time(10) for _ in range(10)) / 10)
    return blocks


# -- tasks ---------------------------------------------------------------------------------------
def overhead(framework: Framework, pairs: int) -> Iterator[Row]:
    """Yield the CPU time of steps in the harness's loop over that in a bare loop, in alternating order."""
    blocks = _short_blocks(framework)
    steps = 20 * blocks.size

    def bare() -> None:
        blocks.program.run(steps)

    def between(values: list[float], now: int) -> int:
        report(values, now)
        return now + STEPS_FIRST_NS

    def ours() -> None:
        time_blocks(blocks, 0.0, steps, between)

    report = Reporter(clock.now, lambda step: None)
    for number in range(pairs):
        spent = {}
        for loop in (bare, ours) if number % 2 else (ours, bare):
            began = time.process_time()
            loop()
            spent[loop] = time.process_time() - began
        yield {"ratio": spent[ours] / spent[bare]}


def comparisons(framework: Framework, second: int, count: int) -> Iterator[Row]:
    """Compare steps of 500 matmuls with steps of `second`, rebuilt each time: log-ratio and half-width."""
    chance = random.Random(MATMULS[0] * 1000 + second)
    for _ in range(count):
        began = time.perf_counter()
        steps = [_matmuls(framework, matmuls) for matmuls in (MATMULS[0], second)]
        for step in steps:
            step.run(3)
        arms = [BlocksOfOneThread(step, clock.now) for step in steps]
        times = rounds(arms, 0.0, ROUNDS, chance, lambda values, now: None)
        ours, theirs = (undelayed(of_arm, arm.delays) for of_arm, arm in zip(times, arms, strict=True))
        centre, width = paired(log_ratios(theirs, ours))
        yield {"log_ratio": centre, "half_width": width, "seconds": time.perf_counter() - began}


def estimate(framework: Framework, seconds: float) -> Iterator[Row]:
    """Yield one estimate of a short step in this fresh process: median, uncontended time, ratio to the kernel."""
    began = time.perf_counter()
    blocks = _short_blocks(framework)
    kernel = ReferenceKernel(framework, CASE, clock.now, trials=10)
    values, _ = time_blocks(blocks, seconds, None, lambda values, now: kernel.run() + STEPS_FIRST_NS)
    around = batches(values, len(kernel.times))
    ratios = [median(near) / reference for near, reference in zip(around, kernel.times, strict=True)]
    yield {"median": median(values), "uncontended": uncontended(sorted(values)), "per_reference": median(ratios),
           "reference": median(kernel.times), "when": time.time(), "seconds": time.perf_counter() - began}  # fmt: skip


def _fake_case(
    framework: Framework, rule: dict[str, float], warm_up_s: float, turn_s: float, device: str = "cpu"
) -> CaseSession:
    """Measure a case of the fake framework, whose times a rule gives."""
    os.environ["MLDYNO_FAKE"] = json.dumps([rule])
    case = open_case(Case("mlp", framework=framework.name, device=device, mode="infer", batch=8))
    case.warm_up(warm_up_s)
    case.turn(turn_s)
    return case


def simulated(framework: Framework) -> Iterator[Row]:
    """Yield the relative error on an asynchronous device whose kernels take a known time."""
    for kernel in SIMULATED_KERNELS_S:
        rule = {"step": kernel, "issue": min(5e-5, kernel / 4), "noise": 0.01}
        case = _fake_case(framework, rule, max(5.0, 40 * kernel), max(2.0, 100 * kernel), "gpu")
        yield {"error": median(case.values) / kernel - 1}


def late_changes(framework: Framework, cases: int) -> Iterator[Row]:
    """Yield whether a compilation within the measured part is noticed; every other case has none."""
    chance = random.Random(cases)
    for number in range(cases):
        at = chance.randrange(3000, 5000) if number % 2 == 0 else 1 << 40
        case = _fake_case(framework, {"step": 1e-3, "compile": at}, 2.0, 6.0)
        yield {"there": number % 2 == 0, "seen": case.late_changes > 0}


def _with_framework(task: Callable[..., Iterator[Row]]) -> Callable[..., Iterator[Row]]:
    """Return the task, with its framework started on one thread."""

    def carry_out(name: str, **arguments: Any) -> Iterator[Row]:
        framework = plugins.framework(name)
        framework.start()
        framework.limit_threads(1)
        yield from task(framework, **arguments)

    return carry_out


TASKS = {task.__name__: _with_framework(task) for task in (overhead, comparisons, estimate, simulated, late_changes)}


# -- judgements ----------------------------------------------------------------------------------
def verdicts_of(rows: Sequence[Row]) -> list[str]:
    """Return the verdict of each comparison."""
    edges = [(row["log_ratio"] - row["half_width"], row["log_ratio"] + row["half_width"]) for row in rows]
    return [verdict(math.exp(low), math.exp(high)) for low, high in edges]


def harness_overhead(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measure 1: the overhead of the harness's loop."""
    centre, width = paired([math.log(row["ratio"]) for row in rows])
    value = math.exp(centre)
    peers = "optimum-benchmark's idiom 1.156, torch Timer pair 1.071, list per step 1.017"
    yield Measure(1, "CPU time of the harness's loop / a bare loop, 30 us step", value, math.exp(centre + width),
                  "<= 1.005", value <= 1.005, len(rows), peers=peers, raw=tuple(rows))  # fmt: skip


def false_verdicts(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measure 2: identical code that is called different."""
    verdicts, n = verdicts_of(rows), len(rows)
    wrong, note = verdicts.count("faster") + verdicts.count("slower"), f"equivalent in {verdicts.count('equivalent')}"
    yield Measure(2, "identical code called faster or slower", wrong / n, upper_bound(wrong, n), "<= 5 %",
                  meets(wrong, n, most=0.05), n, "share", "17-67 %", note, raw=tuple(rows))  # fmt: skip


def power(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measures 3 and 4: how often a true 3 % is found, and the time that takes."""
    verdicts, n, seconds = verdicts_of(rows), len(rows), [row["seconds"] for row in rows]
    hits, note = verdicts.count("faster"), f"called slower in {verdicts.count('slower')}"
    yield Measure(3, "a true 3 % found (500 against 515 products)", hits / n, lower_bound(hits, n), ">= 95 %",
                  meets(hits, n, least=0.95), n, "share", "1-87 %", note, raw=tuple(rows))  # fmt: skip
    yield Measure(4, "time to that verdict", median(seconds), max(seconds), "<= 1 s", median(seconds) <= 1.0, n, "s",
                  "pyperf 65-85 s for each side")  # fmt: skip


def reproducibility(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measures 6, 7 and 13: differences between fresh processes, what the reference kernel explains, coverage."""
    from mldyno.selftest.on_processes import coverage, judged  # which needs the runner; a worker does not

    plain, scaled = ([row[name] for row in rows] for name in ("median", "per_reference"))
    fresh = [
        Process("", str(number), (), None, row["when"], math.log(row["median"]), math.log(row["reference"]))
        for number, row in enumerate(rows)
    ]
    headlines = [headline([each], usual_for(each, [other for other in fresh if other != each]))[0] for each in fresh]
    ratio, longest = max(headlines) / min(headlines), max(row["seconds"] for row in rows)
    yield Measure(6, f"largest / smallest headline of {len(rows)} fresh processes", ratio, None, "<= 1.05 in <= 2 s",
                  ratio <= 1.05 and longest <= 2.0, len(rows), "1",
                  "torch blocked 3.83, adaptive 2.37, pyperf 1.49 in 70 s",
                  f"of medians {max(plain) / min(plain):.3f}; {longest:.1f} s at most", raw=tuple(rows))  # fmt: skip
    plain_variation, scaled_variation = (spread(values) / mean(values) for values in (plain, scaled))
    gain = scaled_variation / plain_variation
    yield Measure(7, "variation between processes over the reference kernel / in seconds", gain, None, "<= 0.5",
                  gain <= 0.5, len(rows), "1", "none has one",
                  f"{scaled_variation:.2%} against {plain_variation:.2%}")  # fmt: skip
    yield coverage(13, list(judged(fresh, (1,))))


def simulated_device(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measure 8: the error on a simulated asynchronous device."""
    worst = max(abs(row["error"]) for row in rows)
    yield Measure(8, "error on a simulated asynchronous device", worst, worst, "<= 0.5 %", worst <= 0.005, len(rows),
                  "share", "without a wait -80 %, a wait each step +1 %", raw=tuple(rows))  # fmt: skip


def late_changes_flagged(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measure 11: compilations and allocations within the measured part that are flagged."""
    there = [row["seen"] for row in rows if row["there"]]
    alarms, hits = sum(row["seen"] for row in rows if not row["there"]), sum(there)
    yield Measure(
        11, "late recompile or allocation flagged", hits / len(there), lower_bound(hits, len(there)), "100 %",
        hits == len(there) and alarms == 0, len(there), "share", "none", f"{alarms} false alarms", raw=tuple(rows),
    )  # fmt: skip
