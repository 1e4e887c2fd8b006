"""The tasks that test mldyno's promises on a device, and the judgement of their rows."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from mldyno.analysis import grouped
from mldyno.analysis.estimates import log_ratios
from mldyno.machine import Vendors
from mldyno.selftest.measures import Row, meets, upper_bound
from mldyno.selftest.on_machine import repeated, verdicts_of
from mldyno.selftest.setup import (
    CHAIN_NS,
    LONG_CHAIN_NS,
    NOT_TRIED,
    ROUNDS,
    WARM_UP_S,
    Judged,
    Setup,
    busy_product,
    fitted,
    judges,
)
from mldyno.stats.intervals import median, paired
from mldyno.timing import clock
from mldyno.timing.blocks import rounds
from mldyno.units import show_bytes, show_percent

MOST_TIME_ERROR, MOST_EVENTS_ERROR = 0.03, 0.1
LEAST_DONE = 0.95  # share of the work that must be done when the wait returns
COUNTED_LIMITS = (0.99, 1.05)  # memory that the device counts, over a known allocation
WAITS = 10
KNOWN_SIZE = 1024  # of the matrices whose memory must be counted
UNKNOWN_MEMORY_B = 1 << 43  # more than half of what is requested from a device that does not report its memory
TURN_S = 0.3


def device(setup: Setup) -> Iterator[Row]:
    """Yield the name of the device and its memory, as its framework and its vendor report them."""
    known = {device.name: device for device in Vendors().describe(setup.framework.devices())}
    meant = known.get(setup.device)
    yield {"found": meant is not None, "title": meant and meant.title, "memory": meant and meant.memory,
           "sees": [*known]}  # fmt: skip


@judges(device, 21, "its name and its memory are known", "100 %")
def _judge_found(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    named = row["title"] not in (None, "unknown", device.partition(":")[0])
    hits = named + (row["memory"] is not None) if row["found"] else 0
    size = "memory unknown" if row["memory"] is None else show_bytes(row["memory"])
    note = f"{row['title']}, {size}" if row["found"] else f"only {', '.join(row['sees'])} here"
    return Judged(hits / 2, hits == 2, note, n=2)


def memory(setup: Setup) -> Iterator[Row]:
    """Yield by how much the peak that the device counts grows by three matrices; earlier ones have set the peak."""
    program, held, peaks = setup.open().program, list[object](), list[int | None]()
    for _ in range(2):
        held.append(setup.product(KNOWN_SIZE))
        peaks.append(program.device_peak())
    before, after = peaks
    counted = None if before is None or after is None else after - before
    yield {"known": 3 * 4 * KNOWN_SIZE**2, "counted": counted, "by": program.facts.get("device_peak_by")}


@judges(memory, 23, "memory that the device counts / a known allocation", "0.99 to 1.05", unit="1")
def _judge_memory(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    if row["counted"] is None:
        return Judged(0.0, True, "this device does not count its memory", n=0)
    if row.get("by") == "driver":
        return Judged(0.0, True, "only its driver counts its memory, in larger blocks", n=0)
    value = row["counted"] / row["known"]
    return Judged(value, COUNTED_LIMITS[0] <= value <= COUNTED_LIMITS[1])


def overflow(setup: Setup) -> Iterator[Row]:
    """Request twice the memory of the device; yield the outcome, and whether it computes after that."""
    if not setup.allocates:
        yield setup.lacking("can't allocate memory by itself")
        return
    sizes = {device.name: device.memory for device in setup.framework.devices()}
    asked = 2 * (sizes[setup.device] or UNKNOWN_MEMORY_B)
    status, reason = setup.allocate(asked)
    yield {"asked": asked, "status": status, "reason": reason or "the request was granted"}
    setup.compute()
    yield {"computes": True}


@judges(overflow, 22, "twice its memory: reported as oom, and it still computes", "100 %")
def _judge_overflow(rows: Sequence[Row], device: str) -> Judged:
    row = rows[0]
    hits = (row["status"] == "oom") + (len(rows) == 2)
    return Judged(hits / 2, hits == 2, f"{row['status']}: {row['reason']}", n=2)


def work(setup: Setup) -> Iterator[Row]:
    """Yield the times in s of one, two and four times the same work, round by round."""
    product, count = setup.chain(CHAIN_NS)
    arms = [fitted(repeated(product, times * count)) for times in (1, 2, 4)]
    times = rounds(arms, 0.0, ROUNDS, random.Random(1), lambda values, now: None)
    for single, double, fourfold in zip(*times, strict=True):
        yield {"one": single, "two": double, "four": fourfold}


@judges(work, 24, "1, 2 and 4 times the work: error of the time", "<= 3 %")
def _judge_work(rows: Sequence[Row], device: str) -> Judged:
    worst = bound = 0.0
    for times, key in ((2, "two"), (4, "four")):
        centre, width = paired([math.log(row[key] / row["one"] / times) for row in rows])
        worst, bound = max(worst, math.expm1(abs(centre))), max(bound, math.expm1(abs(centre) + width))
    return Judged(worst, worst <= MOST_TIME_ERROR, bound=bound)


def wait(setup: Setup) -> Iterator[Row]:
    """Yield the times in s until work was issued, until the wait for it returned, and until a later result arrived.

    All steps are of one program, so that they share a queue: the output of the last can't be read before all of them
    are done.
    """
    program, count = setup.long_steps(LONG_CHAIN_NS)
    if program.returns is None:
        yield setup.lacking("can't copy an output to the host")
        return

    def read_one() -> None:
        program.returns = True
        program.run(1)
        program.returns = False

    read_one()
    for _ in range(WAITS):
        began = clock.now()
        read_one()
        alone = clock.now() - began
        began = clock.now()
        program.run(count)
        issued = clock.now() - began
        program.synchronize()
        waited = clock.now() - began
        read_one()
        read = clock.now() - began
        yield {"issued": issued / 1e9, "waited": waited / 1e9, "read": (read - alone) / 1e9}


@judges(wait, 25, "work that is done when the wait returns", ">= 95 %")
def _judge_wait(rows: Sequence[Row], device: str) -> Judged:
    over = [min(1.0, row["waited"] / row["read"]) for row in rows]
    issued = median([row["issued"] / row["read"] for row in rows])
    note = f"the loop that issues it returned after {show_percent(issued)} of it"
    return Judged(median(over), median(over) >= LEAST_DONE, note, min(over))


def case(setup: Setup) -> Iterator[Row]:
    """Measure a case in one precision, in both modes, as a worker does."""
    for mode in ("infer", "train"):
        opened, outcome = setup.measure(WARM_UP_S, TURN_S, mode=mode, precision=setup.detail, batch=16)
        facts = opened.facts if opened else {}
        observed = {name: facts.get(name) for name in ("device_seen", "events_share", "drained_share")}
        yield {"precision": setup.detail, "mode": mode, **outcome, **observed}


NO_EVENTS = Judged(0.0, True, "this device has no timing events", n=0)


def judge_events(rows: Sequence[Row], device: str) -> Judged:
    """Judge the time by the device's events over that by the host's clock."""
    shares = [row["events_share"] for row in rows]
    worst = max(shares, key=lambda share: abs(share - 1))
    return Judged(median(shares), abs(worst - 1) <= MOST_EVENTS_ERROR, bound=worst, n=len(shares))


def judge_places(rows: Sequence[Row], device: str) -> Judged:
    """Judge whether all tensors were on the device."""
    asked = device.removesuffix(":0")  # the first of a kind needs no number
    elsewhere = [row["device_seen"] for row in rows if row["device_seen"].removesuffix(":0") != asked]
    note = f"seen on {'; '.join(dict.fromkeys(elsewhere))}" if elsewhere else ""
    return Judged(1 - len(elsewhere) / len(rows), not elsewhere, note)


def judge_agreement(rows: Sequence[Row], device: str) -> Judged:
    """Judge whether each precision of the device gives the results of the CPU; it must have fp32."""
    can = [row for row in rows if row["status"] not in ("unsupported", NOT_TRIED)]
    good, some = [row for row in can if row["status"] == "ok"], {row["precision"] for row in can}
    notes = [f"{row['precision']} {row['mode']} off by {row['error']:.1e}" for row in good if row["error"] is not None]
    troubles = {row["precision"]: f": {row['reason']}" for row in rows if row["mode"] is None}
    troubles |= {f"{row['precision']} {row['mode']}": f" {row['status']}: {row['reason']}" for row in can
                 if row not in good and row["mode"]}  # fmt: skip
    notes += [f"{', '.join(names)}{why}" for why, names in grouped(troubles, troubles.__getitem__).items()]
    lacks = {f"{row['precision']} {row['mode']}" if row["precision"] in some else row["precision"]: row["reason"]
             for row in rows if row["status"] == "unsupported"}  # fmt: skip
    notes += [f"no {precision} ({reason})" for precision, reason in lacks.items()]
    ok: bool | None = len(good) == len(can) and any(row["precision"] == "fp32" for row in good)
    if len(good) == len(can) and any(row["status"] == NOT_TRIED for row in rows):
        ok = None
    return Judged(len(good) / max(1, len(can)), ok, "; ".join(notes), n=len(can))


def identical(setup: Setup) -> Iterator[Row]:
    """Compare identical code, rebuilt each time: log-ratio and half-width."""
    size, each = busy_product(setup)
    chance, count = random.Random(2), math.ceil(CHAIN_NS / each)
    for _ in range(setup.comparisons):
        arms = [fitted(repeated(setup.product(size), count)) for _ in range(2)]
        ours, theirs = rounds(arms, 0.0, ROUNDS, chance, lambda values, now: None)
        centre, width = paired(log_ratios(dict(enumerate(theirs)), dict(enumerate(ours))))
        yield {"log_ratio": centre, "half_width": width}


@judges(identical, 29, "identical code called faster or slower", "<= 5 %", peers="17-67 %")
def _judge_identical(rows: Sequence[Row], device: str) -> Judged:
    verdicts, n = verdicts_of(rows), len(rows)
    wrong = verdicts.count("faster") + verdicts.count("slower")
    note = f"equivalent in {verdicts.count('equivalent')}"
    return Judged(wrong / n, meets(wrong, n, most=0.05), note, upper_bound(wrong, n))


def placements(setup: Setup) -> Iterator[Row]:
    """Yield the times in s of a step whose batch is on the device, and of one whose batch is copied, round by round."""
    cases = [setup.open(placement=placement, batch=128) for placement in ("device", "host")]
    for opened in cases:
        opened.warm_up(WARM_UP_S)
    times = rounds([opened.blocks for opened in cases], 0.0, ROUNDS, random.Random(3), lambda values, now: None)
    for there, copied in zip(*times, strict=True):
        yield {"device": there, "host": copied}


@judges(placements, 30, "step with its batch from the host / with it on the device", "> 1", unit="1")
def _judge_placements(rows: Sequence[Row], device: str) -> Judged:
    centre, width = paired([math.log(row["host"] / row["device"]) for row in rows])
    low = math.exp(centre - width)
    return Judged(math.exp(centre), low > 1, bound=low)
