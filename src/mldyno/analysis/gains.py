"""What a setting gains or costs: precisions over fp32, copies to and from the device, loader workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mldyno.analysis.comparisons import Comparison, alike, compare
from mldyno.analysis.outcomes import Outcome
from mldyno.units import Interval

PLAIN = "fp32"


@dataclass(frozen=True)
class PrecisionGain:
    """A precision against fp32; without a comparison where it did not succeed."""

    outcome: Outcome
    comparison: Comparison | None

    @property
    def error(self) -> float | None:
        return error_of(self.outcome)

    @property
    def held_back_by_layout(self) -> bool:
        """Whether convolutions of 16 bits ran contiguous on CUDA, where tensor cores want their channels last."""
        case, record = self.outcome.case, self.outcome.records[0]
        halved = (case.precision or PLAIN).endswith(("fp16", "bf16"))
        return bool(
            halved and case.device.startswith("cuda") and case.layout == "contiguous" and record.fact("convolutions")
        )


def error_of(outcome: Outcome) -> float | None:
    """Return the largest relative difference from the results in fp32 on the CPU; None where that was not looked at."""
    errors = [record.checks.error for record in outcome.good if record.checks.error is not None]
    return max(errors, default=None)


def precision_gains(outcomes: Sequence[Outcome]) -> list[PrecisionGain]:
    """Return each precision against fp32 in the same work, the fastest first, and last what did not succeed."""
    gained = []
    for group in alike(outcomes, "precision"):
        plain = next((o for o in group if o.case.precision == PLAIN and o.status == "ok"), None)
        if plain is not None:
            compared = [PrecisionGain(o, compare(plain, o)) for o in group if o.case.precision != PLAIN]
            gained += sorted(compared, key=lambda gain: -gain.comparison.ratio if gain.comparison else 0.0)
    return gained


COPIES = (("device", "host", "in"), ("device", "roundtrip", "in and back"), ("host", "roundtrip", "back"))


@dataclass(frozen=True)
class CopyCost:
    """What copying one way takes, as a share of a step that does it, with a 95 % interval where there is one."""

    way: str
    """in, back, or in and back."""
    comparison: Comparison
    """The step that copies against the one that does not."""

    @property
    def share(self) -> Interval:
        """The share of the step; negative where the step that copies was the faster one."""
        return self.comparison.speedup.complement

    @property
    def seconds(self) -> float | None:
        """The share in s, of the step as it took alone."""
        step = self.comparison.other.step
        return None if step is None else self.share.value * step.value


def copy_costs(outcomes: Sequence[Outcome]) -> list[CopyCost]:
    """Return the cost of each copy that these outcomes tell."""
    costs = []
    for group in alike(outcomes, "placement"):
        placed = {str(outcome.case.placement): outcome for outcome in group if outcome.status == "ok"}
        for less, more, way in COPIES:
            if less in placed and more in placed:
                comparison = compare(placed[less], placed[more])
                costs += [CopyCost(way, comparison)] if comparison is not None else []
    return costs


LOADER_WORKERS = "loader_workers"


@dataclass(frozen=True)
class MoreWorkers:
    """One number of workers."""

    over_fewest: Comparison
    over_best: Comparison
    """Against the smaller number that was fastest for sure."""

    @property
    def workers(self) -> int:
        return self.over_best.other.case.loader_workers

    @property
    def fewest(self) -> int:
        return self.over_fewest.base.case.loader_workers

    @property
    def best(self) -> int:
        return self.over_best.base.case.loader_workers


@dataclass(frozen=True)
class LoaderGain:
    """One case with several numbers of loader workers."""

    steps: tuple[MoreWorkers, ...]
    """From the second number on, in order."""

    @property
    def best(self) -> int:
        """The number from which on no larger one was surely faster."""
        faster = [step.workers for step in self.steps if step.over_best.verdict == "faster"]
        return faster[-1] if faster else self.steps[0].fewest


def loader_gains(outcomes: Sequence[Outcome]) -> list[LoaderGain]:
    """Return the gains for each case that was measured with two numbers of workers or more."""
    gains = []
    for group in alike([outcome for outcome in outcomes if outcome.status == "ok"], LOADER_WORKERS):
        fewest, *more = sorted(group, key=lambda outcome: outcome.case.loader_workers)
        best, steps = fewest, list[MoreWorkers]()
        for outcome in more:
            over_fewest, over_best = compare(fewest, outcome), compare(best, outcome)
            if over_fewest is None or over_best is None:
                continue
            steps.append(MoreWorkers(over_fewest, over_best))
            best = outcome if over_best.verdict == "faster" else best
        gains += [LoaderGain(tuple(steps))] if steps else []
    return gains
