"""The few numbers that sum up many: devices, precisions and placements against the first of each, over all work.

Of devices and precisions the typical cases tell, as they do in the verdicts: one number for one question, wherever it
is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, Mean, along, compared, geometric_mean
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PLAIN
from mldyno.analysis.tables import column
from mldyno.analysis.verdicts import typical
from mldyno.axes import AXIS, WAYS

# All ways to do the same work; first those that can be measured within one process, which are known best.
QUESTIONS = (*sorted(WAYS, key=lambda name: AXIS[name].own_process), "machine")


@dataclass(frozen=True)
class Headline:
    """One value of an axis against another in one mode, on one machine unless machines are compared."""

    axis: str
    mode: str | None
    mean: Mean

    @property
    def sure(self) -> bool:
        """Whether it says which one is faster, or that neither is."""
        return self.mean.verdict != "inconclusive"


def compared_along(outcomes: Sequence[Outcome], axis: str) -> list[Comparison]:
    """All comparisons along an axis, each with the first value of that axis as base."""
    return compared(along([one for one in outcomes if one.status == "ok"], axis))


def headlines(outcomes: Sequence[Outcome]) -> list[Headline]:
    """The means of all comparisons, by axis, mode and side."""
    found: dict[tuple[object, ...], list[Comparison]] = {}
    for axis in QUESTIONS:
        for one in compared_along(_telling(outcomes, axis), axis):
            where = None if axis == "machine" else one.other.machine
            side = (axis, one.other.case.mode, where, column(one.base, axis), column(one.other, axis))
            found.setdefault(side, []).append(one)
    return [Headline(str(side[0]), several[0].other.case.mode, geometric_mean(several))
            for side, several in found.items()]  # fmt: skip


def _telling(outcomes: Sequence[Outcome], axis: str) -> list[Outcome]:
    """The outcomes that a headline rests on."""
    good = [one for one in outcomes if one.status == "ok"]
    if axis == "device":
        return [one for one in typical(good) if one.case.precision in (PLAIN, None)]
    return typical(good) if axis == "precision" else good


def means_by_work(comparisons: Sequence[Comparison], axis: str) -> list[Mean]:
    """The means of comparisons along an axis for each workload, mode, machine, device and side."""
    found: dict[tuple[object, ...], list[Comparison]] = {}
    for one in comparisons:
        case = one.other.case
        key = (
            case.workload,
            case.mode,
            one.other.machine,
            case.device,
            column(one.base, axis),
            column(one.other, axis),
        )
        found.setdefault(key, []).append(one)
    return [geometric_mean(several) for several in found.values()]
