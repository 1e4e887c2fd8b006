"""Comparisons and answers as data, in SI units, as `--json` prints them."""

from __future__ import annotations

from typing import Any

import msgspec

from mldyno.analysis.answers import Answers, CopyCost, LoaderGain, PrecisionGain
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.outcomes import Outcome, column
from mldyno.analysis.sweeps import Crossover, Exponent, Scaling
from mldyno.units import Interval
from mldyno.views.claims import arms, marked_figures, named
from mldyno.views.tables import machine_json
from mldyno.views.titles import case_without

Json = dict[str, Any]


def _interval(number: Interval, name: str) -> Json:
    """Return all fields of an interval; its value is called by its meaning."""
    fields = msgspec.to_builtins(number)
    return {name: fields.pop("value"), **fields}


def _about(outcome: Outcome, *without: str) -> Json:
    return {"case": case_without(outcome.case, *without), **machine_json(outcome)}


def comparison_json(comparison: Comparison) -> Json:
    """Return a comparison as data."""
    other, base = arms(comparison)
    sides = {"base": comparison.base, "other": comparison.other}
    return {
        "case": comparison.other.case.id, "base": base, "other": other, "base_case": comparison.base.case.id,
        **{f"{side}_{name}": value for side, outcome in sides.items()
           for name, value in {**machine_json(outcome), "run": column(outcome, "run"),
                               "created": outcome.records[0].created}.items()},
        "value": comparison.value, **_interval(comparison.speedup, "ratio"), "verdict": comparison.verdict,
        "how": comparison.how, "advice": comparison.advice,
        "doubts": [f"{code}: {side.machine}, {side.case.id}: {why}" for code, side, why in marked_figures(comparison)],
    }  # fmt: skip


def mean_json(mean: Mean) -> Json:
    """Return a mean of comparisons as data."""
    other, base = arms(mean.comparisons[0])
    counted = {"base": base, "other": other, "cases": len(mean.comparisons)}
    return {**counted, **_interval(mean.speedup, "ratio"), "verdict": mean.verdict}


def answers_json(answers: Answers) -> Json:
    """Return all answers as data."""
    return {
        "crossovers": [_crossover(crossover) for crossover in answers.crossovers],
        "precisions": [_precision(gain) for gain in answers.precisions],
        "copies": [_copy(cost) for cost in answers.copies],
        "scalings": [_scaling(scaling) for scaling in answers.scalings],
        "loaders": [_loader(gain) for gain in answers.loaders],
    }


def _crossover(crossover: Crossover) -> Json:
    axis, over, tried = crossover.axis, crossover.over, crossover.tried[0]
    sides = {1: named(axis, crossover.other), -1: named(axis, crossover.base)}
    crossings = [_interval(crossing, "size") for crossing in crossover.crossings]
    return {
        **_about(tried, axis, over),
        "axis": axis, "base": sides[-1], "other": sides[1], "over": over, "verdict": crossover.verdict,
        "crossings": [{**crossing, "faster_above": sides[crossing.pop("winner")]} for crossing in crossings],
        "comparisons": [{over: crossover.size(each), **comparison_json(each)} for each in crossover.comparisons],
        "missing": [{"case": outcome.case.id, over: column(outcome, over), "status": outcome.status,
                     "reason": outcome.reason} for outcome in crossover.missing],
    }  # fmt: skip


def _precision(gain: PrecisionGain) -> Json:
    outcome = gain.outcome
    return {
        **_about(outcome, "precision"),
        "precision": outcome.case.precision, "status": outcome.status, "reason": outcome.reason, "error": outcome.error,
        "comparison": comparison_json(gain.comparison) if gain.comparison else None,
    }  # fmt: skip


def _copy(cost: CopyCost) -> Json:
    copying = cost.comparison.other
    return {
        **_about(copying, "placement"), "way": cost.way,
        **_interval(cost.share, "share"), "seconds": cost.seconds, "comparison": comparison_json(cost.comparison),
    }  # fmt: skip


def _scaling(scaling: Scaling) -> Json:
    def exponent(fit: Exponent) -> Json:
        fields = _interval(fit, "exponent")
        return {"from": fields.pop("shortest"), "to": fields.pop("longest"), **fields}

    first, times = scaling.outcomes[0], [(outcome.case.seq, outcome.step) for outcome in scaling.outcomes]
    return {
        **_about(first, "seq"),
        "fit": exponent(scaling.fit), "first": exponent(scaling.first), "last": exponent(scaling.last),
        "bends": scaling.bends,
        "steps": [{"seq": seq, "value": t and t.value, "low": t and t.low, "high": t and t.high} for seq, t in times],
    }  # fmt: skip


def _loader(gain: LoaderGain) -> Json:
    fewest, workers = gain.over_fewest[0].base, []
    for over_fewest, over_best in zip(gain.over_fewest, gain.over_best, strict=True):
        figures = {f"{name}_{part}": getattr(comparison, part)
                   for name, comparison in (("fewest", over_fewest), ("best", over_best))
                   for part in ("ratio", "low", "high", "verdict")}  # fmt: skip
        sides = {"workers": over_best.other.case.loader_workers, "over_best": over_best.base.case.loader_workers}
        workers.append({**sides, **figures})
    return {**_about(fewest), "fewest": fewest.case.loader_workers, "best": gain.best, "workers": workers}
