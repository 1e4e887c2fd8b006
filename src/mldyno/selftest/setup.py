"""What the tasks of a device's contract share: where they run, kernels of known length, and how rows are judged."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.records import Case
from mldyno.selftest.measures import Measure, Row
from mldyno.selftest.on_machine import Repeated
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.worker.checks import failure
from mldyno.worker.session import CaseSession, open_case

SMALLEST_SIZE, LARGEST_SIZE = 128, 2048  # of the matrices whose matmuls keep the device busy
SHORTEST_BUSY_NS = 100_000  # of a matmul: more than its launch takes
CHAIN_NS = 2_000_000  # length of a chain of matmuls
LONG_CHAIN_NS = 20_000_000  # length of a chain that has to be waited for
ROUNDS = 48
WARM_UP_S = 1.0


@dataclass(frozen=True)
class Setup:
    """Where a task runs, and how many comparisons it makes."""

    framework: Framework
    device: str
    comparisons: int
    detail: str = ""  # the precision that the task is about, if any

    @property
    def case(self) -> Case:
        """The plainest case of this framework on this device."""
        return Case("mlp", framework=self.framework.name, device=self.device, mode="infer", batch=2)

    def check(self) -> None:
        """Raise Unsupported if the device is gone: a task must not run on another one."""
        names = [device.name for device in self.framework.devices()]
        if self.device not in names:
            raise Unsupported(f"no device '{self.device}' here any more; {self.framework.name} sees {', '.join(names)}")

    def open(self, **axes: Any) -> CaseSession:
        """Free what earlier cases took, and open the case with these axes."""
        tidy()
        return open_case(replace(self.case, **axes))

    def measure(self, warm_up_s: float, turn_s: float, **axes: Any) -> tuple[CaseSession | None, Row]:
        """Measure a case from its first step to its checks; return it, if it could be opened, and the outcome."""
        status, reason, error, opened = "ok", "", None, None
        try:
            opened = self.open(**axes)
            opened.warm_up(warm_up_s)
            opened.turn(turn_s)
            error = opened.close().checks.error
        except Exception as trouble:
            status, reason = failure(self.framework.name, trouble)
        return opened, {"status": status, "reason": reason, "error": error}

    def allocate(self, size: int) -> tuple[str, str]:
        """Request memory of the device in one piece; return status and reason."""
        try:
            self.framework.allocate(self.case, size)
        except Exception as error:
            return failure(self.framework.name, error)
        return "ok", ""

    def compute(self) -> None:
        """Run a matmul to see that the device works."""
        product = self.framework.matmul(self.case, SMALLEST_SIZE)
        product.run(1)
        product.synchronize()


def tidy() -> None:
    """Free what earlier cases took: each is frozen while it is measured."""
    gc.unfreeze()
    gc.collect()


def busy_product(setup: Setup) -> tuple[int, int]:
    """Return the size of a matmul that keeps the device busy, and its time in ns."""
    size = SMALLEST_SIZE
    while True:
        blocks = Blocks(setup.framework.matmul(setup.case, size), clock.now)
        blocks.time(8)
        shortest = min(blocks.time(8) for _ in range(3)) // 8
        if shortest >= SHORTEST_BUSY_NS or size >= LARGEST_SIZE:
            return size, max(1, shortest)
        size *= 2


def chain(setup: Setup, length: int) -> tuple[Kernel, int]:
    """Return a matmul, and how many of them take `length` ns."""
    size, each = busy_product(setup)
    return setup.framework.matmul(setup.case, size), math.ceil(length / each)


def fitted(steps: Repeated) -> Blocks:
    """Return blocks of these steps that are long enough to hide clock and latency."""
    blocks = Blocks(steps, clock.now, asynchronous=True)
    blocks.time(2)
    blocks.fit(min(blocks.time(1) for _ in range(3)))
    return blocks


@dataclass
class TaskResult:
    """The rows of a task, and why it failed, if it did."""

    rows: list[Row] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Judged:
    """The judgement of the rows of a task."""

    value: float
    ok: bool | None
    note: str = ""
    bound: float | None = None
    n: int | None = None  # number of trials, if not that of the rows
    target: str = ""  # the target, if it depends on the kind of device


NOTHING = Judged(0.0, False, "nothing was measured", n=0)


Task = Callable[[Setup], Iterator[Row]]
Judge = Callable[[Sequence[Row], str], Judged]


@dataclass(frozen=True)
class Trial:
    """One measure of a device: its task there, its target, and how the rows of the task are judged."""

    run: Task
    id: int
    name: str
    target: str
    judge: Judge
    unit: str = "share"
    promised: bool = True  # whether mldyno promises it; else it is only expected of the device
    peers: str = ""

    def measure(self, result: TaskResult, judged: Judged) -> Measure:
        """Return the measure; a task that failed is missed."""
        note = judged.note if judged.ok is not False or self.promised else f"not as expected: {judged.note}"
        n = len(result.rows) if judged.n is None else judged.n
        return Measure(
            self.id, self.name, judged.value, judged.bound, judged.target or self.target,
            False if result.failure else judged.ok, n, self.unit, self.peers, result.failure or note,
            raw=tuple(result.rows),
        )  # fmt: skip


TRIALS: dict[str, Trial] = {}


def judges(run: Task, id: int, name: str, target: str, **options: Any) -> Callable[[Judge], Judge]:
    """Register a function that judges the rows of a task, as the trial with the name of the task."""

    def register(judge: Judge) -> Judge:
        TRIALS[run.__name__] = Trial(run, id, name, target, judge, **options)
        return judge

    return register
