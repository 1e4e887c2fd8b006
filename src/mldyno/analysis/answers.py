"""Answers to the questions that outcomes were measured for: about single cases, and about the machine as a whole.

A question has the same number wherever it is shown. About a machine it is a mean of comparisons between cases that
differ in one axis only. The typical case of each workload counts: its largest size that all devices completed, without
copies where that was measured. Smaller sizes are the subject of crossovers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mldyno.analysis import grouped
from mldyno.analysis.comparisons import (
    Comparison,
    Mean,
    alike,
    along,
    compare,
    compared,
    differing_axes,
    geometric_mean,
)
from mldyno.analysis.league import same_work
from mldyno.analysis.outcomes import Outcome, column
from mldyno.analysis.sweeps import Crossover, Scaling, crossovers, scalings
from mldyno.axes import AXIS, WAYS, Case
from mldyno.units import Interval

HOST, PLAIN, LOADER_WORKERS = "cpu", "fp32", "loader_workers"
COPIES = (("device", "host", "in"), ("device", "roundtrip", "in and back"), ("host", "roundtrip", "back"))
# All ways to do the same work; first those that can be measured within one process, and so most precisely.
HEADLINE_AXES = (*sorted(WAYS, key=lambda name: AXIS[name].own_process), "machine")


@dataclass(frozen=True)
class PrecisionGain:
    """A precision against fp32; without a comparison where it did not succeed."""

    outcome: Outcome
    comparison: Comparison | None

    @property
    def held_back_by_layout(self) -> bool:
        """True if convolutions of 16 bits ran contiguous on CUDA, where tensor cores want channels last."""
        case, convolutions = self.outcome.case, bool(self.outcome.records[0].fact("convolutions"))
        halved = (case.precision or PLAIN).endswith(("fp16", "bf16"))
        return halved and case.device.startswith("cuda") and case.layout == "contiguous" and convolutions


def precision_gains(outcomes: Sequence[Outcome]) -> list[PrecisionGain]:
    """Return each precision against fp32 in the same work, the fastest first, and last what did not succeed."""
    gains = []
    for group in alike(outcomes, "precision"):
        plain = next((o for o in group if o.case.precision == PLAIN and o.status == "ok"), None)
        if plain is not None:
            against_plain = [PrecisionGain(o, compare(plain, o)) for o in group if o.case.precision != PLAIN]
            gains += sorted(against_plain, key=lambda gain: -gain.comparison.ratio if gain.comparison else 0.0)
    return gains


@dataclass(frozen=True)
class CopyCost:
    """The cost of copying one way: a share of the step that copies, with a 95 % interval where there is one."""

    way: str  # in, back, or in and back
    comparison: Comparison  # the step that copies against the one that does not

    @property
    def share(self) -> Interval:
        """The share of the step; negative where the step that copies was the faster one."""
        return self.comparison.speedup.complement

    @property
    def seconds(self) -> float | None:
        """The share in s, of the step time that was measured alone."""
        step = self.comparison.other.step
        return None if step is None else self.share.value * step.value


def copy_costs(outcomes: Sequence[Outcome]) -> list[CopyCost]:
    """Return the cost of each copy, where steps with and without it were measured."""
    costs = []
    for group in alike(outcomes, "placement"):
        placed = {str(outcome.case.placement): outcome for outcome in group if outcome.status == "ok"}
        pairs = [(placed.get(less), placed.get(more), way) for less, more, way in COPIES]
        costs += [CopyCost(way, comparison) for less, more, way in pairs
                  if less and more and (comparison := compare(less, more))]  # fmt: skip
    return costs


@dataclass(frozen=True)
class LoaderGain:
    """A case with two or more numbers of loader workers: two comparisons for each number but the smallest."""

    over_fewest: tuple[Comparison, ...]
    over_best: tuple[Comparison, ...]  # against the smaller number that was clearly fastest

    @property
    def best(self) -> int:
        """The number from which on no larger one was clearly faster."""
        faster = [each.other for each in self.over_best if each.verdict == "faster"]
        return [self.over_fewest[0].base, *faster][-1].case.loader_workers


def loader_gains(outcomes: Sequence[Outcome]) -> list[LoaderGain]:
    """Return the gains for each case that was measured with two numbers of workers or more."""
    gains = []
    for group in alike([outcome for outcome in outcomes if outcome.status == "ok"], LOADER_WORKERS):
        fewest, *more = sorted(group, key=lambda outcome: outcome.case.loader_workers)
        best, pairs = fewest, list[tuple[Comparison, Comparison]]()
        for outcome in more:
            over_fewest, over_best = compare(fewest, outcome), compare(best, outcome)
            if over_fewest and over_best:
                pairs.append((over_fewest, over_best))
                best = outcome if over_best.verdict == "faster" else best
        gains += [LoaderGain(*zip(*pairs, strict=True))] if pairs else []
    return gains


@dataclass(frozen=True)
class Answers:
    """The answers about single cases; empty where their axes have none."""

    crossovers: Sequence[Crossover] = ()  # the size from which on one way to do the work beats another
    precisions: Sequence[PrecisionGain] = ()  # which precision is worth it
    copies: Sequence[CopyCost] = ()  # what copies cost
    scalings: Sequence[Scaling] = ()  # how time grows with the sequence length
    loaders: Sequence[LoaderGain] = ()  # how many workers a loader should have

    def about(self, value: str) -> Answers:
        """Return the answers about the time of a step, or about its energy."""
        swept = [each for each in self.crossovers if each.value == value]
        return replace(self, crossovers=swept) if value == "step" else Answers(swept)


@dataclass(frozen=True)
class Verdicts:
    """The answers about a machine; empty where its outcomes have none."""

    devices: tuple[Mean, ...] = ()  # each accelerator against the CPU, in training and in inference
    precisions: tuple[Mean, ...] = ()  # each other precision against fp32, on each device, in training and in inference
    batches: tuple[Crossover, ...] = ()  # the batch from which on an accelerator beats the CPU
    copies: tuple[CopyCost, ...] = ()  # what copies cost
    references: tuple[tuple[Comparison, ...], ...] = ()
    """Comparisons with published machines in the same work, for each case that has some."""
    only: str = ""  # the device, where there is just one


def answers(outcomes: Sequence[Outcome], axis: str | None = None) -> Answers:
    """Return all answers about cases that these outcomes allow, or those along one axis."""
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


def unreported(outcomes: Sequence[Outcome], answers: Answers, by: str | None = None) -> list[Comparison]:
    """Return the comparisons along one axis, or along all ways to do the work, that no answer reports."""
    by_axis = {"precision": [gain.comparison for gain in answers.precisions if gain.comparison],
               "placement": [cost.comparison for cost in answers.copies],
               LOADER_WORKERS: [each for gain in answers.loaders for each in gain.over_fewest]}  # fmt: skip
    answered = {(axis, each.other.case, column(each.base, axis)) for axis in by_axis for each in by_axis[axis]}
    swept = {each.axis for each in answers.crossovers}
    return [each for axis in ([by] if by else WAYS) if axis not in swept for each in comparisons_along(outcomes, axis)
            if (axis, each.other.case, column(each.base, axis)) not in answered]  # fmt: skip


def verdicts(outcomes: Sequence[Outcome], published: Sequence[Outcome] = ()) -> Verdicts:
    """Return all answers about the machine, each mean with the comparisons that it rests on."""
    ours = [outcome for outcome in outcomes if not outcome.published and outcome.status == "ok"]
    devices = list(dict.fromkeys(outcome.case.device for outcome in ours))

    def means_over(axis: str, base: str) -> tuple[Mean, ...]:
        means = [mean for mean in headlines(ours, axis) if column(mean.base, axis) == base]
        return tuple(sorted(means, key=lambda mean: order(mean.other.case)))

    def order(case: Case) -> tuple[str, str, bool]:
        return case.device, str(case.precision), case.mode != "train"

    return Verdicts(
        devices=means_over("device", HOST),
        precisions=means_over("precision", PLAIN),
        batches=tuple(each for each in crossovers(ours, ["device"]) if each.over == "batch" and each.base == HOST),
        copies=tuple(cost for cost in copy_costs(ours) if cost.way != "back"),
        references=_references(typical(ours), published),
        only=devices[0] if len(devices) == 1 else "",
    )


def headlines(outcomes: Sequence[Outcome], *axes: str) -> list[Mean]:
    """Return the means of comparisons along axes, by mode, sides and machine; those of precisions by device too."""
    means = []
    for axis in axes or HEADLINE_AXES:

        def shared(comparison: Comparison, axis: str = axis) -> tuple[Any, ...]:
            base, other = comparison.base, comparison.other
            machine = None if axis == "machine" else other.machine
            device = other.case.device if axis == "precision" else None
            return other.case.mode, machine, device, column(base, axis), column(other, axis)

        good = [outcome for outcome in outcomes if outcome.status == "ok"]
        good = typical(good) if axis in ("device", "precision") else good
        if axis == "device":
            good = [outcome for outcome in good if outcome.case.precision in (PLAIN, None)]
        groups = grouped(comparisons_along(good, axis), shared)
        means += [geometric_mean(comparisons, axis) for comparisons in groups.values()]
    return means


def comparisons_along(outcomes: Sequence[Outcome], axis: str, value: str = "step") -> list[Comparison]:
    """Return all comparisons along an axis, each with the first value of that axis as base."""
    return compared(along([outcome for outcome in outcomes if outcome.status == "ok"], axis), value)


def energy_comparisons(outcomes: Sequence[Outcome], by: str | None = None) -> list[Comparison]:
    """Return all comparisons of energies, along one axis or all ways to do the same work."""
    return [comparison for axis in ([by] if by else WAYS) for comparison in comparisons_along(outcomes, axis, "energy")]


@dataclass(frozen=True)
class Ranking:
    """Cases that differ along one axis: the fastest one per item, and how it compares with each of the rest."""

    gain: Comparison | None  # of the fastest over the base, unless it is the base
    rest: list[Comparison]  # of the fastest with each other side
    fastest: Outcome

    @property
    def rivals(self) -> list[Comparison]:
        """Those that are not clearly slower."""
        return [each for each in self.rest if each.verdict != "faster"]


def rankings(comparisons: Sequence[Comparison], axis: str) -> list[Ranking]:
    """Rank the cases that differ along an axis alone."""
    ranked = []
    along_axis = [each for each in comparisons if differing_axes(each.base, each.other) == [axis]]
    for group in grouped(along_axis, lambda each: each.base.records[0].id).values():
        best = max(group, key=lambda each: each.ratio)
        fastest, gain = (best.other, best) if best.ratio > 1 else (best.base, None)
        rest = [side for side in (best.base, *(each.other for each in group)) if side is not fastest]
        ranked.append(Ranking(gain, compared([(side, fastest) for side in rest]), fastest))
    return ranked


def means_by_work(comparisons: Sequence[Comparison], axis: str) -> list[Mean]:
    """Return the means of comparisons along an axis for each workload, mode, machine, device and side."""

    def work(comparison: Comparison) -> tuple[Any, ...]:
        base, other = comparison.base, comparison.other
        sides = (column(base, axis), column(other, axis))
        return other.case.workload, other.case.mode, other.machine, other.case.device, *sides

    return [geometric_mean(group, axis) for group in grouped(comparisons, work).values()]


def typical(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of each workload's largest size that all, or else most, devices did, without copies."""
    best = {}
    for work, group in grouped(outcomes, _work).items():
        sizes = grouped(group, lambda outcome: _size(outcome.case))
        best[work] = max(sizes, key=lambda size: (len({outcome.case.device for outcome in sizes[size]}), size))
    return [outcome for outcome in outcomes if _size(outcome.case) == best[_work(outcome)]]


def _work(outcome: Outcome) -> tuple[Any, ...]:
    return outcome.machine, outcome.case.framework, outcome.case.workload, outcome.case.mode


def _size(case: Case) -> tuple[int, int, bool]:
    return case.batch or 0, case.seq or 0, case.placement == "device"


def _references(ours: Sequence[Outcome], published: Sequence[Outcome]) -> tuple[tuple[Comparison, ...], ...]:
    """Return each case's comparisons with published ones, the slowest machine first; of the CPU only if alone."""
    real = [outcome for outcome in ours if not outcome.records[0].fact("fake_time")]
    on_accelerators = [outcome for outcome in real if outcome.case.device != HOST]
    comparisons = compared(same_work(on_accelerators or real, published))
    groups = grouped(comparisons, lambda comparison: comparison.other.case.id)
    return tuple(tuple(sorted(group, key=lambda comparison: -comparison.ratio)) for group in groups.values())
