"""The contract of a device, carried out in a process of its own: what a framework must do there, one task at a time.

Run as `python -m mldyno.selftest.in_device_child JSON`, with the framework, the device, the tasks and how many
comparisons to make. Prints one JSON object a line: that a task has begun, what it found, that it failed, that it is
done. A device may end the process at any time; the parent goes on with the task behind the one that did. After an
error that leaves the device unusable the process ends by itself.
"""

from __future__ import annotations

import gc
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from mldyno import plugins
from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.records import Case
from mldyno.selftest.in_child import Repeated, log_ratios
from mldyno.stats.intervals import paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks
from mldyno.timing.rounds import rounds
from mldyno.worker.session import CaseSession, failure, open_case

SMALLEST, LARGEST = 128, 2048  # sizes of the matrices whose products keep the device busy
BUSY = 100_000  # ns that a product should take, to be more than its launch
CHAIN = 2_000_000  # ns of a chain of products
LONG_CHAIN = 20_000_000  # ns of one that has to be waited for
ROUNDS = 48
WAITS = 10
KNOWN = 1024  # size of the matrices whose memory must be counted
UNKNOWN_MEMORY = 1 << 43  # B: more than half of what is asked for where a device does not say what it has
WARM_UP, TURN = 1.0, 0.3  # s
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
        names = [one.name for one in self.framework.devices()]
        if self.device not in names:
            raise Unsupported(f"no device '{self.device}' here any more; {self.framework.name} sees {', '.join(names)}")

    def open(self, **axes: Any) -> CaseSession:
        """A case of this kind, built where those before it have left room."""
        tidy()
        return open_case(asdict(replace(self.case, **axes)))


def tidy() -> None:
    """Give back what earlier cases took: each was frozen when it was measured, as if it were the only one."""
    gc.unfreeze()
    gc.collect()


def quiet(step: float) -> None:
    """Nobody listens."""


def busy_product(wish: Wish) -> tuple[int, int]:
    """The size of a product that keeps the device busy, and what it takes in ns."""
    size = SMALLEST
    while True:
        blocks = Blocks(wish.framework.matmul(wish.case, size), clock.now)
        blocks.time(8)
        shortest = min(blocks.time(8) for _ in range(3)) // 8
        if shortest >= BUSY or size >= LARGEST:
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


def device(wish: Wish, detail: str) -> Iterator[Row]:
    """What the framework calls it, and what it says of its memory."""
    known = {one.name: one for one in wish.framework.devices()}
    found = known.get(wish.device)
    yield {"found": found is not None, "title": found and found.title, "memory": found and found.memory,
           "sees": [*known]}  # fmt: skip


def memory(wish: Wish, detail: str) -> Iterator[Row]:
    """What the device's counter of its peak makes of three matrices; those before them set the peak."""
    program = wish.open().program
    kept = [wish.framework.matmul(wish.case, KNOWN)]
    before = program.device_peak()
    kept.append(wish.framework.matmul(wish.case, KNOWN))
    after = program.device_peak()
    counted = None if before is None or after is None else after - before
    yield {"known": 3 * 4 * KNOWN**2, "counted": counted, "by": program.facts.get("device_peak_by")}


def overflow(wish: Wish, detail: str) -> Iterator[Row]:
    """What comes of asking for twice the memory there is; and whether the device computes after that."""
    sizes = {one.name: one.memory for one in wish.framework.devices()}
    asked = 2 * (sizes[wish.device] or UNKNOWN_MEMORY)
    status, reason = "ok", "so much was given"
    try:
        wish.framework.allocate(wish.case, asked)
    except Exception as error:
        status, reason = failure(wish.framework.name, error)
    yield {"asked": asked, "status": status, "reason": reason}
    product = wish.framework.matmul(wish.case, SMALLEST)
    product.run(1)
    product.synchronize()
    yield {"computes": True}


def work(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s of one, two and four times the same work, round by round."""
    product, count = chain(wish, CHAIN)
    arms = [fitted(Repeated(product, times * count)) for times in (1, 2, 4)]
    found = rounds(arms, 0.0, ROUNDS, random.Random(1), lambda values, now: None)
    for one, two, four in zip(*found, strict=True):
        yield {"one": one, "two": two, "four": four}


def wait(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s until work was issued, until it was waited for, and until the host had a result that comes after it.

    A step whose output is copied back can't return before all that was issued earlier is done.
    """
    product, count = chain(wish, LONG_CHAIN)
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
            opened.warm_up(WARM_UP, quiet)
            opened.turn(TURN, None, quiet)
            error = opened.close()["checks"]["error"]
        except Exception as trouble:
            status, reason = failure(wish.framework.name, trouble)
        facts = opened.facts if opened else {}
        seen = {name: facts.get(name) for name in ("device_seen", "events_share", "drained_share")}
        yield {"precision": detail, "mode": mode, "status": status, "reason": reason, "error": error, **seen}


def identical(wish: Wish, detail: str) -> Iterator[Row]:
    """Identical code against itself, built anew for each comparison: log-ratio and half-width."""
    size, each = busy_product(wish)
    chance, count = random.Random(2), math.ceil(CHAIN / each)
    for _ in range(wish.comparisons):
        arms = [fitted(Repeated(wish.framework.matmul(wish.case, size), count)) for _ in range(2)]
        ours, theirs = rounds(arms, 0.0, ROUNDS, chance, lambda values, now: None)
        centre, width = paired(log_ratios(ours, theirs))
        yield {"log_ratio": centre, "half_width": width}


def placements(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s of a step whose batch is there already, and of one whose batch is copied to it, round by round."""
    cases = [wish.open(placement=placement, batch=128) for placement in ("device", "host")]
    for one in cases:
        one.warm_up(WARM_UP, quiet)
    found = rounds([one.blocks for one in cases], 0.0, ROUNDS, random.Random(3), lambda values, now: None)
    for there, copied in zip(*found, strict=True):
        yield {"device": there, "host": copied}


TASKS: dict[str, Callable[[Wish, str], Iterator[Row]]] = {
    "device": device, "memory": memory, "overflow": overflow, "work": work, "wait": wait, "case": case,
    "identical": identical, "placements": placements,
}  # fmt: skip


def computes(wish: Wish) -> bool:
    """Whether the device still does; some errors leave it unusable for the rest of the process."""
    try:
        product = wish.framework.matmul(wish.case, SMALLEST)
        product.run(1)
        product.synchronize()
    except Exception:
        return False
    return True


def tell(task: str, what: str, row: Row) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps({"task": task, "is": what, "row": row}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the argument says."""
    command = json.loads(sys.argv[1])
    framework = plugins.framework(command["framework"])
    framework.start()
    wish = Wish(framework, command["device"], command["comparisons"])
    for task in command["tasks"]:
        name, _, detail = task.partition(" ")
        tell(task, "begun", {})
        tidy()
        failed = False
        try:
            if name != "device":  # that one looks for it
                wish.check()
            for row in TASKS[name](wish, detail):
                tell(task, "found", row)
                failed = failed or row.get("status") == "failed"
        except Exception as error:
            failed = True
            status, reason = failure(framework.name, error)
            tell(task, "failed", {"status": status, "reason": reason})
        tell(task, "done", {})
        if failed and not computes(wish):  # a new process may get it back
            return


if __name__ == "__main__":
    main()
