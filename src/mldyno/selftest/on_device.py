"""The measures of a device's contract, from what its tasks have found. Pure.

A task that failed or found nothing makes its measure missed, with the reason. What a device need not have, such as
events that tell time, is reported and not held against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mldyno.analysis import grouped
from mldyno.analysis.comparisons import verdict
from mldyno.selftest.contract import Heard
from mldyno.selftest.measures import Measure, meets, upper_bound
from mldyno.stats.intervals import median, paired
from mldyno.units import show_bytes, show_percent

OFF_WORK, OFF_EVENTS = 0.03, 0.1  # how far times may be off
OVER = 0.95  # share of the work that must be over when the wait returns
COUNTED = (0.99, 1.05)  # of a known allocation
Row = Mapping[str, Any]


def _measure(
    id: int, name: str, value: float, bound: float | None, target: str, ok: bool | None, heard: Heard,
    unit: str = "share", note: str = "", n: int | None = None, peers: str = "",
) -> Measure:  # fmt: skip
    """A measure of what a task has found; one that failed, or found nothing, has missed it."""
    count = len(heard.rows) if n is None else n
    ok = False if heard.trouble else ok
    return Measure(id, name, value, bound, target, ok, count, unit, peers, heard.trouble or note, raw=tuple(heard.rows))


def _missing(id: int, name: str, target: str, heard: Heard, unit: str = "share") -> Measure:
    return _measure(id, name, 0.0, None, target, False, heard, unit, "nothing was found", 0)


def found(heard: Heard, device: str) -> list[Measure]:
    """Measure 21: it is there, and has a name and a size."""
    name = "found, with its name and its memory"
    if not heard.rows:
        return [_missing(21, name, "100 %", heard)]
    row = heard.rows[0]
    named = row["title"] not in (None, "unknown", device.partition(":")[0])
    hits = named + (row["memory"] is not None) if row["found"] else 0
    size = "memory unknown" if row["memory"] is None else show_bytes(row["memory"])
    note = f"{row['title']}, {size}" if row["found"] else f"only {', '.join(row['sees'])} here"
    return [_measure(21, name, hits / 2, None, "100 %", hits == 2, heard, note=note, n=2)]


def overflow(heard: Heard) -> list[Measure]:
    """Measure 22: more memory than there is is refused, and told as what it is; the device works on."""
    name = "more memory than there is: told as oom, and it computes on"
    if not heard.rows:
        return [_missing(22, name, "100 %", heard)]
    row = heard.rows[0]
    hits = (row["status"] == "oom") + (len(heard.rows) == 2)
    note = f"{row['status']}: {row['reason']}"
    return [_measure(22, name, hits / 2, None, "100 %", hits == 2, heard, note=note, n=2)]


def memory(heard: Heard) -> list[Measure]:
    """Measure 23: a known allocation moves the device's counter by just that."""
    name, target = "a known allocation, as the device counts it", f"{COUNTED[0]:g} to {COUNTED[1]:g}"
    if not heard.rows:
        return [_missing(23, name, target, heard, "1")]
    row = heard.rows[0]
    if row["counted"] is None:
        return [_measure(23, name, 0.0, None, target, True, heard, "1", "this device does not count its memory", 0)]
    if row.get("by") == "driver":
        note = "only its driver counts its memory, as it gives it out: in larger blocks"
        return [_measure(23, name, 0.0, None, target, True, heard, "1", note, 0)]
    value = row["counted"] / row["known"]
    return [_measure(23, name, value, None, target, COUNTED[0] <= value <= COUNTED[1], heard, "1")]


def work(heard: Heard) -> list[Measure]:
    """Measure 24: twice and four times the work takes twice and four times as long."""
    name, target = "1, 2 and 4 times the work: time for each is off by", "<= 3 %"
    if not heard.rows:
        return [_missing(24, name, target, heard)]
    worst = bound = 0.0
    for times, key in ((2, "two"), (4, "four")):
        centre, width = paired([math.log(row[key] / row["one"] / times) for row in heard.rows])
        worst, bound = max(worst, math.expm1(abs(centre))), max(bound, math.expm1(abs(centre) + width))
    return [_measure(24, name, worst, bound, target, worst <= OFF_WORK, heard)]


def wait(heard: Heard) -> list[Measure]:
    """Measure 25: when the wait returns, the work is done: a result that comes after it is there at once."""
    name, target = "work that is over when the wait returns", ">= 95 %"
    if not heard.rows:
        return [_missing(25, name, target, heard)]
    over = [min(1.0, row["waited"] / row["read"]) for row in heard.rows]
    issued = median([row["issued"] / row["read"] for row in heard.rows])
    note = f"the loop that issues it returned after {show_percent(issued)} of it"
    return [_measure(25, name, median(over), min(over), target, median(over) >= OVER, heard, note=note)]


