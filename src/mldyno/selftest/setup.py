"""Shared by the tasks of a device's contract: where they run, kernels of known length, the judgement of rows."""

from __future__ import annotations

import gc
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from mldyno.frameworks import Framework, Kernel, Program, Unsupported
from mldyno.frameworks.program import Repeated
from mldyno.records import Case
from mldyno.selftest.measures import Measure, Row
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.worker.checks import failure
from mldyno.worker.session import CaseSession, open_case

SMALLEST_SIZE, LARGEST_SIZE = 128, 2048  # of the matrices whose matmuls keep the device busy
SHORTEST_BUSY_NS = 100_000  # of a matmul: more than its launch takes
CHAIN_NS = 2_000_000  # length of a chain of matmuls
BATCHES, LONG_STEP_NS, FEWEST_STEPS = (256, 2048, 16384), 500_000, 40  # of the work that is waited for
LONG_CHAIN_NS = 20_000_000  # length of a chain that has to be waited for
ROUNDS = 48
WARM_UP_S = 1.0


def plainest_case(framework: str, device: str) -> Case:
    """Return the plainest case of a framework on a device; its processes have the environment of this case."""
    return Case("mlp", framework=framework, device=device, mode="infer", batch=2)


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
        return plainest_case(self.framework.name, self.device)

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
            if status != "unsupported":
                traceback.print_exc()  # for who mends it from afar
        return opened, {"status": status, "reason": reason, "error": error}

    def allocate(self, size: int) -> tuple[str, str]:
        """Request memory of the device in one piece; return status and reason."""
        try:
            self.framework.allocate(self.case, size)
        except Exception as error:
            return failure(self.framework.name, error)
        return "ok", ""

    def product(self, size: int) -> Kernel:
        """Return a matmul; a framework that has none runs a step of the workload `matmul`."""
        try:
            return self.framework.matmul(self.case, size)
        except Unsupported:
            program = self.open(workload="matmul", batch=size).program
            return Repeated(partial(program.run, 1), program.synchronize, 2.0 * size**3)

    def compute(self) -> None:
        """Run a matmul to see that the device works."""
        product = self.product(SMALLEST_SIZE)
        product.run(1)
        product.synchronize()

    def chain(self, length: int) -> tuple[Kernel, int]:
        """Return a matmul, and how many of them take `length` ns."""
        size, each = busy_product(self)
        return self.product(size), math.ceil(length / each)

    def long_steps(self, length: int) -> tuple[Program, int]:
        """Return `mlp` with a batch whose step is longer than a launch, and how many steps take `length` ns."""
        for batch in BATCHES:
            program = self.open(batch=batch).program
            blocks = Blocks(program, clock.now)
            blocks.time(2)
            each = max(1, min(blocks.time(1) for _ in range(3)))
            if each >= LONG_STEP_NS:
                break
        return program, max(FEWEST_STEPS, math.ceil(length / each))

    def lacking(self, ability: str) -> Row:
        """Return the row of a task that a framework can't carry out, which is not held against the device."""
        return {"lacks": f"{self.framework.name} {ability}"}

    @property
    def allocates(self) -> bool:
        """Return whether its framework can allocate memory by itself."""
        return type(self.framework).allocate is not Framework.allocate


def tidy() -> None:
    """Free what earlier cases took: each is frozen while it is measured."""
    gc.unfreeze()
    gc.collect()


@cache
def busy_product(setup: Setup) -> tuple[int, int]:
    """Return the size of a matmul that keeps the device busy, and its time in ns."""
    size = SMALLEST_SIZE
    while True:
        blocks = Blocks(setup.product(size), clock.now)
        blocks.time(8)
        shortest = min(blocks.time(8) for _ in range(3)) // 8
        if shortest >= SHORTEST_BUSY_NS or size >= LARGEST_SIZE:
            return size, max(1, shortest)
        size *= 2


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
NOT_TRIED = "not tried"  # how the failure of a task begins that had no chance


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
    nothing: Judged = NOTHING  # without a row

    def measure(self, result: TaskResult, device: str) -> Measure:
        """Return the measure: missed if the task failed, not judged if there was no time for it.

        A task that the framework can't carry out counts as met, with the reason.
        """
        rows = result.rows
        lacks = next((row["lacks"] for row in rows if "lacks" in row), None)
        judged = Judged(0.0, True, lacks, n=0) if lacks else self.judge(rows, device) if rows else self.nothing
        note = judged.note if judged.ok is not False or self.promised else f"not as expected: {judged.note}"
        n = len(result.rows) if judged.n is None else judged.n
        failed = None if result.failure.startswith(NOT_TRIED) else False
        return Measure(
            self.id, self.name, judged.value, judged.bound, judged.target or self.target,
            failed if result.failure else judged.ok, n, self.unit, self.peers, result.failure or note,
            raw=tuple(result.rows), failure=result.failure,
        )  # fmt: skip


TRIALS: dict[str, Trial] = {}


def judges(run: Task, id: int, name: str, target: str, **options: Any) -> Callable[[Judge], Judge]:
    """Register a function that judges the rows of a task, as the trial with the name of the task."""

    def register(judge: Judge) -> Judge:
        TRIALS[run.__name__] = Trial(run, id, name, target, judge, **options)
        return judge

    return register
