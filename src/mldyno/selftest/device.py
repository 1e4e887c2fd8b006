"""What mldyno promises of a device, and how devices behave, one trial each: its task, and how its rows are judged.

A worker carries out one of `TASKS` after the other, and passes on what it yields, row by row. A device may end the
process at any time; the parent goes on with the next task, in a new process, as it does after an error that leaves the
device unusable (`still_fit`).

A task that failed or yielded nothing makes its measure missed, with the reason. What a device need not have, such as
events that tell time, is reported and not held against it. What is expected of how a kind of device behaves was read
in sources and documents, and not observed.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mldyno import plugins
from mldyno.analysis import grouped
from mldyno.analysis.comparisons import verdict
from mldyno.analysis.estimates import log_ratios
from mldyno.frameworks import Framework, Kernel, Unsupported
from mldyno.machine import Vendors
from mldyno.records import Case
from mldyno.selftest.in_child import Repeated, Row
from mldyno.selftest.measures import Measure, meets, upper_bound
from mldyno.stats.intervals import median, paired
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, rounds
from mldyno.units import show_bytes, show_percent, show_seconds
from mldyno.worker import peaks
from mldyno.worker.checks import failure
from mldyno.worker.session import CaseSession, open_case

OFF_WORK, OFF_EVENTS = 0.03, 0.1  # how far times may be off
OVER = 0.95  # share of the work that must be over when the wait returns
COUNTED = (0.99, 1.05)  # of a known allocation
OFF_LATENCY = 0.005  # that the latency may leave in a block
OFF_PEAK = 0.10  # by which matmuls of 4096 may lie below the best
OFF_SUSTAINED = 0.15  # by which a device may slow down in ten seconds
LEAST_GIVEN = 0.80  # of its memory, in one piece
LATE_SHARE = 0.5  # of the work, that is left to wait for where it was not begun
NO_TARGET = "only told"  # nothing is expected of this kind of device
SMALLEST_SIZE, LARGEST_SIZE = 128, 2048  # of the matrices whose matmuls keep the device busy
BUSY_NS = 100_000  # that a matmul should take, to be more than its launch
CHAIN_NS = 2_000_000  # of a chain of matmuls
LONG_CHAIN_NS = 20_000_000  # of one that has to be waited for
ROUNDS = 48
WAITS = 10
KNOWN_SIZE = 1024  # of the matrices whose memory must be counted
UNKNOWN_MEMORY = 1 << 43  # B: more than half of what is asked for where a device does not say what it has
WARM_UP_S, TURN_S = 1.0, 0.3
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


@dataclass(frozen=True)
class Setup:
    """Where the contract is carried out, and how thoroughly."""

    framework: Framework
    device: str
    comparisons: int
    detail: str = ""
    """Which of its cases a task is about: a precision."""

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

    def compute(self) -> None:
        """Do a matmul, to see that the device works."""
        product = self.framework.matmul(self.case, SMALLEST_SIZE)
        product.run(1)
        product.synchronize()


def tidy() -> None:
    """Give back what earlier cases took: each was frozen when it was measured, as if it were the only one."""
    gc.unfreeze()
    gc.collect()


def quiet(step: float) -> None:
    """Ignore progress."""


def busy_product(setup: Setup) -> tuple[int, int]:
    """The size of a product that keeps the device busy, and what it takes in ns."""
    size = SMALLEST_SIZE
    while True:
        blocks = Blocks(setup.framework.matmul(setup.case, size), clock.now)
        blocks.time(8)
        shortest = min(blocks.time(8) for _ in range(3)) // 8
        if shortest >= BUSY_NS or size >= LARGEST_SIZE:
            return size, max(1, shortest)
        size *= 2


def chain(setup: Setup, length: int) -> tuple[Kernel, int]:
    """A product, and how many of it take so many ns."""
    size, each = busy_product(setup)
    return setup.framework.matmul(setup.case, size), math.ceil(length / each)


def fitted(steps: Repeated) -> Blocks:
    """Blocks of such steps, long enough to hide clock and latency."""
    blocks = Blocks(steps, clock.now, asynchronous=True)
    blocks.time(2)
    blocks.fit(min(blocks.time(1) for _ in range(3)))
    return blocks


@dataclass
class Heard:
    """What came of a task: its rows, and why there are no more where it failed."""

    rows: list[Row] = field(default_factory=list)
    trouble: str = ""


@dataclass(frozen=True)
class Judged:
    """What the rows of a task amount to."""

    value: float
    ok: bool | None
    note: str = ""
    bound: float | None = None
    n: int | None = None
    """Trials, where they are not the rows."""
    target: str = ""
    """Where it depends on the kind of device."""


NOTHING = Judged(0.0, False, "nothing was found", n=0)


@dataclass(frozen=True)
class Trial:
    """One measure of a device: its target, its task there, and the judgement of what the task yields."""

    id: int
    name: str
    target: str
    run: Callable[[Setup], Iterator[Row]]
    judge: Callable[[Sequence[Row], str], Judged] | None
    unit: str = "share"
    promised: bool = True
    """Whether mldyno promises it; what is only expected of the device is called so where it does not hold."""
    peers: str = ""

    def measure(self, heard: Heard, judged: Judged) -> Measure:
        """Return the measure; a task that broke off has missed it."""
        note = judged.note if judged.ok is not False or self.promised else f"not as expected: {judged.note}"
        n = len(heard.rows) if judged.n is None else judged.n
        return Measure(
            self.id, self.name, judged.value, judged.bound, judged.target or self.target,
            False if heard.trouble else judged.ok, n, self.unit, self.peers, heard.trouble or note,
            raw=tuple(heard.rows),
        )  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What is expected of the devices of a kind."""

    queue: tuple[int, int]
    """Operations in flight."""
    lazy: bool
    """Whether work that was issued may stay where it is until someone waits for it."""


