"""Which cases take turns: those that differ in one axis only, as many as may live side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno import machine
from mldyno.records import AXES, Case

MOST_ALIVE = 6
_NAMES = tuple(axis.name for axis in AXES)


def differ_in_one(a: Case, b: Case) -> bool:
    """Whether two cases differ in exactly one axis, so that a comparison along it is fair."""
    return sum(bool(getattr(a, name) != getattr(b, name)) for name in _NAMES) == 1


def next_group(cases: Sequence[Case]) -> list[Case]:
    """The first case with those that differ from a member in one axis, in the plan's order."""
    group = [cases[0]]
    grown = True
    while grown and len(group) < MOST_ALIVE:
        grown = False
        for case in cases:
            if case not in group and any(differ_in_one(case, member) for member in group):
                group.append(case)
                grown = True
                break
    return [case for case in cases if case in group]


def room_for_another(resident: Sequence[int | None]) -> bool:
    """Whether one more worker as large as the largest fits beside those that live, with half to spare."""
    left = machine.available_memory()
    largest = max((size for size in resident if size is not None), default=0)
    return left is None or left > 2 * largest
