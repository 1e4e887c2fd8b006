"""The contract of a device, carried out in a process of its own: what a framework must do there, one task at a time.

A worker carries out one of `TASKS` after the other, and passes on what it yields, row by row. A device may end the
process at any time; the parent goes on with the task behind the one that did. After an error that leaves the device
unusable (`still_fit`) it starts a new process.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from mldyno import plugins
from mldyno.analysis.rounds import log_ratios
from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.records import Case
from mldyno.selftest.in_child import Repeated
from mldyno.stats.intervals import paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, rounds
from mldyno.worker.checks import failure
from mldyno.worker.session import CaseSession, open_case

SMALLEST_SIZE, LARGEST_SIZE = 128, 2048  # of the matrices whose matmuls keep the device busy
BUSY_NS = 100_000  # that a matmul should take, to be more than its launch
CHAIN_NS = 2_000_000  # of a chain of matmuls
LONG_CHAIN_NS = 20_000_000  # of one that has to be waited for
ROUNDS = 48
WAITS = 10
KNOWN_SIZE = 1024  # of the matrices whose memory must be counted
UNKNOWN_MEMORY = 1 << 43  # B: more than half of what is asked for where a device does not say what it has
WARM_UP_S, TURN_S = 1.0, 0.3
Row = dict[str, Any]


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
    blocks = Blocks(steps, clock.now)
    blocks.time(2)
    blocks.fit(min(blocks.time(1) for _ in range(3)))
    return blocks


def device_facts(wish: Wish, detail: str) -> Iterator[Row]:
    """What the framework calls it, and what it says of its memory."""
    known = {device.name: device for device in wish.framework.devices()}
    meant = known.get(wish.device)
    yield {"found": meant is not None, "title": meant and meant.title, "memory": meant and meant.memory,
           "sees": [*known]}  # fmt: skip


def memory(wish: Wish, detail: str) -> Iterator[Row]:
    """What the device's counter of its peak makes of three matrices; those before them set the peak."""
    program = wish.open().program
    held = [wish.framework.matmul(wish.case, KNOWN_SIZE)]
    before = program.device_peak()
    held.append(wish.framework.matmul(wish.case, KNOWN_SIZE))
    after = program.device_peak()
    counted = None if before is None or after is None else after - before
    yield {"known": 3 * 4 * KNOWN_SIZE**2, "counted": counted, "by": program.facts.get("device_peak_by")}


def overflow(wish: Wish, detail: str) -> Iterator[Row]:
    """What comes of asking for twice the memory there is; and whether the device computes after that."""
    sizes = {device.name: device.memory for device in wish.framework.devices()}
    asked = 2 * (sizes[wish.device] or UNKNOWN_MEMORY)
    status, reason = "ok", "so much was given"
    try:
        wish.framework.allocate(wish.case, asked)
    except Exception as error:
        status, reason = failure(wish.framework.name, error)
    yield {"asked": asked, "status": status, "reason": reason}
    product = wish.framework.matmul(wish.case, SMALLEST_SIZE)
    product.run(1)
    product.synchronize()
    yield {"computes": True}


def work(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s of one, two and four times the same work, round by round."""
    product, count = chain(wish, CHAIN_NS)
    arms = [fitted(Repeated(product, times * count)) for times in (1, 2, 4)]
    times = rounds(arms, 0.0, ROUNDS, random.Random(1), lambda values, now: None)
    for single, double, fourfold in zip(*times, strict=True):
        yield {"one": single, "two": double, "four": fourfold}


def wait(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s until work was issued, until it was waited for, and until the host had a result that comes after it.

    A step whose output is copied back can't return before all that was issued earlier is done.
    """
    product, count = chain(wish, LONG_CHAIN_NS)
    reader = wish.open(placement="roundtrip", batch=1).program
    reader.run(3)
    for _ in range(WAITS):
        began = clock.now()
        reader.run(1)
        alone = clock.now() - began
        began = clock.now()
        product.run(count)
        issued = clock.now() - began
        product.synchronize()
        waited = clock.now() - began
        reader.run(1)
        read = clock.now() - began
        yield {"issued": issued / 1e9, "waited": waited / 1e9, "read": (read - alone) / 1e9}


def case(wish: Wish, detail: str) -> Iterator[Row]:
    """A case in one precision, in both modes, from its first step to its checks, as a worker does it."""
    for mode in ("infer", "train"):
        status, reason, error, opened = "ok", "", None, None
        try:
            opened = wish.open(mode=mode, precision=detail, batch=16)
            opened.warm_up(WARM_UP_S, quiet)
            opened.turn(TURN_S, None, quiet)
            error = opened.close().checks.error
        except Exception as trouble:
            status, reason = failure(wish.framework.name, trouble)
        facts = opened.facts if opened else {}
        observed = {name: facts.get(name) for name in ("device_seen", "events_share", "drained_share")}
        yield {"precision": detail, "mode": mode, "status": status, "reason": reason, "error": error, **observed}


def identical(wish: Wish, detail: str) -> Iterator[Row]:
    """Identical code against itself, built anew for each comparison: log-ratio and half-width."""
    size, each = busy_product(wish)
    chance, count = random.Random(2), math.ceil(CHAIN_NS / each)
    for _ in range(wish.comparisons):
        arms = [fitted(Repeated(wish.framework.matmul(wish.case, size), count)) for _ in range(2)]
        ours, theirs = rounds(arms, 0.0, ROUNDS, chance, lambda values, now: None)
        centre, width = paired(log_ratios(dict(enumerate(theirs)), dict(enumerate(ours))))
        yield {"log_ratio": centre, "half_width": width}


def placements(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s of a step whose batch is there already, and of one whose batch is copied to it, round by round."""
    cases = [wish.open(placement=placement, batch=128) for placement in ("device", "host")]
    for opened in cases:
        opened.warm_up(WARM_UP_S, quiet)
    times = rounds([opened.blocks for opened in cases], 0.0, ROUNDS, random.Random(3), lambda values, now: None)
    for there, copied in zip(*times, strict=True):
        yield {"device": there, "host": copied}


def _on_device(task: Callable[[Wish, str], Iterator[Row]]) -> Callable[..., Iterator[Row]]:
    """The task, with its framework started and its device there."""

    def carry_out(framework: str, device: str, comparisons: int, detail: str) -> Iterator[Row]:
        wish = _wish(framework, device, comparisons)
        wish.framework.start()
        tidy()
        if task is not device_facts:  # that one looks for it
            wish.check()
        yield from task(wish, detail)

    return carry_out


TASKS: dict[str, Callable[..., Iterator[Row]]] = {
    name: _on_device(task) for name, task in (
        ("device", device_facts), ("memory", memory), ("overflow", overflow), ("work", work), ("wait", wait),
        ("case", case), ("identical", identical), ("placements", placements),
    )
}  # fmt: skip


def _wish(framework: str, device: str, comparisons: int) -> Wish:
    return Wish(plugins.framework(framework), device, comparisons)


def still_fit(framework: str, device: str, comparisons: int, detail: str) -> bool:
    """Whether the device still computes; some errors leave it unusable for the rest of the process."""
    wish = _wish(framework, device, comparisons)
    try:
        product = wish.framework.matmul(wish.case, SMALLEST_SIZE)
        product.run(1)
        product.synchronize()
    except Exception:
        return False
    return True
