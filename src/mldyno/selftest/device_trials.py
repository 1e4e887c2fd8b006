"""How a device behaves where devices differ: its queue, when it starts, its peak by size, warm and cold, at the edge.

Nothing of this is a promise of mldyno's. It is what its method rests on, and what was only read about so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from mldyno import plugins
from mldyno.frameworks import Unsupported
from mldyno.selftest.device_work import CHAIN_NS, LONG_CHAIN_NS, SMALLEST_SIZE, Wish, busy_product, chain, fitted, quiet
from mldyno.selftest.in_child import Repeated
from mldyno.stats.intervals import median
from mldyno.timing import clock
from mldyno.worker import peaks
from mldyno.worker.checks import failure

MOST_ISSUED = 4096  # operations, to fill a queue
FIRST_ISSUED = 64  # of them that find room in any queue
FULL = 5.0  # times what issuing takes else: then the host waits for room
FULL_IN_A_ROW = 4
LAZY_TRIALS = 4
LONGER = 10  # times the block that is fitted: in it no latency shows
LATENCY_ROUNDS = 9
LOAD_S, LOOK_S = 10.0, 1.0  # that the device works, and for how long its rate is taken
EDGE_TRIALS = 7
LAYOUT_S = 1.0
Row = dict[str, Any]


def queue(wish: Wish, detail: str) -> Iterator[Row]:
    """How many operations can be in flight before the host has to wait: where issuing one begins to take longer."""
    size, each = busy_product(wish)
    product = wish.framework.matmul(wish.case, size)
    product.run(2)
    product.synchronize()
    times = []
    for _ in range(MOST_ISSUED):
        began = clock.now()
        product.run(1)
        times.append(clock.now() - began)
        if len(times) * each > 2e9:
            break
    product.synchronize()
    usual = max(1.0, median(times[:FIRST_ISSUED]))
    waits = [time > FULL * usual for time in times]
    full = (place for place in range(len(waits)) if all(waits[place : place + FULL_IN_A_ROW]))
    yield {"issue": usual / 1e9, "kernel": each / 1e9, "issued": len(times), "depth": next(full, None)}


def lazy(wish: Wish, detail: str) -> Iterator[Row]:
    """What is left to wait for, of work that was issued long ago: all of it where the device starts at the wait."""
    product, count = chain(wish, LONG_CHAIN_NS)
    for _ in range(LAZY_TRIALS):
        began = clock.now()
        product.run(count)
        product.synchronize()
        whole = clock.now() - began
        product.run(count)
        later = clock.now() + 2 * whole
        while clock.now() < later:
            pass
        began = clock.now()
        product.synchronize()
        yield {"whole": whole / 1e9, "left": (clock.now() - began) / 1e9}


def latency(wish: Wish, detail: str) -> Iterator[Row]:
    """Times in s of a step in blocks of the fitted size, and of ten times that, where no latency is left."""
    product, count = chain(wish, CHAIN_NS // 4)
    blocks = fitted(Repeated(product, count))
    found, _ = blocks.latency(blocks.time(1))
    for _ in range(LATENCY_ROUNDS):
        short, long = (blocks.time(size) / size / 1e9 for size in (blocks.size, LONGER * blocks.size))
        yield {"latency": found / 1e9, "block": blocks.size, "short": short, "long": long}


def peak(wish: Wish, detail: str) -> Iterator[Row]:
    """The rate of matmuls by their size, in floating-point operations a second."""
    size = SMALLEST_SIZE
    while size <= peaks.LARGEST_MATMUL:
        try:
            trial = peaks.Trial(wish.framework.matmul(wish.case, size), clock.now)
        except Exception as error:
            if failure(wish.framework.name, error)[0] != "oom":
                raise
            return
        yield {"size": size, "rate": max(trial.rate, trial.next_rate())}
        if trial.shortest >= 4 * peaks.LONG_NS:
            return
        size *= 2


def sustained(wish: Wish, detail: str) -> Iterator[Row]:
    """The rate of a device that works on and on, second by second, and what its meters say of it."""
    product, count = chain(wish, CHAIN_NS)
    device = next(device for device in wish.framework.devices() if device.name == wish.device)
    meters = {type(meter).__name__.lower(): meter for meter in plugins.meters() if meter.start(wish.case, device)}
    for meter in meters.values():
        meter.begin_window()
    began = now = clock.now()
    while now - began < LOAD_S * 1e9:
        since, done = now, 0
        while now - since < LOOK_S * 1e9:
            product.run(count)
            product.synchronize()
            done += count
            now = clock.now()
        for meter in meters.values():
            meter.end_window()
        yield {"at": (now - began) / 1e9, "rate": done * product.work / ((now - since) / 1e9)}
    series = [series for meter in meters.values() for series in meter.stop()]
    yield {"meters": [*meters], "seen": {part.metric: list(part.values)[:100] for part in series}}


def edge(wish: Wish, detail: str) -> Iterator[Row]:
    """The largest share of its memory that it gives in one piece, and whether it computes after each refusal."""
    memory = next(device.memory for device in wish.framework.devices() if device.name == wish.device)
    if memory is None:
        raise Unsupported("the device does not say how much memory it has")
    given, refused = 0.0, 1.2
    for _ in range(EDGE_TRIALS):
        share = (given + refused) / 2
        try:
            wish.framework.allocate(wish.case, math.floor(share * memory))
            given = share
        except Exception as error:
            status, reason = failure(wish.framework.name, error)
            if status != "oom":
                yield {"share": share, "status": status, "reason": reason}
                return
            refused = share
            product = wish.framework.matmul(wish.case, SMALLEST_SIZE)
            product.run(1)
            product.synchronize()
    yield {"share": given, "status": "ok", "reason": ""}


def layouts(wish: Wish, detail: str) -> Iterator[Row]:
    """A case of convolutions in each layout: what came of it, and the time in s of a step."""
    for layout in wish.framework.memory_formats:
        status, reason, error, step = "ok", "", None, None
        try:
            opened = wish.open(workload="mnist-cnn", layout=layout, batch=64)
            opened.warm_up(LAYOUT_S, quiet)
            opened.turn(LAYOUT_S, None, quiet)
            error, step = opened.close().checks.error, median(opened.values)
        except Exception as trouble:
            status, reason = failure(wish.framework.name, trouble)
        yield {"layout": layout, "status": status, "reason": reason, "error": error, "step": step}


TASKS: dict[str, Callable[[Wish, str], Iterator[Row]]] = {
    "queue": queue, "lazy": lazy, "latency": latency, "peak": peak, "sustained": sustained, "edge": edge,
    "layouts": layouts,
}  # fmt: skip
