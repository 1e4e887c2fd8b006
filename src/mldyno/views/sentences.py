"""Verdicts and records in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mldyno.analysis.comparisons import DELTA, Comparison, Mean, differing
from mldyno.analysis.estimates import step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import column
from mldyno.records import Machine, Record, Warning_
from mldyno.store.figures import marks
from mldyno.units import count, digits, show, show_bytes, show_error, show_half_width, show_percent, show_seconds

PAIRING = {
    "interleaved": "in one process",
    "live-processes": "live processes taking turns",
    "alternating-processes": "whole processes in alternation",
}


def factor(comparison: Comparison | Mean) -> str:
    """The ratio with its interval, turned so that it reads as 'so many times'."""
    ratio, low, high = comparison.ratio, comparison.low, comparison.high
    if ratio < 1:
        ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
    if low is None or high is None:
        return f"{digits(ratio)}x"
    error = (high - low) / 2
    shown = digits(ratio, error)
    decimals = len(shown.partition(".")[2])
    while 1 < low < 1.01 and decimals < 4 and float(f"{low:.{decimals}f}") == 1:  # so that the sentence adds up
        decimals += 1
        shown = f"{ratio:.{decimals}f}"
    return f"{shown}x ({low:,.{decimals}f}-{high:,.{decimals}f})"


def arms(comparison: Comparison) -> tuple[str, str]:
    """What the two sides differ in, in words: ('roundtrip', 'device')."""
    base, other = comparison.base, comparison.other
    different = differing(base, other)
    if not different:
        return other.records[0].run.id, base.records[0].run.id

    def side(outcome: Outcome) -> str:
        words = [named(name, column(outcome, name)) for name in different]
        return " ".join(words) + (" (published)" if outcome.published else "")

    return side(other), side(base)


def named(axis: str, value: Any) -> str:
    """A value of an axis as it stands in a sentence: mps, roundtrip, batch 16, threads as usual."""
    if value is None or isinstance(value, bool):
        return f"{axis} as usual" if value is None else f"{'' if value else 'not '}compiled"
    return f"{axis} {value}" if isinstance(value, int) else str(value)


def sentence(comparison: Comparison) -> str:
    """One comparison as a sentence; that a published figure has no interval is said once, below all of them."""
    case = comparison.other.case.id
    if comparison.base.machine == comparison.other.machine and comparison.other.published:
        case += f" on {comparison.other.machine}"
    codes = dict.fromkeys(code for code, _ in _doubts(comparison))
    why = "" if _published(comparison) else comparison.advice
    notes = "; ".join([comparison.how, *codes, *([why] if why else [])])
    return f"{case}: {claim(comparison, *arms(comparison))} [{notes}]"


def mean_sentence(found: Mean) -> str:
    """The mean of several comparisons as a sentence."""
    several = found.comparisons
    doubtful = sum(bool(_doubts(one)) for one in several)
    among = f", {doubtful} of them doubtful" if doubtful else ""
    why = "" if found.low is not None or any(map(_published, several)) else ", since not each case has one"
    return f"geometric mean of {len(several)} cases{among}: {claim(found, *arms(several[0]))}{why}"


def claim(found: Comparison | Mean, other: str, base: str) -> str:
    """What is said of two sides, and no more than is known."""
    if found.verdict == "equivalent":
        return f"{other} and {base} are equivalent (within {show_percent(DELTA)})"
    if found.verdict != "inconclusive":
        return f"{other} is {factor(found)} {found.verdict} than {base}"
    way = "faster" if found.ratio > 1 else "slower"
    several = found.comparisons if isinstance(found, Mean) else (found,)
    known = "; can't tell" if found.low is not None else "" if any(map(_published, several)) else "; no interval"
    return f"{other} looks {factor(found)} {way} than {base}{known}"


def _published(comparison: Comparison) -> bool:
    return comparison.base.published or comparison.other.published


def _doubts(comparison: Comparison) -> list[tuple[str, str]]:
    """What speaks against a published figure of either side: suspect or superseded, and the reason with its place."""
    return [
        (code, f"{side.machine}, {side.case.id}: {reason}")
        for side in (comparison.base, comparison.other)
        if side.published
        for code, reason in marks(side.records[0])
    ]


def footers(comparisons: Sequence[Comparison]) -> list[str]:
    """What is said once for all comparisons: why figures are doubted, and that published ones have no interval."""
    lines = list(dict.fromkeys(f"{code}: {told}" for one in comparisons for code, told in _doubts(one)))
    if any(map(_published, comparisons)):
        lines.append("a published figure has no interval: how far off a factor with one may be is not known")
    return lines


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as data."""
    other, base = arms(comparison)
    return {
        "case": comparison.other.case.id, "base": base, "other": other, "base_case": comparison.base.case.id,
        "base_machine": comparison.base.machine, "other_machine": comparison.other.machine,
        "ratio": comparison.ratio, "low": comparison.low, "high": comparison.high,
        "verdict": comparison.verdict, "how": comparison.how, "advice": comparison.advice,
        "doubts": [f"{code}: {told}" for code, told in _doubts(comparison)],
    }  # fmt: skip