def cases(heard: Mapping[str, Heard], device: str) -> list[Measure]:
    """Measures 26 to 28: the device's events, where tensors lie, and what comes out; over all precisions."""
    every = Heard([row for of_task in heard.values() for row in of_task.rows])
    ended = {task.partition(" ")[2]: of_task.trouble for task, of_task in heard.items() if of_task.trouble}
    ran = [row for row in every.rows if row["device_seen"] is not None]
    return [_events(ran), _places(ran, device), _agreement(every, ended)]


def _events(ran: Sequence[dict[str, Any]]) -> Measure:
    name, target = "time by the device's own events / by the host's clock", "0.9 to 1.1"
    heard = Heard([row for row in ran if row["events_share"] is not None])
    shares = [row["events_share"] for row in heard.rows]
    if not shares:
        return _measure(26, name, 0.0, None, target, True, heard, "1", "this device has no events that tell time")
    worst = max(shares, key=lambda share: abs(share - 1))
    return _measure(26, name, median(shares), worst, target, abs(worst - 1) <= OFF_EVENTS, heard, "1")


def _places(ran: Sequence[dict[str, Any]], device: str) -> Measure:
    name, heard = "cases whose tensors all lie on it", Heard([*ran])
    if not ran:
        return _missing(27, name, "100 %", heard)
    elsewhere = [row["device_seen"] for row in ran if not same_device(row["device_seen"], device)]
    note = f"seen on {'; '.join(dict.fromkeys(elsewhere))}" if elsewhere else ""
    return _measure(27, name, 1 - len(elsewhere) / len(ran), None, "100 %", not elsewhere, heard, note=note)


def same_device(reported: str, asked: str) -> bool:
    """Whether two names mean one device: the first of a kind needs no number."""
    return reported.removesuffix(":0") == asked.removesuffix(":0")


def _agreement(every: Heard, ended: Mapping[str, str]) -> Measure:
    """Every precision that the device has gives the CPU's results; fp32 it must have."""
    can = [row for row in every.rows if row["status"] != "unsupported"]
    good = [row for row in can if row["status"] == "ok"]
    lacks = {row["precision"]: row["reason"] for row in every.rows if row["status"] == "unsupported"}
    notes = [f"{row['precision']} {row['mode']} off by {row['error']:.1e}" for row in good if row["error"] is not None]
    notes += _alike({f"{row['precision']} {row['mode']}": f"{row['status']}: {row['reason']}" for row in can
                    if row not in good})  # fmt: skip
    notes += _alike(ended, between=": ")
    notes += [f"no {precision} ({reason})" for precision, reason in lacks.items()]
    n = len(can) + len(ended)
    ok = len(good) == n and any(row["precision"] == "fp32" for row in good)
    name = "results agree with the CPU, in each precision that it has"
    return _measure(28, name, len(good) / max(1, n), None, "100 %", ok, every, note="; ".join(notes), n=n)


def _alike(troubles: Mapping[str, str], between: str = " ") -> list[str]:
    """Troubles in words, each told once, behind all that it befell."""
    befell = grouped(troubles, lambda what: troubles[what])
    return [f"{', '.join(names)}{between}{trouble}" for trouble, names in befell.items()]


def identical(heard: Heard) -> list[Measure]:
    """Measure 29: identical code that is called different."""
    name, target, n = "identical code called faster or slower", "<= 5 %", len(heard.rows)
    if not n:
        return [_missing(29, name, target, heard)]
    edges = [(row["log_ratio"] - row["half_width"], row["log_ratio"] + row["half_width"]) for row in heard.rows]
    verdicts = [verdict(math.exp(low), math.exp(high)) for low, high in edges]
    wrong = sum(said in ("faster", "slower") for said in verdicts)
    ok, note = meets(wrong, n, most=0.05), f"equivalent in {verdicts.count('equivalent')}"
    return [_measure(29, name, wrong / n, upper_bound(wrong, n), target, ok, heard, note=note, peers="17-67 %")]


def placements(heard: Heard) -> list[Measure]:
    """Measure 30: a batch that is copied to the device in each step costs time."""
    name, target = "step with its batch from the host / with one that is there", "> 1"
    if not heard.rows:
        return [_missing(30, name, target, heard, "1")]
    centre, width = paired([math.log(row["host"] / row["device"]) for row in heard.rows])
    low = math.exp(centre - width)
    return [_measure(30, name, math.exp(centre), low, target, low > 1, heard, "1")]
