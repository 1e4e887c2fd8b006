"""torch.utils.benchmark: `Timer.blocked_autorange` and `Timer.adaptive_autorange`, with their defaults."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import steps
from bench.peers.tools import Answer, Call, module, read_answer, say_answer

WAYS = ("blocked_autorange", "adaptive_autorange")


@dataclass(frozen=True)
class TorchTimer:
    """One of the two ways in which a Timer chooses how often it runs."""

    way: str
    environment: str = "torch"
    steps: tuple[str, ...] = tuple(steps.WORKLOADS)
    reference: str = "bare"

    @property
    def name(self) -> str:
        """As the page calls it."""
        return f"torch {self.way}"

    @property
    def settings(self) -> str:
        """Nothing was chosen."""
        return f'`Timer("step()", globals=...).{self.way}()`, defaults; `Measurement.median`'

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """This file, in the environment of torch alone."""
        return Call(module("torch_timer", step, self.way))

    def read(self, output: str) -> Answer:
        """As printed."""
        return read_answer(output)


def measure(step: steps.Step, way: str) -> tuple[float, list[str]]:
    """The median in s that a Timer gives, and what it warns of when it is printed."""
    from torch.utils.benchmark import Timer

    found: Any = getattr(Timer("step()", globals={"step": step}), way)()
    seconds = float(found.median)
    return seconds, [line.strip() for line in str(found).splitlines() if "WARNING" in line]


if __name__ == "__main__":
    say_answer(*measure(steps.build(sys.argv[1]), sys.argv[2]))
