"""The contract of a device, carried out in a process of its own: what a framework must do there, one task at a time.

A worker carries out one of `TASKS` after the other, and passes on what it yields, row by row. A device may end the
process at any time; the parent goes on with the task behind the one that did. After an error that leaves the device
unusable (`still_fit`) it starts a new process.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from mldyno import plugins
from mldyno.analysis.estimates import log_ratios
from mldyno.machine import Vendors
from mldyno.selftest import device_trials
from mldyno.selftest.device_work import (
    CHAIN_NS,
    LONG_CHAIN_NS,
    SMALLEST_SIZE,
    Wish,
    busy_product,
    chain,
    fitted,
    quiet,
    tidy,
)  # fmt: skip
from mldyno.selftest.in_child import Repeated
from mldyno.stats.intervals import paired
from mldyno.timing import clock
from mldyno.timing.blocks import rounds
from mldyno.worker.checks import failure

ROUNDS = 48
WAITS = 10
KNOWN_SIZE = 1024  # of the matrices whose memory must be counted
UNKNOWN_MEMORY = 1 << 43  # B: more than half of what is asked for where a device does not say what it has
WARM_UP_S, TURN_S = 1.0, 0.3
Row = dict[str, Any]


def device_facts(wish: Wish, detail: str) -> Iterator[Row]:
    """What the framework, or its vendor, calls it, and what they say of its memory."""
    known = {device.name: device for device in Vendors().describe(wish.framework.devices())}
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
        ("case", case), ("identical", identical), ("placements", placements), *device_trials.TASKS.items(),
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
