"""What outcomes say about the questions they were measured for: of single cases, and of the machine as a whole.

One question has one number, wherever it is given. About a machine it is a mean of comparisons between cases that
differ in one thing only. The typical case of each workload counts: its largest size that all devices did, without
copies where that was measured; what smaller ones say, crossovers say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mldyno.analysis import grouped
from mldyno.analysis.comparisons import Comparison, Mean, along, compared, differing, geometric_mean
from mldyno.analysis.gains import (
    LOADER_WORKERS,
    PLAIN,
    CopyCost,
    LoaderGain,
    PrecisionGain,
    copy_costs,
    loader_gains,
    precision_gains,
)
from mldyno.analysis.league import same_work
from mldyno.analysis.outcomes import Outcome, column
from mldyno.analysis.sweeps import Crossover, Scaling, crossovers, scalings
from mldyno.axes import AXIS, WAYS, Case

HOST = "cpu"
# All ways to do the same work; first those that can be measured within one process, which are known best.
HEADLINE_AXES = (*sorted(WAYS, key=lambda name: AXIS[name].own_process), "machine")


@dataclass(frozen=True)
class Answers:
    """The answers about single cases; what their axes do not allow is empty."""

    crossovers: Sequence[Crossover] = ()
    """From which size on one way to do the work beats another."""
    precisions: Sequence[PrecisionGain] = ()
    """Which precision is worth it."""
    copies: Sequence[CopyCost] = ()
    """What the copy costs."""
    scalings: Sequence[Scaling] = ()
    """How time grows with the length of sequences."""
    loaders: Sequence[LoaderGain] = ()
    """How many workers a loader should have."""

    def about(self, value: str) -> Answers:
        """Return those of them that are about the time of a step, or about its energy."""
        swept = [each for each in self.crossovers if each.value == value]
        return replace(self, crossovers=swept) if value == "step" else Answers(swept)


@dataclass(frozen=True)
class Headline:
    """One value of an axis against the first, in one mode: the mean over the cases that count."""

    axis: str
    mean: Mean

    @property
    def case(self) -> Case:
        """A case of the other side: its mode, device and precision are those of all."""
        return self.mean.comparisons[0].other.case

    @property
    def sure(self) -> bool:
        """Whether it says which one is faster, or that neither is."""
        return self.mean.verdict != "inconclusive"


@dataclass(frozen=True)
class Verdicts:
    """The answers about a machine; what its outcomes do not tell is empty."""

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


def answers(outcomes: Sequence[Outcome], axis: str | None = None) -> Answers:
    """Return all answers about cases that these outcomes allow, or those that a comparison along one axis is about."""
    measured = [outcome for outcome in outcomes if not outcome.published]
    ways = [way for way in WAYS if axis in (None, way)]
    with_energy = [outcome for outcome in measured if outcome.figure("energy") is not None]
    return Answers(
        [*crossovers(measured, ways), *crossovers(with_energy, ways, "energy")],
        precision_gains(measured) if axis in (None, "precision") else (),
        copy_costs(measured) if axis in (None, "placement") else (),
        scalings(measured) if axis in (None, "seq") else (),
        loader_gains(measured) if axis in (None, LOADER_WORKERS) else (),
    )


def unreported_comparisons(outcomes: Sequence[Outcome], said: Answers, by: str | None = None) -> list[Comparison]:
    """Return the comparisons along one axis, or along all ways to do the work, that no answer reports."""
    answered: set[tuple[str, Case, Any]] = {("precision", gain.outcome.case, PLAIN) for gain in said.precisions}
    answered |= {("placement", each.other.case, each.base.case.placement)
                 for each in (cost.comparison for cost in said.copies)}  # fmt: skip
    answered |= {(LOADER_WORKERS, step.over_fewest.other.case, step.fewest)
                 for gain in said.loaders for step in gain.steps}  # fmt: skip
    swept = {each.axis for each in said.crossovers}
    comparisons = []
    for axis in [by] if by else [way for way in WAYS if way not in swept]:
        for comparison in compared_along(outcomes, axis):
            base = getattr(comparison.base.case, axis)
            if axis in swept or (axis, comparison.other.case, base) in answered:
                continue
            comparisons.append(comparison)
    return comparisons


def verdicts(outcomes: Sequence[Outcome], published: Sequence[Outcome] = ()) -> Verdicts:
    """Return all that these outcomes say of their machine, each mean with the comparisons that it rests on."""
    ours = [outcome for outcome in outcomes if not outcome.published and outcome.status == "ok"]
    devices = list(dict.fromkeys(outcome.case.device for outcome in ours))
    means = [headline for axis in ("device", "precision") for headline in headlines(ours, axis)]
    means.sort(key=lambda headline: _order(headline.case))
    bases = {"device": HOST, "precision": PLAIN}
    known = [each for each in means if column(each.mean.comparisons[0].base, each.axis) == bases[each.axis]]
    return Verdicts(
        devices=tuple(headline.mean for headline in known if headline.axis == "device"),
        precisions=tuple(headline.mean for headline in known if headline.axis == "precision"),
        batches=tuple(each for each in crossovers(ours, ["device"]) if each.over == "batch" and each.base == HOST),
        copies=tuple(cost for cost in copy_costs(ours) if cost.way != "back"),
        references=_references(typical(ours), published),
        only=devices[0] if len(devices) == 1 else "",
    )


def _order(case: Case) -> tuple[str, str, bool]:
    return case.device, str(case.precision), case.mode != "train"


def headlines(outcomes: Sequence[Outcome], *axes: str) -> list[Headline]:
    """Return the means of comparisons along axes, by mode, sides, machine, and for precisions by device."""
    groups: dict[tuple[Any, ...], list[Comparison]] = {}
    for axis in axes or HEADLINE_AXES:
        for comparison in compared_along(_counted(outcomes, axis), axis):
            base, other = comparison.base, comparison.other
            machine = None if axis == "machine" else other.machine
            device = other.case.device if axis == "precision" else None
            key = (axis, other.case.mode, machine, device, column(base, axis), column(other, axis))
            groups.setdefault(key, []).append(comparison)
    return [Headline(key[0], geometric_mean(comparisons)) for key, comparisons in groups.items()]


def _counted(outcomes: Sequence[Outcome], axis: str) -> list[Outcome]:
    """Return the outcomes that a headline rests on."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    if axis == "device":
        return [outcome for outcome in typical(good) if outcome.case.precision in (PLAIN, None)]
    return typical(good) if axis == "precision" else good