def mean_json(found: Mean) -> dict[str, Any]:
    """A mean of comparisons as data."""
    other, base = arms(found.comparisons[0])
    return {"base": base, "other": other, "cases": len(found.comparisons), "ratio": found.ratio, "low": found.low,
            "high": found.high, "verdict": found.verdict}  # fmt: skip


def trust(outcome: Outcome) -> str:
    """How far an outcome can be trusted: steady or not, how well it is known, and what spoke against it."""
    if outcome.published:
        return "a published figure, as it was published"
    if not outcome.good:
        return f"no number: {outcome.reason}" if outcome.status == "unsteady" else f"no number: {outcome.status}"
    estimate = outcome.step
    parts = [_steadiness(outcome)]
    if estimate is not None and estimate.half_width is not None:
        shown = show_error(estimate.value, estimate.half_width).strip()
        parts.append(f"{shown} over {count(estimate.processes, 'process')}")
    doubts = list(dict.fromkeys(warning.code for warning in outcome.warnings))
    bad = [record for record in outcome.records if record.status != "ok"]
    if bad:
        doubts.insert(0, f"{len(bad)} of {count(len(outcome.records), 'process')} {bad[0].status} ({bad[0].reason})")
    return ", ".join(parts) + (f"; but {', '.join(doubts)}" if doubts else "")


def _steadiness(outcome: Outcome) -> str:
    judged = [record.facts.get("warmup_steady") for record in outcome.good]
    if all(one is True for one in judged):
        return "steady"
    return "too few steps to judge if steady" if None in judged else "steady at last"


def trust_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """A trust line for every outcome, and below what the warnings mean and what to do, once each."""
    return [*(f"trust {outcome.case.id}: {trust(outcome)}" for outcome in outcomes), *_meanings(outcomes)]


def trust_summary(outcomes: Sequence[Outcome]) -> list[str]:
    """How far many outcomes can be trusted, in one line; and what the warnings mean, each with its number of cases."""
    good = [one for one in outcomes if one.good]
    steady = sum(_steadiness(one) == "steady" for one in good)
    known = [found.half_width / found.value for one in good if (found := step_time(one.good)) and found.half_width]
    spans = f"; known to {_between(min(known), max(known))}" if known else ""
    if good and len(known) < len(good):
        spans += f", {count(len(good) - len(known), 'case')} of long steps without an interval"
    several = Counter(code for one in outcomes for code in {warning.code for warning in one.warnings})
    doubts = "; but " + ", ".join(f"{code} ({number})" for code, number in several.items()) if several else ""
    first = f"trust: {len(good)} of {count(len(outcomes), 'case')} came out well, {steady} of them surely steady"
    return [f"{first}{spans}{doubts}", *_meanings(outcomes)]


def _between(least: float, most: float) -> str:
    shown = [f"±{show_half_width(one)}" for one in (least, most)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} at best, {shown[1]} at worst"


def _meanings(outcomes: Sequence[Outcome]) -> list[str]:
    """What the warnings of outcomes mean, and what to do, once each."""
    told: dict[str, list[Warning_]] = {}
    for warning in (one for outcome in outcomes for one in outcome.warnings):
        if warning not in told.setdefault(warning.code, []):
            told[warning.code].append(warning)
    return [
        f"  {code}: {' / '.join(one.message for one in several)}. Next: {several[0].hint}."
        for code, several in told.items()
    ]


def machine_lines(machine: Machine) -> list[str]:
    """A machine in two lines."""
    memory = show_bytes(machine.memory) if machine.memory else "unknown memory"
    cores = count(machine.cores, "core") if machine.cores else "? cores"
    virtual = {True: "virtual machine", False: "real hardware", None: "virtual or not: unknown"}[machine.virtualised]
    return [
        f"{machine.name}",
        f"{machine.system} {machine.release}, {machine.arch}, {cores}, {memory}, {virtual}, power: {machine.power}",
    ]


def headline(record: Record) -> str:
    """One line for one record: its time and how well it is known, or what became of it."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    if not record.alone:
        return f"measured against the others, {PAIRING[record.run.pairing]}"
    estimate = step_time([record])
    if estimate is None:
        known = [f"{s.metric.replace('_', ' ')} {show(s.values[0], s.unit)}" for s in record.series if s.values]
        return ", ".join(known) or "ok, without a figure"
    width = estimate.half_width
    step = "run" if record.facts.get("end_to_end") else "step"
    return f"{show_seconds(estimate.value, width)} a {step}{show_error(estimate.value, width)}"
