"""Which cases are measured against each other, and how near to each other they can get.

Cases that do the same work in different ways are compared: they differ in one axis, and that axis
is not what is computed (workload, mode, batch, seq), unless the user asks for just that one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mldyno import machine
from mldyno.axes import AXES, NAMES, WORK
from mldyno.records import Case, Pairing, Record

MOST_TOGETHER = 8
FRESH_PAIRS = 5  # of processes, over all rounds of a run, where cases can't share one
ROOM = 0.9  # share of a device's memory that cases may fill together
_OWN_PROCESS = tuple(axis.name for axis in AXES if axis.own_process)


def comparable(a: Case, b: Case, by: str | None) -> bool:
    """Whether two cases differ in exactly one axis, and a comparison along it is asked for or makes sense."""
    different = [name for name in NAMES if getattr(a, name) != getattr(b, name)]
    return len(different) == 1 and (different[0] not in WORK or different[0] == by)


def groups(cases: Sequence[Case], by: str | None = None) -> list[list[Case]]:
    """The cases in groups: each with those that are comparable with a member, in the plan's order."""
    left, found = list(cases), []
    while left:
        group = [left.pop(0)]
        for member in group:  # grows while it is walked through
            near = [case for case in left if comparable(case, member, by)]
            group += near
            left = [case for case in left if case not in near]
        found.append([case for case in cases if case in group])
    return found


def pairings(group: Sequence[Case]) -> list[list[Case]]:
    """A group in parts that can meet at once; the first case, the base of comparisons, is in each of them."""
    if len(group) < 2:
        return []
    base, others = group[0], group[1:]
    size = MOST_TOGETHER - 1
    return [[base, *others[start : start + size]] for start in range(0, len(others), size)]


def pairing_for(records: Sequence[Record]) -> Pairing:
    """The nearest that cases can get, from what each needed when it was alone."""
    if not _fit(records):
        return "alternating-processes"
    kinds = {tuple(getattr(record.case, name) for name in _OWN_PROCESS) for record in records}
    return "interleaved" if len(kinds) == 1 else "live-processes"


def pairs_per_repeat(pairing: Pairing, repeats: int) -> int:
    """How often cases meet in one round; a process has a speed of its own, so that one pair of them is none."""
    return 1 if pairing == "interleaved" else math.ceil(FRESH_PAIRS / repeats)


def _fit(records: Sequence[Record]) -> bool:
    """Whether the peaks of all of them together leave room, on the host and on each device."""
    left = machine.available_memory()
    if left is not None and sum(_peak(record, "peak_memory") for record in records) > left:
        return False
    for device in {record.case.device for record in records}:
        there = [record for record in records if record.case.device == device]
        sizes = [one.memory for one in there[0].machine.devices if one.name == device and one.memory]
        if sizes and sum(_peak(record, "peak_device_memory") for record in there) > ROOM * sizes[0]:
            return False
    return True


def _peak(record: Record, metric: str) -> float:
    return max(record.values(metric, "process"), default=0.0)
