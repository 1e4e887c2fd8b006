"""The bare loop: what everybody writes first. Warm up, then time every step; the median."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.peers import steps
from bench.peers.tools import Answer, Call, module, read_answer, say_answer

WARM_UP, TIMED = 0.5, 2.0  # s
QUICK = 0.2  # s of each in a quick run


@dataclass(frozen=True)
class Bare:
    """The loop around the step that all tools share."""

    name: str = "bare loop"
    environment: str = "torch"
    steps: tuple[str, ...] = tuple(steps.WORKLOADS)
    reference: str = "bare"
    settings: str = f"{WARM_UP:g} s of warm-up, then `time.perf_counter` around each step for {TIMED:g} s; the median"

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """This file, in the environment of torch alone."""
        return Call(module("bare", step, *(("quick",) if quick else ())))

    def read(self, output: str) -> Answer:
        """As printed."""
        return read_answer(output)


def loop(step: steps.Step, warm_up: float = WARM_UP, timed: float = TIMED) -> float:
    """The median time in s of a step; on a CPU a call has ended when it returns, so nothing is waited for."""
    clock = time.perf_counter
    ends = clock() + warm_up
    while clock() < ends:
        step()
    times: list[float] = []
    ends = clock() + timed
    while True:
        began = clock()
        step()
        ended = clock()
        times.append(ended - began)
        if ended > ends:
            return median(times)


if __name__ == "__main__":
    say_answer(loop(steps.build(sys.argv[1]), *((QUICK, QUICK) if "quick" in sys.argv else ())))