KINDS = {"cuda": Expected((512, 2048), lazy=False), "mps": Expected((1, 4096), lazy=True)}


def device_facts(setup: Setup) -> Iterator[Row]:
    """What the framework, or its vendor, calls it, and what they say of its memory."""
    known = {device.name: device for device in Vendors().describe(setup.framework.devices())}
    meant = known.get(setup.device)
    yield {"found": meant is not None, "title": meant and meant.title, "memory": meant and meant.memory,
           "sees": [*known]}  # fmt: skip


def _judge_found(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    named = row["title"] not in (None, "unknown", device.partition(":")[0])
    hits = named + (row["memory"] is not None) if row["found"] else 0
    size = "memory unknown" if row["memory"] is None else show_bytes(row["memory"])
    note = f"{row['title']}, {size}" if row["found"] else f"only {', '.join(row['sees'])} here"
    return Judged(hits / 2, hits == 2, note, n=2)


def memory(setup: Setup) -> Iterator[Row]:
    """What the device's counter of its peak makes of three matrices; those before them set the peak."""
    program = setup.open().program
    held = [setup.framework.matmul(setup.case, KNOWN_SIZE)]
    before = program.device_peak()
    held.append(setup.framework.matmul(setup.case, KNOWN_SIZE))
    after = program.device_peak()
    counted = None if before is None or after is None else after - before
    yield {"known": 3 * 4 * KNOWN_SIZE**2, "counted": counted, "by": program.facts.get("device_peak_by")}


def _judge_memory(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    if row["counted"] is None:
        return Judged(0.0, True, "this device does not count its memory", n=0)
    if row.get("by") == "driver":
        return Judged(0.0, True, "only its driver counts its memory, as it gives it out: in larger blocks", n=0)
    value = row["counted"] / row["known"]
    return Judged(value, COUNTED[0] <= value <= COUNTED[1])


def overflow(setup: Setup) -> Iterator[Row]:
    """What comes of asking for twice the memory there is; and whether the device computes after that."""
    sizes = {device.name: device.memory for device in setup.framework.devices()}
    asked = 2 * (sizes[setup.device] or UNKNOWN_MEMORY)
    status, reason = "ok", "so much was given"
    try:
        setup.framework.allocate(setup.case, asked)
    except Exception as error:
        status, reason = failure(setup.framework.name, error)
    yield {"asked": asked, "status": status, "reason": reason}
    setup.compute()
    yield {"computes": True}


def _judge_overflow(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    hits = (row["status"] == "oom") + (len(rows) == 2)
    return Judged(hits / 2, hits == 2, f"{row['status']}: {row['reason']}", n=2)


def work(setup: Setup) -> Iterator[Row]:
    """Times in s of one, two and four times the same work, round by round."""
    product, count = chain(setup, CHAIN_NS)
    arms = [fitted(Repeated(product, times * count)) for times in (1, 2, 4)]
    times = rounds(arms, 0.0, ROUNDS, random.Random(1), lambda values, now: None)
    for single, double, fourfold in zip(*times, strict=True):
        yield {"one": single, "two": double, "four": fourfold}


def _judge_work(rows: Sequence[Row], device: str) -> Judged:
    worst = bound = 0.0
    for times, key in ((2, "two"), (4, "four")):
        centre, width = paired([math.log(row[key] / row["one"] / times) for row in rows])
        worst, bound = max(worst, math.expm1(abs(centre))), max(bound, math.expm1(abs(centre) + width))
    return Judged(worst, worst <= OFF_WORK, bound=bound)


def wait(setup: Setup) -> Iterator[Row]:
    """Times in s until work was issued, until it was waited for, and until the host had a result that comes after it.

    A step whose output is copied back can't return before all that was issued earlier is done.
    """
    product, count = chain(setup, LONG_CHAIN_NS)
    reader = setup.open(placement="roundtrip", batch=1).program
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


def _judge_wait(rows: Sequence[Row], device: str) -> Judged:
    over = [min(1.0, row["waited"] / row["read"]) for row in rows]
    issued = median([row["issued"] / row["read"] for row in rows])
    note = f"the loop that issues it returned after {show_percent(issued)} of it"
    return Judged(median(over), median(over) >= OVER, note, min(over))


def case(setup: Setup) -> Iterator[Row]:
    """A case in one precision, in both modes, from its first step to its checks, as a worker does it."""
    for mode in ("infer", "train"):
        status, reason, error, opened = "ok", "", None, None
        try:
            opened = setup.open(mode=mode, precision=setup.detail, batch=16)
            opened.warm_up(WARM_UP_S, quiet)
            opened.turn(TURN_S, None, quiet)
            error = opened.close().checks.error
        except Exception as trouble:
            status, reason = failure(setup.framework.name, trouble)
        facts = opened.facts if opened else {}
        observed = {name: facts.get(name) for name in ("device_seen", "events_share", "drained_share")}
        yield {"precision": setup.detail, "mode": mode, "status": status, "reason": reason, "error": error, **observed}


def _judge_events(rows: Sequence[Row], device: str) -> Judged:
    shares = [row["events_share"] for row in rows if row["events_share"] is not None]
    if not shares:
        return Judged(0.0, True, "this device has no events that tell time", n=0)
    worst = max(shares, key=lambda share: abs(share - 1))
    return Judged(median(shares), abs(worst - 1) <= OFF_EVENTS, bound=worst, n=len(shares))


def _judge_places(rows: Sequence[Row], device: str) -> Judged:
    elsewhere = [row["device_seen"] for row in rows if not same_device(row["device_seen"], device)]
    note = f"seen on {'; '.join(dict.fromkeys(elsewhere))}" if elsewhere else ""
    return Judged(1 - len(elsewhere) / len(rows), not elsewhere, note)


def same_device(reported: str, asked: str) -> bool:
    """Return whether two names mean one device: the first of a kind needs no number."""
    return reported.removesuffix(":0") == asked.removesuffix(":0")


def _judge_agreement(rows: Sequence[Row], ended: Mapping[str, str]) -> Judged:
    """Every precision that the device has gives the CPU's results; fp32 it must have."""
    can = [row for row in rows if row["status"] != "unsupported"]
    good = [row for row in can if row["status"] == "ok"]
    lacks = {row["precision"]: row["reason"] for row in rows if row["status"] == "unsupported"}
    notes = [f"{row['precision']} {row['mode']} off by {row['error']:.1e}" for row in good if row["error"] is not None]
    notes += _alike({f"{row['precision']} {row['mode']}": f"{row['status']}: {row['reason']}" for row in can
                    if row not in good})  # fmt: skip
    notes += _alike(ended, between=": ")
    notes += [f"no {precision} ({reason})" for precision, reason in lacks.items()]
    n = len(can) + len(ended)
    ok = len(good) == n and any(row["precision"] == "fp32" for row in good)
    return Judged(len(good) / max(1, n), ok, "; ".join(notes), n=n)


def _alike(troubles: Mapping[str, str], between: str = " ") -> list[str]:
    """Return troubles in words, each once, behind all cases that it concerns."""
    concerned = grouped(troubles, lambda case: troubles[case])
    return [f"{', '.join(names)}{between}{trouble}" for trouble, names in concerned.items()]


def cases(heard: Mapping[str, Heard], device: str) -> list[Measure]:
    """Return measures 26 to 28: the device's events, where tensors lie, and what comes out; over all precisions."""
    rows = [row for of_task in heard.values() for row in of_task.rows]
    ended = {task.partition(" ")[2]: of_task.trouble for task, of_task in heard.items() if of_task.trouble}
    ran = [row for row in rows if row["device_seen"] is not None]
    timed = [row for row in ran if row["events_share"] is not None]
    return [
        EVENTS.measure(Heard(timed), _judge_events(timed, device)),
        PLACES.measure(Heard(ran), _judge_places(ran, device) if ran else NOTHING),
        AGREEMENT.measure(Heard(rows), _judge_agreement(rows, ended)),
    ]


def identical(setup: Setup) -> Iterator[Row]:
    """Identical code against itself, built anew for each comparison: log-ratio and half-width."""
    size, each = busy_product(setup)
    chance, count = random.Random(2), math.ceil(CHAIN_NS / each)
    for _ in range(setup.comparisons):
        arms = [fitted(Repeated(setup.framework.matmul(setup.case, size), count)) for _ in range(2)]
        ours, theirs = rounds(arms, 0.0, ROUNDS, chance, lambda values, now: None)
        centre, width = paired(log_ratios(dict(enumerate(theirs)), dict(enumerate(ours))))
        yield {"log_ratio": centre, "half_width": width}


def _judge_identical(rows: Sequence[Row], device: str) -> Judged:
    edges = [(row["log_ratio"] - row["half_width"], row["log_ratio"] + row["half_width"]) for row in rows]
    verdicts = [verdict(math.exp(low), math.exp(high)) for low, high in edges]
    wrong, n = sum(said in ("faster", "slower") for said in verdicts), len(rows)
    note = f"equivalent in {verdicts.count('equivalent')}"
    return Judged(wrong / n, meets(wrong, n, most=0.05), note, upper_bound(wrong, n))


def placements(setup: Setup) -> Iterator[Row]:
    """Times in s of a step whose batch is there already, and of one whose batch is copied to it, round by round."""
    cases = [setup.open(placement=placement, batch=128) for placement in ("device", "host")]
    for opened in cases:
        opened.warm_up(WARM_UP_S, quiet)
    times = rounds([opened.blocks for opened in cases], 0.0, ROUNDS, random.Random(3), lambda values, now: None)
    for there, copied in zip(*times, strict=True):
        yield {"device": there, "host": copied}


def _judge_placements(rows: Sequence[Row], device: str) -> Judged:
    centre, width = paired([math.log(row["host"] / row["device"]) for row in rows])
    low = math.exp(centre - width)
    return Judged(math.exp(centre), low > 1, bound=low)


def queue(setup: Setup) -> Iterator[Row]:
    """How many operations can be in flight before the host has to wait: where issuing one begins to take longer."""
    size, each = busy_product(setup)
    product = setup.framework.matmul(setup.case, size)
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


def _judge_queue(rows: Sequence[Row], device: str) -> Judged:
    row, expected = rows[0], KINDS.get(device.partition(":")[0])
    depth, note = row["depth"], f"issuing one takes {show_seconds(row['issue'])}"
    target = f"{expected.queue[0]:,} to {expected.queue[1]:,}" if expected else NO_TARGET
    if depth is None:
        return Judged(float(row["issued"]), True, f"{note}; no limit among {row['issued']:,}", target=target)
    ok = expected is None or expected.queue[0] <= depth <= expected.queue[1]
    return Judged(float(depth), ok, note, target=target)


def lazy(setup: Setup) -> Iterator[Row]:
    """What is left to wait for, of work that was issued long ago: all of it where the device starts at the wait."""
    product, count = chain(setup, LONG_CHAIN_NS)
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


def _judge_lazy(rows: Sequence[Row], device: str) -> Judged:
    expected = KINDS.get(device.partition(":")[0])
    target = NO_TARGET if expected is None else "any" if expected.lazy else f"< {show_percent(LATE_SHARE)}"
    share = median([row["left"] / row["whole"] for row in rows])
    late = share >= LATE_SHARE
    note = "it starts only when it is waited for" if late else "it starts by itself"
    return Judged(share, expected is None or expected.lazy or not late, note, target=target)


def latency(setup: Setup) -> Iterator[Row]:
    """Times in s of a step in blocks of the fitted size, and of ten times that, where no latency is left."""
    product, count = chain(setup, CHAIN_NS // 4)
    blocks = fitted(Repeated(product, count))
    found, _ = blocks.latency(blocks.time(1))
    for _ in range(LATENCY_ROUNDS):
        short, long = (blocks.time(size) / size / 1e9 for size in (blocks.size, LONGER * blocks.size))
        yield {"latency": found / 1e9, "block": blocks.size, "short": short, "long": long}


def _judge_latency(rows: Sequence[Row], device: str) -> Judged:
    off, row = median([row["short"] / row["long"] - 1 for row in rows]), rows[0]
    note = f"latency {show_seconds(row['latency'])}, {row['block']} steps of {show_seconds(row['long'])} in a block"
    return Judged(off, off <= OFF_LATENCY, note)


def peak(setup: Setup) -> Iterator[Row]:
    """The rate of matmuls by their size, in floating-point operations a second."""
    size = SMALLEST_SIZE
    while size <= peaks.LARGEST_MATMUL:
        try:
            trial = peaks.Trial(setup.framework.matmul(setup.case, size), clock.now)
        except Exception as error:
            if failure(setup.framework.name, error)[0] != "oom":
                raise
            return
        yield {"size": size, "rate": max(trial.rate, trial.next_rate())}
        if trial.shortest >= 4 * peaks.LONG_NS:
            return
        size *= 2


def _judge_peak(rows: Sequence[Row], device: str) -> Judged:
    best = max(rows, key=lambda row: row["rate"])
    small = max(row["rate"] for row in rows if row["size"] <= 4096)
    note = f"{best['rate'] / 1e12:.3g} TFLOP/s at {best['size']}"
    return Judged(best["rate"] / small, best["rate"] <= (1 + OFF_PEAK) * small, note)


def sustained(setup: Setup) -> Iterator[Row]:
    """The rate of a device that works on and on, second by second, and what its meters say of it."""
    product, count = chain(setup, CHAIN_NS)
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


def _judge_sustained(rows: Sequence[Row], device: str) -> Judged:
    rates = [row["rate"] for row in rows if "rate" in row]
    if not rates:
        return NOTHING
    value = rates[-1] / rates[0]
    said: Row = next((row for row in rows if "meters" in row), {"meters": [], "seen": {}})
    limits = {name: said["seen"][name][-1] for name in ("thermal_limit_time", "power_limit_time", "thermal_pressure")
              if said["seen"].get(name)}  # fmt: skip
    words = [f"meters: {', '.join(said['meters']) or 'none'}", *(f"{name} {value:g}" for name, value in limits.items())]
    return Judged(value, value >= 1 - OFF_SUSTAINED, "; ".join(words))


def edge(setup: Setup) -> Iterator[Row]:
    """The largest share of its memory that it gives in one piece, and whether it computes after each refusal."""
    memory = next(device.memory for device in setup.framework.devices() if device.name == setup.device)
    if memory is None:
        raise Unsupported("the device does not say how much memory it has")
    given, refused = 0.0, 1.2
    for _ in range(EDGE_TRIALS):
        share = (given + refused) / 2
        try:
            setup.framework.allocate(setup.case, math.floor(share * memory))
            given = share
        except Exception as error:
            status, reason = failure(setup.framework.name, error)
            if status != "oom":
                yield {"share": share, "status": status, "reason": reason}
                return
            refused = share
            setup.compute()
    yield {"share": given, "status": "ok", "reason": ""}


def _judge_edge(rows: Sequence[Row], device: str) -> Judged:
    row = rows[-1]
    return Judged(row["share"], row["status"] == "ok" and row["share"] >= LEAST_GIVEN, row["reason"])


def layouts(setup: Setup) -> Iterator[Row]:
    """A case of convolutions in each layout: what came of it, and the time in s of a step."""
    for layout in setup.framework.memory_formats:
        status, reason, error, step = "ok", "", None, None
        try:
            opened = setup.open(workload="mnist-cnn", layout=layout, batch=64)
            opened.warm_up(LAYOUT_S, quiet)
            opened.turn(LAYOUT_S, None, quiet)
            error, step = opened.close().checks.error, median(opened.values)
        except Exception as trouble:
            status, reason = failure(setup.framework.name, trouble)
        yield {"layout": layout, "status": status, "reason": reason, "error": error, "step": step}


def _judge_layouts(rows: Sequence[Row], device: str) -> Judged:
    good = [row for row in rows if row["status"] == "ok"]
    notes = [f"{row['layout']} {show_seconds(row['step'])}" for row in good]
    notes += [f"{row['layout']} {row['status']}: {row['reason']}" for row in rows if row not in good]
    return Judged(len(good) / len(rows), len(good) == len(rows), ", ".join(notes))


TRIALS = {
    "device": Trial(21, "found, with its name and its memory", "100 %", device_facts, _judge_found),
    "memory": Trial(23, "a known allocation, as the device counts it", f"{COUNTED[0]:g} to {COUNTED[1]:g}",
                    memory, _judge_memory, "1"),
    "overflow": Trial(22, "more memory than there is: told as oom, and it computes on", "100 %",
                      overflow, _judge_overflow),
    "work": Trial(24, "1, 2 and 4 times the work: time for each is off by", "<= 3 %", work, _judge_work),
    "wait": Trial(25, "work that is over when the wait returns", ">= 95 %", wait, _judge_wait),
    "identical": Trial(29, "identical code called faster or slower", "<= 5 %", identical, _judge_identical,
                       peers="17-67 %"),
    "placements": Trial(30, "step with its batch from the host / with one that is there", "> 1",
                        placements, _judge_placements, "1"),
    "queue": Trial(31, "operations in flight before the host waits", NO_TARGET, queue, _judge_queue, "1",
                   promised=False),
    "lazy": Trial(32, "left to wait for, of work issued long ago", NO_TARGET, lazy, _judge_lazy, promised=False),
    "latency": Trial(33, "what a block leaves of the device's latency", f"<= {show_percent(OFF_LATENCY)}",
                     latency, _judge_latency, promised=False),
    "peak": Trial(34, "rate of the best matmuls / of those of up to 4096", f"<= {1 + OFF_PEAK:g}",
                  peak, _judge_peak, "1", promised=False),
    "sustained": Trial(35, "rate after ten seconds of work / in the first", f">= {1 - OFF_SUSTAINED:g}",
                       sustained, _judge_sustained, "1", promised=False),
    "edge": Trial(36, "share of its memory that is given in one piece", f">= {show_percent(LEAST_GIVEN)}",
                  edge, _judge_edge, promised=False),
    "layouts": Trial(37, "layouts in which convolutions agree with the CPU", "100 %", layouts, _judge_layouts,
                     promised=False),
}  # fmt: skip
# One case yields three measures; see `cases`.
EVENTS = Trial(26, "time by the device's own events / by the host's clock", "0.9 to 1.1", case, None, "1")
PLACES = Trial(27, "cases whose tensors all lie on it", "100 %", case, None)
AGREEMENT = Trial(28, "results agree with the CPU, in each precision that it has", "100 %", case, None)


def measure(task: str, heard: Heard, device: str) -> Measure:
    """Return the measure of a trial from what came of its task."""
    trial = TRIALS[task]
    assert trial.judge is not None
    return trial.measure(heard, trial.judge(heard.rows, device) if heard.rows else NOTHING)


def _on_device(task: Callable[[Setup], Iterator[Row]]) -> Callable[..., Iterator[Row]]:
    """Return the task, with its framework started and its device there."""

    def carry_out(framework: str, device: str, comparisons: int, detail: str) -> Iterator[Row]:
        setup = Setup(plugins.framework(framework), device, comparisons, detail)
        setup.framework.start()
        tidy()
        if task is not device_facts:  # that one looks for it
            setup.check()
        yield from task(setup)

    return carry_out


TASKS = {"case": _on_device(case), **{name: _on_device(trial.run) for name, trial in TRIALS.items()}}


def still_fit(framework: str, device: str, comparisons: int, detail: str) -> bool:
    """Return whether the device still computes; some errors leave it unusable for the rest of the process."""
    try:
        Setup(plugins.framework(framework), device, comparisons).compute()
    except Exception:
        return False
    return True
