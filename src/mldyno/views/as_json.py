"""Comparisons and answers as data, in SI units, as `--json` prints them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mldyno.analysis.answers import Answers
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.copying import CopyCost
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PrecisionGain
from mldyno.analysis.scaling import Exponent, Scaling
from mldyno.analysis.tables import column
from mldyno.records import Case
from mldyno.views.loading import loader_json
from mldyno.views.sentences import arms, doubts, named


def case_without(case: Case, *axes: str) -> str:
    """A case's id without what the answer is about."""
    omitted: dict[str, Any] = dict.fromkeys(axes)
    return replace(case, **omitted).id


def machine_json(outcome: Outcome) -> dict[str, Any]:
    """The machine of an outcome by its name, and the file that it was imported from."""
    record = outcome.records[0]
    return {"machine": record.machine.name, "imported_from": record.imported_from or None}


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as data."""
    other, base = arms(comparison)
    return {
        "case": comparison.other.case.id, "base": base, "other": other, "base_case": comparison.base.case.id,
        **{f"{side}_{name}": value for side, outcome in (("base", comparison.base), ("other", comparison.other))
           for name, value in {**machine_json(outcome), "run": column(outcome, "run"),
                               "created": outcome.records[0].created}.items()},
        "value": comparison.value, "ratio": comparison.ratio, "low": comparison.low, "high": comparison.high,
        "verdict": comparison.verdict, "how": comparison.how, "advice": comparison.advice,
        "doubts": [f"{code}: {side.machine}, {side.case.id}: {reason}" for code, side, reason in doubts(comparison)],
    }  # fmt: skip


def mean_json(mean: Mean) -> dict[str, Any]:
    """A mean of comparisons as data."""
    other, base = arms(mean.comparisons[0])
    return {"base": base, "other": other, "cases": len(mean.comparisons), "ratio": mean.ratio, "low": mean.low,
            "high": mean.high, "verdict": mean.verdict}  # fmt: skip


def answers_json(answers: Answers) -> dict[str, Any]:
    """All answers as data."""
    return {
        "crossovers": [_crossover_json(crossover) for crossover in answers.crossovers],
        "precisions": [_precision_json(gain) for gain in answers.precisions],
        "copies": [_copy_json(cost) for cost in answers.copies],
        "scalings": [_scaling_json(scaling) for scaling in answers.scalings],
        "loaders": [loader_json(gain) for gain in answers.loaders],
    }


def _crossover_json(crossover: Crossover) -> dict[str, Any]:
    axis, over, tried = crossover.axis, crossover.over, crossover.tried[0]
    other, base = named(axis, crossover.other), named(axis, crossover.base)
    return {
        "case": case_without(tried.case, axis, over), **machine_json(tried),
        "axis": axis, "base": base, "other": other, "over": over, "verdict": crossover.verdict,
        "crossings": [
            {"size": crossing.size, "low": crossing.low, "high": crossing.high, "below": crossing.below,
             "above": crossing.above, "faster_above": other if crossing.winner > 0 else base}
            for crossing in crossover.crossings
        ],
        "comparisons": [{over: crossover.size(each), **comparison_json(each)} for each in crossover.comparisons],
        "missing": [{"case": outcome.case.id, over: column(outcome, over), "status": outcome.status,
                     "reason": outcome.reason} for outcome in crossover.missing],
    }  # fmt: skip


def _precision_json(gain: PrecisionGain) -> dict[str, Any]:
    outcome = gain.outcome
    return {
        "case": case_without(outcome.case, "precision"), **machine_json(outcome),
        "precision": outcome.case.precision, "status": outcome.status, "reason": outcome.reason, "error": gain.error,
        "comparison": comparison_json(gain.comparison) if gain.comparison else None,
    }  # fmt: skip


def _copy_json(cost: CopyCost) -> dict[str, Any]:
    copying = cost.comparison.other
    return {
        "case": case_without(copying.case, "placement"), **machine_json(copying), "way": cost.way,
        "share": cost.share.value, "low": cost.share.low, "high": cost.share.high, "seconds": cost.seconds,
        "comparison": comparison_json(cost.comparison),
    }  # fmt: skip


def _scaling_json(scaling: Scaling) -> dict[str, Any]:
    def exponent(fit: Exponent) -> dict[str, Any]:
        return {"exponent": fit.value, "low": fit.low, "high": fit.high, "from": fit.shortest, "to": fit.longest,
                "how": fit.how}  # fmt: skip

    first, times = scaling.outcomes[0], [(outcome.case.seq, outcome.step) for outcome in scaling.outcomes]
    return {
        "case": case_without(first.case, "seq"), **machine_json(first),
        "fit": exponent(scaling.fit), "first": exponent(scaling.first), "last": exponent(scaling.last),
        "bends": scaling.bends,
        "steps": [{"seq": seq, "value": t and t.value, "low": t and t.low, "high": t and t.high} for seq, t in times],
    }  # fmt: skip
