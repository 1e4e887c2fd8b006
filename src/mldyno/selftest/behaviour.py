"""How a device behaves, as measures: what its trials have found, beside what is expected of its kind. Pure.

What is expected was read in sources and documents, and never seen: a device that differs is worth more than one that
does not. Where nothing is expected of a kind, what was found is only told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mldyno.selftest.contract import Heard
from mldyno.selftest.measures import Measure
from mldyno.stats.intervals import median
from mldyno.units import show_percent, show_seconds

OFF_LATENCY = 0.005  # that the latency may leave in a block
OFF_PEAK = 0.10  # by which matmuls of 4096 may lie below the best
OFF_SUSTAINED = 0.15  # by which a device may slow down in ten seconds
LEAST_GIVEN = 0.80  # of its memory, in one piece
LATE_SHARE = 0.5  # of the work, that is left to wait for where it was not begun


@dataclass(frozen=True)
class Expected:
    """What is expected of the devices of a kind."""

    queue: tuple[int, int]
    """Operations in flight."""
    lazy: bool
    """Whether work that was issued may stay where it is until someone waits for it."""


KINDS = {"cuda": Expected((512, 2048), lazy=False), "mps": Expected((1, 4096), lazy=True)}


def _measure(
    id: int, name: str, value: float, target: str, ok: bool, heard: Heard, unit: str = "share", note: str = ""
) -> Measure:
    words = note if ok else f"not as expected: {note}"
    return Measure(
        id, name, value, None, target, ok and not heard.trouble, len(heard.rows), unit, "", heard.trouble or words,
        raw=tuple(heard.rows),
    )  # fmt: skip


def _nothing(id: int, name: str, target: str, heard: Heard, unit: str = "share") -> list[Measure]:
    return [_measure(id, name, 0.0, target, False, heard, unit, "nothing was found")]


def _kind(device: str) -> Expected | None:
    return KINDS.get(device.partition(":")[0])


def queue(heard: Heard, device: str) -> list[Measure]:
    """Measure 31: how many operations can be in flight before the host has to wait."""
    name, expected = "operations in flight before the host waits", _kind(device)
    target = f"{expected.queue[0]:,} to {expected.queue[1]:,}" if expected else "only told"
    if not heard.rows:
        return _nothing(31, name, target, heard, "1")
    row = heard.rows[0]
    depth, issue = row["depth"], show_seconds(row["issue"])
    note = f"issuing one takes {issue}"
    if depth is None:
        words = f"{note}; no limit among {row['issued']:,}"
        return [_measure(31, name, float(row["issued"]), target, True, heard, "1", words)]
    ok = expected is None or expected.queue[0] <= depth <= expected.queue[1]
    return [_measure(31, name, float(depth), target, ok, heard, "1", note)]


def lazy(heard: Heard, device: str) -> list[Measure]:
    """Measure 32: what is left to wait for, of work that was issued long ago."""
    name, expected = "left to wait for, of work issued long ago", _kind(device)
    target = "only told" if expected is None else "any" if expected.lazy else f"< {show_percent(LATE_SHARE)}"
    if not heard.rows:
        return _nothing(32, name, target, heard)
    share = median([row["left"] / row["whole"] for row in heard.rows])
    late = share >= LATE_SHARE
    note = "it starts only when it is waited for" if late else "it starts by itself"
    return [_measure(32, name, share, target, expected is None or expected.lazy or not late, heard, note=note)]


def latency(heard: Heard) -> list[Measure]:
    """Measure 33: what the latency of the device leaves in a block that is made to hide it."""
    name, target = "what a block leaves of the device's latency", f"<= {show_percent(OFF_LATENCY)}"
    if not heard.rows:
        return _nothing(33, name, target, heard)
    off = median([row["short"] / row["long"] - 1 for row in heard.rows])
    row = heard.rows[0]
    note = f"latency {show_seconds(row['latency'])}, {row['block']} steps of {show_seconds(row['long'])} in a block"
    return [_measure(33, name, off, target, off <= OFF_LATENCY, heard, note=note)]


def peak(heard: Heard) -> list[Measure]:
    """Measure 34: whether matmuls of 4096, the largest of before, show the peak."""
    name, target = "rate of the best matmuls / of those of up to 4096", f"<= {1 + OFF_PEAK:g}"
    if not heard.rows:
        return _nothing(34, name, target, heard, "1")
    best = max(heard.rows, key=lambda row: row["rate"])
    small = max(row["rate"] for row in heard.rows if row["size"] <= 4096)
    note = f"{best['rate'] / 1e12:.3g} TFLOP/s at {best['size']}"
    return [_measure(34, name, best["rate"] / small, target, best["rate"] <= (1 + OFF_PEAK) * small, heard, "1", note)]


def sustained(heard: Heard) -> list[Measure]:
    """Measure 35: how much slower a device is after ten seconds of work than in the first."""
    name, target = "rate after ten seconds of work / in the first", f">= {1 - OFF_SUSTAINED:g}"
    rates = [row["rate"] for row in heard.rows if "rate" in row]
    if not rates:
        return _nothing(35, name, target, heard, "1")
    value = rates[-1] / rates[0]
    said: dict[str, Any] = next((row for row in heard.rows if "meters" in row), {"meters": [], "seen": {}})
    limits = {name: said["seen"][name][-1] for name in ("thermal_limit_time", "power_limit_time", "thermal_pressure")
              if said["seen"].get(name)}  # fmt: skip
    words = [f"meters: {', '.join(said['meters']) or 'none'}", *(f"{name} {value:g}" for name, value in limits.items())]
    return [_measure(35, name, value, target, value >= 1 - OFF_SUSTAINED, heard, "1", "; ".join(words))]


def edge(heard: Heard) -> list[Measure]:
    """Measure 36: how much of its memory a device gives in one piece, and that a refusal is one."""
    name, target = "share of its memory that is given in one piece", f">= {show_percent(LEAST_GIVEN)}"
    if not heard.rows:
        return _nothing(36, name, target, heard)
    row = heard.rows[-1]
    ok = row["status"] == "ok" and row["share"] >= LEAST_GIVEN
    return [_measure(36, name, row["share"], target, ok, heard, note=row["reason"])]


def layouts(heard: Heard) -> list[Measure]:
    """Measure 37: convolutions give the CPU's results in every layout."""
    name, target = "layouts in which convolutions agree with the CPU", "100 %"
    if not heard.rows:
        return _nothing(37, name, target, heard)
    good = [row for row in heard.rows if row["status"] == "ok"]
    notes = [f"{row['layout']} {show_seconds(row['step'])}" for row in good]
    notes += [f"{row['layout']} {row['status']}: {row['reason']}" for row in heard.rows if row not in good]
    ok = len(good) == len(heard.rows)
    return [_measure(37, name, len(good) / len(heard.rows), target, ok, heard, note=", ".join(notes))]
