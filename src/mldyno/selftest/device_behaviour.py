"""The tasks that show how a device behaves, and the comparison with what is expected of its kind.

What is expected was read in sources and documents, and not observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mldyno import plugins
from mldyno.selftest.measures import Row
from mldyno.selftest.on_machine import repeated
from mldyno.selftest.setup import (
    CHAIN_NS,
    LONG_CHAIN_NS,
    NOTHING,
    SMALLEST_SIZE,
    Judged,
    Setup,
    busy_product,
    fitted,
    judges,
)
from mldyno.stats.intervals import median
from mldyno.timing import clock
from mldyno.units import show_percent, show_seconds
from mldyno.worker import peaks
from mldyno.worker.checks import failure

MOST_LATENCY_LEFT = 0.005  # share of a block
MOST_PEAK_GAIN = 0.10  # of the best matmuls over those of up to 4096
MOST_SLOWDOWN = 0.15  # of a device in ten seconds of work
LATE_SHARE = 0.5  # of the work left to wait for: then it was not started when it was issued
NO_TARGET = "none"  # nothing is expected of this kind of device
MOST_ISSUED = 4096  # operations, to fill a queue
FIRST_ISSUED = 64  # operations that fit into any queue
FULL = 5.0  # times the usual time to issue one: then the host waits for room
FULL_IN_A_ROW = 4
LAZY_TRIALS = 4
LONGER = 10  # times the fitted block, in which no latency is left
LATENCY_ROUNDS = 9
LOAD_S, LOOK_S = 10.0, 1.0  # how long the device works, and how often its rate is taken
EDGE_TRIALS = 7
LAYOUT_S = 1.0


class Expected(NamedTuple):
    """The expected behaviour of a kind of device."""

    queue: tuple[int, int] | None = None  # operations in flight before the host waits; None: nothing is expected
    lazy: bool | None = None  # whether work may start only when it is waited for
    memory: float = 0.80  # share of its memory that it grants in one piece


KINDS = {
    "cuda": Expected((512, 2048), lazy=False),
    "sim": Expected(lazy=False),  # the simulated device of the tests
    "mps": Expected((1, 4096), lazy=True, memory=0.65),  # Metal's maxBufferLength: 69 to 75 % on M3 to M5
}


POOLS = {"jax": 0.7}  # share of a GPU's memory that a framework takes for itself, and grants from, at most


def expected_of(device: str) -> Expected:
    """Return what is expected of the kind of a device."""
    return KINDS.get(device.partition(":")[0], Expected())


def queue(setup: Setup) -> Iterator[Row]:
    """Count the operations in flight before the host has to wait: until issuing one takes longer."""
    size, each = busy_product(setup)
    product = setup.product(size)
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


@judges(queue, 31, "operations in flight before the host waits", NO_TARGET, unit="1", promised=False)
def _judge_queue(rows: Sequence[Row], device: str) -> Judged:
    row, expected = rows[0], expected_of(device).queue
    depth, note = row["depth"], f"issuing one takes {show_seconds(row['issue'])}"
    target = f"{expected[0]:,} to {expected[1]:,}" if expected else NO_TARGET
    if depth is None:
        return Judged(float(row["issued"]), True, f"{note}; no limit among {row['issued']:,}", target=target)
    ok = expected is None or expected[0] <= depth <= expected[1]
    return Judged(float(depth), ok, note, target=target)


def lazy(setup: Setup) -> Iterator[Row]:
    """Yield the wait for work that was issued long ago: all of it, if the device starts only when waited for."""
    product, count = setup.chain(LONG_CHAIN_NS)
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


@judges(lazy, 32, "left to wait for, of work issued long before", NO_TARGET, promised=False)
def _judge_lazy(rows: Sequence[Row], device: str) -> Judged:
    expected = expected_of(device).lazy
    target = NO_TARGET if expected is None else "any" if expected else f"< {show_percent(LATE_SHARE)}"
    share = median([row["left"] / row["whole"] for row in rows])
    late = share >= LATE_SHARE
    note = "it starts only when it is waited for" if late else "it starts by itself"
    return Judged(share, expected is not False or not late, note, target=target)


def latency(setup: Setup) -> Iterator[Row]:
    """Yield the times in s of a step in fitted blocks and in ten times longer ones, where no latency is left."""
    product, count = setup.chain(CHAIN_NS // 4)
    blocks = fitted(repeated(product, count))
    latency_ns, _ = blocks.latency(blocks.time(1))
    for _ in range(LATENCY_ROUNDS):
        short, long = (blocks.time(size) / size / 1e9 for size in (blocks.size, LONGER * blocks.size))
        yield {"latency": latency_ns / 1e9, "block": blocks.size, "short": short, "long": long}


@judges(latency, 33, "latency that is left in a block", "<= 0.50 %", promised=False)
def _judge_latency(rows: Sequence[Row], device: str) -> Judged:
    off, row = median([row["short"] / row["long"] - 1 for row in rows]), rows[0]
    note = f"latency {show_seconds(row['latency'])}, {row['block']} steps of {show_seconds(row['long'])} in a block"
    return Judged(off, off <= MOST_LATENCY_LEFT, note)


def peak(setup: Setup) -> Iterator[Row]:
    """Yield the rate of matmuls by their size, in FLOP/s."""
    size = SMALLEST_SIZE
    while size <= peaks.LARGEST_MATMUL:
        try:
            trial = peaks.Trial(setup.product(size), clock.now)
        except Exception as error:
            if failure(setup.framework.name, error)[0] != "oom":
                raise
            return
        yield {"size": size, "rate": max(trial.rate, trial.next_rate())}
        if trial.shortest >= 4 * peaks.LONG_NS:
            return
        size *= 2


@judges(peak, 34, "rate of the best matmuls / of those of up to 4096", "<= 1.1", unit="1", promised=False)
def _judge_peak(rows: Sequence[Row], device: str) -> Judged:
    best = max(rows, key=lambda row: row["rate"])
    small = max(row["rate"] for row in rows if row["size"] <= 4096)
    note = f"{best['rate'] / 1e12:.3g} TFLOP/s at {best['size']}"
    return Judged(best["rate"] / small, best["rate"] <= (1 + MOST_PEAK_GAIN) * small, note)


def sustained(setup: Setup) -> Iterator[Row]:
    """Yield the rate of a device under load, second by second, and what its meters report."""
    product, count = setup.chain(CHAIN_NS)
    device = next(device for device in setup.framework.devices() if device.name == setup.device)
    meters = {type(meter).__name__.lower(): meter for meter in plugins.meters() if meter.start(setup.case, device)}
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


@judges(sustained, 35, "rate after ten seconds of work / in the first", ">= 0.85", unit="1", promised=False)
def _judge_sustained(rows: Sequence[Row], device: str) -> Judged:
    rates = [row["rate"] for row in rows if "rate" in row]
    if not rates:
        return NOTHING
    value = rates[-1] / rates[0]
    report: Row = next((row for row in rows if "meters" in row), {"meters": [], "seen": {}})
    limits = {name: report["seen"][name][-1] for name in ("thermal_limit_time", "power_limit_time", "thermal_pressure")
              if report["seen"].get(name)}  # fmt: skip
    words = [
        f"meters: {', '.join(report['meters']) or 'none'}",
        *(f"{name} {value:g}" for name, value in limits.items()),
    ]
    return Judged(value, value >= 1 - MOST_SLOWDOWN, "; ".join(words))


def edge(setup: Setup) -> Iterator[Row]:
    """Search the largest share of its memory that the device gives in one piece; it must compute after each refusal."""
    memory = next(device.memory for device in setup.framework.devices() if device.name == setup.device)
    if memory is None or not setup.allocates:
        yield setup.lacking("can't allocate memory by itself" if memory else "does not say how much memory it has")
        return
    given, refused = 0.0, 1.2
    for _ in range(EDGE_TRIALS):
        share = (given + refused) / 2
        status, reason = setup.allocate(math.floor(share * memory))
        if status == "ok":
            given = share
        elif status == "oom":
            refused = share
            setup.compute()
        else:
            yield {"share": share, "status": status, "reason": reason}
            return
    yield {"share": given, "status": "ok", "reason": "", "framework": setup.framework.name}


@judges(edge, 36, "share of its memory that it grants in one piece", ">= 80 %", promised=False)
def _judge_edge(rows: Sequence[Row], device: str) -> Judged:
    row = rows[-1]
    least = min(expected_of(device).memory, POOLS.get(row.get("framework", ""), 1.0))
    ok = row["status"] == "ok" and row["share"] >= least
    return Judged(row["share"], ok, row["reason"], target=f">= {show_percent(least)}")


def layouts(setup: Setup) -> Iterator[Row]:
    """Measure a case of convolutions in each layout: its outcome, and the time in s of a step."""
    for layout in setup.framework.memory_formats:
        opened, outcome = setup.measure(LAYOUT_S, LAYOUT_S, workload="mnist-cnn", layout=layout, batch=64)
        step = median(opened.values) if opened is not None and outcome["status"] == "ok" else None
        yield {"layout": layout, **outcome, "step": step}


@judges(layouts, 37, "layouts in which convolutions agree with the CPU", "100 %", promised=False)
def _judge_layouts(rows: Sequence[Row], device: str) -> Judged:
    good = [row for row in rows if row["status"] == "ok"]
    notes = [f"{row['layout']} {show_seconds(row['step'])}" for row in good]
    notes += [f"{row['layout']} {row['status']}: {row['reason']}" for row in rows if row not in good]
    return Judged(len(good) / len(rows), len(good) == len(rows), ", ".join(notes))
