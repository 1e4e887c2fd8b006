"""The part of the self-test that needs a process of its own: real steps, timed by the product's own harness.

A worker carries out one of `TASKS`, and passes on what it yields, row by row.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from mldyno import plugins
from mldyno.analysis.estimates import log_ratios, uncontended, undelayed
from mldyno.frameworks import Framework, Kernel
from mldyno.records import Case
from mldyno.stats.intervals import batches, median, paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, BlocksOfOneThread, rounds, time_blocks
from mldyno.worker.session import STEPS_FIRST_NS, ReferenceKernel, Reporter, open_case

Row = dict[str, Any]
CASE = Case("mlp", mode="infer", threads=1)
TINY_SIZE = 16  # of the matrices of one small matmul, some 2 us
SHORT_MATMULS = 13  # such matmuls make a step of some 30 us


class Repeated:
    """A step made of so many small matmuls."""

    def __init__(self, product: Kernel, count: int) -> None:
        self.product, self.count = product, count

    def run(self, steps: int) -> None:
        """Issue steps."""
        self.product.run(steps * self.count)

    def synchronize(self) -> None:
        """Wait for them."""
        self.product.synchronize()


def started(name: str) -> Framework:
    """The framework, with one thread."""
    framework = plugins.framework(name)
    framework.start()
    framework.limit_threads(1)
    return framework


def overhead(framework: Framework, pairs: int) -> Iterator[Row]:
    """CPU time of steps in the harness's loop over that of the same steps in a bare loop, in turn."""
    step = Repeated(framework.matmul(CASE, TINY_SIZE), SHORT_MATMULS)
    blocks = Blocks(step, clock.now)
    blocks.time(100)
    blocks.fit(min(blocks.time(10) for _ in range(10)) / 10)
    steps = 20 * blocks.size

    def bare() -> None:
        step.run(steps)

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


def verdicts(framework: Framework, first: int, second: int, comparisons: int, pairs: int) -> Iterator[Row]:
    """Steps of `first` matmuls against steps of `second`, built anew for each comparison: log-ratio and half-width."""
    chance = random.Random(first * 1000 + second)
    for _ in range(comparisons):
        began = time.perf_counter()
        steps = [Repeated(framework.matmul(CASE, TINY_SIZE), count) for count in (first, second)]
        for each in steps:
            each.run(3)
        arms = [BlocksOfOneThread(each, clock.now) for each in steps]
        times = rounds(arms, 0.0, pairs, chance, lambda values, now: None)
        ours, theirs = (undelayed(of_arm, arm.delays) for of_arm, arm in zip(times, arms, strict=True))
        centre, width = paired(log_ratios(theirs, ours))
        yield {"log_ratio": centre, "half_width": width, "seconds": time.perf_counter() - began}


def estimate(framework: Framework, seconds: float) -> Iterator[Row]:
    """One estimate of a short step in this fresh process: its median, its uncontended time, in reference kernels."""
    began = time.perf_counter()
    blocks = Blocks(Repeated(framework.matmul(CASE, TINY_SIZE), SHORT_MATMULS), clock.now)
    blocks.time(100)
    blocks.fit(min(blocks.time(10) for _ in range(10)) / 10)
    kernel = ReferenceKernel(framework, CASE, clock.now, trials=10)

    def between(values: list[float], now: int) -> int:
        return kernel.run() + STEPS_FIRST_NS

    values, _ = time_blocks(blocks, seconds, None, between)
    around = batches(values, len(kernel.times))
    ratios = [median(near) / reference for near, reference in zip(around, kernel.times, strict=True)]
    yield {"median": median(values), "uncontended": uncontended(sorted(values)), "per_reference": median(ratios),
           "reference": median(kernel.times), "when": time.time(), "seconds": time.perf_counter() - began}  # fmt: skip


def simulated(framework: Framework, kernels: list[float]) -> Iterator[Row]:
    """The relative error on an asynchronous device whose kernels take a known time, in s."""
    for kernel in kernels:
        rule = {"step": kernel, "issue": min(5e-5, kernel / 4), "noise": 0.01}
        os.environ["MLDYNO_FAKE"] = json.dumps([rule])
        case = open_case(Case("mlp", framework=framework.name, device="gpu", mode="infer", batch=8))
        case.warm_up(max(5.0, 40 * kernel), lambda step: None)
        case.turn(max(2.0, 100 * kernel), None, lambda step: None)
        yield {"error": median(case.values) / kernel - 1}


def late_changes(framework: Framework, cases: int) -> Iterator[Row]:
    """Whether a graph that is compiled at some step of the measured part is noticed; every other case has none."""
    chance = random.Random(cases)
    for number in range(cases):
        at = chance.randrange(3000, 5000) if number % 2 == 0 else 1 << 40
        os.environ["MLDYNO_FAKE"] = json.dumps([{"step": 1e-3, "compile": at}])
        case = open_case(Case("mlp", framework=framework.name, mode="infer", batch=8))
        case.warm_up(2.0, lambda step: None)
        case.turn(6.0, None, lambda step: None)
        yield {"there": number % 2 == 0, "seen": case.late_changes > 0}


def _with(task: Callable[..., Iterator[Row]]) -> Callable[..., Iterator[Row]]:
    """The task, with its framework started."""
    return lambda framework, **arguments: task(started(framework), **arguments)


TASKS: dict[str, Callable[..., Iterator[Row]]] = {
    "overhead": _with(overhead), "verdicts": _with(verdicts), "estimate": _with(estimate),
    "simulated": _with(simulated), "late_changes": _with(late_changes),
}  # fmt: skip
