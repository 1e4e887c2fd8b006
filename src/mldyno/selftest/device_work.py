"""What the tasks of a device's contract have in common: where they are carried out, and work that keeps it busy."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, replace
from typing import Any

from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.records import Case
from mldyno.selftest.in_child import Repeated
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.worker.session import CaseSession, open_case

SMALLEST_SIZE, LARGEST_SIZE = 128, 2048  # of the matrices whose matmuls keep the device busy
BUSY_NS = 100_000  # that a matmul should take, to be more than its launch
CHAIN_NS = 2_000_000  # of a chain of matmuls
LONG_CHAIN_NS = 20_000_000  # of one that has to be waited for


@dataclass(frozen=True)
class Wish:
    """Where the contract is carried out, and how thoroughly."""

    framework: Framework
    device: str
    comparisons: int

    @property
    def case(self) -> Case:
        """The plainest case there."""
        return Case("mlp", framework=self.framework.name, device=self.device, mode="infer", batch=2)

    def check(self) -> None:
        """Raise Unsupported where the device is gone: a task must not be carried out elsewhere."""
        names = [device.name for device in self.framework.devices()]
        if self.device not in names:
            raise Unsupported(f"no device '{self.device}' here any more; {self.framework.name} sees {', '.join(names)}")

    def open(self, **axes: Any) -> CaseSession:
        """A case of this kind, built where those before it have left room."""
        tidy()
        return open_case(replace(self.case, **axes))


def tidy() -> None:
    """Give back what earlier cases took: each was frozen when it was measured, as if it were the only one."""
    gc.unfreeze()
    gc.collect()


def quiet(step: float) -> None:
    """Nobody listens."""


def busy_product(wish: Wish) -> tuple[int, int]:
    """The size of a product that keeps the device busy, and what it takes in ns."""
    size = SMALLEST_SIZE
    while True:
        blocks = Blocks(wish.framework.matmul(wish.case, size), clock.now)
        blocks.time(8)
        shortest = min(blocks.time(8) for _ in range(3)) // 8
        if shortest >= BUSY_NS or size >= LARGEST_SIZE:
            return size, max(1, shortest)
        size *= 2


def chain(wish: Wish, length: int) -> tuple[Kernel, int]:
    """A product, and how many of it take so many ns."""
    size, each = busy_product(wish)
    return wish.framework.matmul(wish.case, size), math.ceil(length / each)


def fitted(steps: Repeated) -> Blocks:
    """Blocks of such steps, long enough to hide clock and latency."""
    blocks = Blocks(steps, clock.now, asynchronous=True)
    blocks.time(2)
    blocks.fit(min(blocks.time(1) for _ in range(3)))
    return blocks
