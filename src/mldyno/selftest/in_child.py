"""The part of the self-test that needs a process of its own: real steps, timed by the product's own harness.

Run as `python -m mldyno.selftest.in_child JSON`; prints one JSON object a line.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from mldyno import plugins
from mldyno.analysis.estimates import uncontended
from mldyno.frameworks import Framework, Kernel
from mldyno.records import Case
from mldyno.stats.intervals import batches, median, paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, stretch
from mldyno.timing.rounds import rounds
from mldyno.worker.session import PIECE, REFERENCE_BLOCKS, REFERENCE_SIZE, Reporter, open_case

CASE = Case("mlp", mode="infer", threads=1)
TINY = 16  # size of the matrices of one small product, some 2 us
SHORT = 13  # such products make a step of some 30 us


class Repeated:
    """A step made of so many small products."""

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


def overhead(framework: Framework, pairs: int) -> Iterator[dict[str, Any]]:
    """CPU time of steps in the harness's loop over that of the same steps in a bare loop, in turn."""
    step = Repeated(framework.matmul(CASE, TINY), SHORT)
    blocks = Blocks(step, clock.now)
    blocks.time(100)
    blocks.fit(min(blocks.time(10) for _ in range(10)) / 10)
    steps = 20 * blocks.size

    def bare() -> None:
        step.run(steps)

    def between(values: list[float], now: int) -> int:
        report(values, now)
        return now + PIECE

    def ours() -> None:
        stretch(blocks, 0.0, steps, between)

    report = Reporter(clock.now, lambda step: None)
    for number in range(pairs):
        spent = {}
        for loop in (bare, ours) if number % 2 else (ours, bare):
            began = time.process_time()
            loop()
            spent[loop] = time.process_time() - began
        yield {"ratio": spent[ours] / spent[bare]}


def verdicts(framework: Framework, first: int, second: int, comparisons: int, pairs: int) -> Iterator[dict[str, Any]]:
    """Steps of `first` products against steps of `second`, built anew for each comparison: log-ratio and half-width."""
    chance = random.Random(first * 1000 + second)
    for _ in range(comparisons):
        began = time.perf_counter()
        arms = [Blocks(Repeated(framework.matmul(CASE, TINY), count), clock.now) for count in (first, second)]
        for arm in arms:
            arm.time(3)
        found = rounds(arms, 0.0, pairs, chance, lambda values, now: None)
        centre, width = paired(log_ratios(*found))
        yield {"log_ratio": centre, "half_width": width, "seconds": time.perf_counter() - began}


def log_ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """How much slower the second is, round by round, as logarithms."""
    return [math.log(b / a) for a, b in zip(ours, theirs, strict=True)]


def estimate(framework: Framework, seconds: float) -> Iterator[dict[str, Any]]:
    """One estimate of a short step in this fresh process: its median, its uncontended time, in reference kernels."""
    began = time.perf_counter()
    blocks = Blocks(Repeated(framework.matmul(CASE, TINY), SHORT), clock.now)
    blocks.time(100)
    blocks.fit(min(blocks.time(10) for _ in range(10)) / 10)
    stick = Blocks(framework.matmul(CASE, REFERENCE_SIZE), clock.now)
    stick.time(20)
    stick.fit(min(stick.time(10) for _ in range(10)) / 10)
    references: list[float] = []

    def between(values: list[float], now: int) -> int:
        times, later = stick.run(REFERENCE_BLOCKS, sys.maxsize)
        references.append(median(times) / stick.size / 1e9)
        return later + PIECE

    values, _ = stretch(blocks, seconds, None, between)
    ratios = [
        median(near) / reference for near, reference in zip(batches(values, len(references)), references, strict=True)
    ]
    yield {"median": median(values), "uncontended": uncontended(sorted(values)), "in_yardsticks": median(ratios),
           "seconds": time.perf_counter() - began}  # fmt: skip


def simulated(framework: Framework, kernels: list[float]) -> Iterator[dict[str, Any]]:
    """The relative error on an asynchronous device whose kernels take a known time, in s."""
    for kernel in kernels:
        rule = {"step": kernel, "issue": min(5e-5, kernel / 4), "noise": 0.01}
        os.environ["MLDYNO_FAKE"] = json.dumps([rule])
        case = open_case({"workload": "mlp", "framework": framework.name, "device": "gpu", "mode": "infer", "batch": 8})
        case.warm_up(max(5.0, 40 * kernel), lambda step: None)
        case.turn(max(2.0, 100 * kernel), None, lambda step: None)
        yield {"error": median(case.values) / kernel - 1}


def late_changes(framework: Framework, cases: int) -> Iterator[dict[str, Any]]:
    """Whether a graph that is compiled at some step of the measured part is noticed; every other case has none."""
    chance = random.Random(cases)
    for number in range(cases):
        at = chance.randrange(3000, 5000) if number % 2 == 0 else 1 << 40
        os.environ["MLDYNO_FAKE"] = json.dumps([{"step": 1e-3, "compile": at}])
        case = open_case({"workload": "mlp", "framework": framework.name, "mode": "infer", "batch": 8})
        case.warm_up(2.0, lambda step: None)
        answer = case.turn(6.0, None, lambda step: None)
        yield {"there": number % 2 == 0, "seen": answer["facts"]["late_changes"] > 0}


TASKS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "overhead": overhead, "verdicts": verdicts, "estimate": estimate, "simulated": simulated,
    "late_changes": late_changes,
}  # fmt: skip


def main() -> None:
    """Do what the argument says."""
    command = json.loads(sys.argv[1])
    task, framework = TASKS[command.pop("do")], started(command.pop("framework"))
    for found in task(framework, **command):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
