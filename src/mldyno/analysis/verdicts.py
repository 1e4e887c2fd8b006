"""What outcomes say of a machine as a whole: is the accelerator worth it, does half precision pay, and the like.

Each verdict is a mean of comparisons between cases that differ in one thing only. The typical case of each workload
counts: its largest size that all devices did, without copies where that was measured; what smaller ones say,
crossovers tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mldyno.analysis.comparisons import Comparison, Mean, along, compared, geometric_mean
from mldyno.analysis.copying import CopyCost, copy_costs
from mldyno.analysis.crossover import Crossover, crossovers
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PLAIN
from mldyno.analysis.published import same_work
from mldyno.records import Case

HOST = "cpu"


@dataclass(frozen=True)
class Verdicts:
    """Answers for a whole machine; what its outcomes do not tell is empty."""

    devices: tuple[Mean, ...] = ()
    """Each accelerator against the CPU, in training and in inference."""
    precisions: tuple[Mean, ...] = ()
    """Each other precision against fp32, on each device, in training and in inference."""
    batches: tuple[Crossover, ...] = ()
    """From which batch on an accelerator beats the CPU."""
    copies: tuple[CopyCost, ...] = ()
    """What copies cost."""
    references: tuple[tuple[Comparison, ...], ...] = ()
    """Against published machines in the same work, for each case that has some."""
    only: str = ""
    """The device, where there is just one."""


def verdicts(outcomes: Sequence[Outcome], published: Sequence[Outcome] = ()) -> Verdicts:
    """All that these outcomes say, each verdict with the comparisons that it rests on."""
    ours = [one for one in outcomes if not one.published and one.status == "ok"]
    names = list(dict.fromkeys(one.case.device for one in ours))
    shown = typical(ours)
    in_fp32 = [one for one in shown if one.case.precision == PLAIN]
    devices = [one for one in compared(along(in_fp32, "device")) if one.base.case.device == HOST]
    precisions = [one for one in compared(along(shown, "precision")) if one.base.case.precision == PLAIN]
    costs = [one for one in copy_costs(ours) if one.way != "back"]
    return Verdicts(
        devices=_means(devices, "device", "mode"),
        precisions=_means(precisions, "device", "precision", "mode"),
        batches=tuple(one for one in crossovers(ours, ["device"]) if one.over == "batch" and one.base == HOST),
        copies=tuple(costs),
        references=_references(shown, published),
        only=names[0] if len(names) == 1 else "",
    )


def typical(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Of the cases of a workload that differ in sizes and placement: the largest that all devices did, without copies.

    Where no size came out well on all devices, that of the most.
    """
    devices: dict[tuple[Any, ...], set[str]] = {}
    for one in outcomes:
        devices.setdefault((_work(one), _size(one.case)), set()).add(one.case.device)
    best: dict[tuple[Any, ...], tuple[int, tuple[int, int, bool]]] = {}
    for one in outcomes:
        rank = (len(devices[_work(one), _size(one.case)]), _size(one.case))
        best[_work(one)] = max(best.get(_work(one), rank), rank)
    return [one for one in outcomes if _size(one.case) == best[_work(one)][1]]


def _work(outcome: Outcome) -> tuple[Any, ...]:
    return outcome.machine, outcome.case.framework, outcome.case.workload, outcome.case.mode


def _size(case: Case) -> tuple[int, int, bool]:
    return case.batch or 0, case.seq or 0, case.placement == "device"


def _means(comparisons: Sequence[Comparison], *axes: str) -> tuple[Mean, ...]:
    """One mean for each combination of values on these axes, in the order they came."""
    found: dict[tuple[Any, ...], list[Comparison]] = {}
    for one in comparisons:
        found.setdefault(tuple(getattr(one.other.case, name) for name in axes), []).append(one)
    return tuple(geometric_mean(several) for _, several in sorted(found.items(), key=lambda item: _order(item[0])))


def _order(values: tuple[Any, ...]) -> tuple[str, ...]:
    """Training comes before inference."""
    return tuple("" if value == "train" else str(value) for value in values)


def _references(ours: Sequence[Outcome], published: Sequence[Outcome]) -> tuple[tuple[Comparison, ...], ...]:
    """For each case the comparisons with published ones, the slowest machine first.

    Those of the accelerators, if there are any. A CPU stands beside published CPUs and accelerators alike: the
    reader wants to know what there is to gain.
    """
    found: dict[str, list[Comparison]] = {}
    real = [one for one in ours if not one.records[0].facts.get("fake_time")]
    for one in compared(same_work([one for one in real if one.case.device != HOST] or real, published)):
        found.setdefault(one.other.case.id, []).append(one)
    return tuple(tuple(sorted(several, key=lambda one: -one.ratio)) for several in found.values())