def compared_along(outcomes: Sequence[Outcome], axis: str, value: str = "step") -> list[Comparison]:
    """Return all comparisons along an axis, each with the first value of that axis as base."""
    return compared(along([outcome for outcome in outcomes if outcome.status == "ok"], axis), value)


def compared_in_energy(outcomes: Sequence[Outcome], by: str | None = None) -> list[Comparison]:
    """Return all comparisons of energies, along one axis or all ways to do the same work."""
    return [comparison for axis in ([by] if by else WAYS) for comparison in compared_along(outcomes, axis, "energy")]


@dataclass(frozen=True)
class FrameworkRanking:
    """One case that was compared in three frameworks or more."""

    frameworks: int
    best: Comparison
    """The comparison with the largest speed-up over the base."""
    fastest: Outcome
    rivals: tuple[Comparison, ...]
    """Of the fastest with those that it is not clearly faster than."""


def framework_rankings(comparisons: Sequence[Comparison]) -> list[FrameworkRanking]:
    """Return the fastest framework of each case that was compared in three or more."""
    rankings = []
    along_frameworks = [each for each in comparisons if differing(each.base, each.other) == ["framework"]]
    for group in grouped(along_frameworks, lambda each: each.base.records[0].id).values():
        if len(group) > 1:
            best = max(group, key=lambda each: each.ratio)
            fastest = best.other if best.ratio > 1 else best.base
            rest = [side for side in (best.base, *(each.other for each in group)) if side is not fastest]
            rivals = [each for each in compared([(side, fastest) for side in rest]) if each.verdict != "faster"]
            rankings.append(FrameworkRanking(len(group) + 1, best, fastest, tuple(rivals)))
    return rankings


def means_by_work(comparisons: Sequence[Comparison], axis: str) -> list[Mean]:
    """Return the means of comparisons along an axis for each workload, mode, machine, device and side."""

    def work(comparison: Comparison) -> tuple[Any, ...]:
        base, other = comparison.base, comparison.other
        sides = (column(base, axis), column(other, axis))
        return (other.case.workload, other.case.mode, other.machine, other.case.device, *sides)

    return [geometric_mean(group) for group in grouped(comparisons, work).values()]


def typical(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return, for each workload, the largest size that all devices did, without copies.

    Where no size succeeded on all devices, that of the most.
    """
    devices: dict[tuple[Any, ...], set[str]] = {}
    for outcome in outcomes:
        devices.setdefault((_work(outcome), _size(outcome.case)), set()).add(outcome.case.device)
    best: dict[tuple[Any, ...], tuple[int, tuple[int, int, bool]]] = {}
    for outcome in outcomes:
        work, size = _work(outcome), _size(outcome.case)
        rank = (len(devices[work, size]), size)
        best[work] = max(best.get(work, rank), rank)
    return [outcome for outcome in outcomes if _size(outcome.case) == best[_work(outcome)][1]]


def _work(outcome: Outcome) -> tuple[Any, ...]:
    return outcome.machine, outcome.case.framework, outcome.case.workload, outcome.case.mode


def _size(case: Case) -> tuple[int, int, bool]:
    return case.batch or 0, case.seq or 0, case.placement == "device"


def _references(ours: Sequence[Outcome], published: Sequence[Outcome]) -> tuple[tuple[Comparison, ...], ...]:
    """Return, for each case, the comparisons with published ones, the slowest machine first.

    Those of the accelerators, if there are any. A CPU is compared with published CPUs and accelerators: the
    reader wants to know what there is to gain.
    """
    real = [outcome for outcome in ours if not outcome.records[0].fact("fake_time")]
    on_accelerators = [outcome for outcome in real if outcome.case.device != HOST]
    comparisons = compared(same_work(on_accelerators or real, published))
    groups = grouped(comparisons, lambda comparison: comparison.other.case.id)
    return tuple(tuple(sorted(group, key=lambda comparison: -comparison.ratio)) for group in groups.values())
