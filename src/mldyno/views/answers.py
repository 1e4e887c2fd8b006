"""Answers in plain words and as data; each with its interval, how it was obtained, or what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from mldyno.analysis.answers import Answers
from mldyno.analysis.comparisons import DELTA, Comparison
from mldyno.analysis.copying import CopyCost
from mldyno.analysis.crossover import Crossing, Crossover
from mldyno.analysis.estimates import step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PLAIN, PrecisionGain, error_of
from mldyno.analysis.scaling import Exponent, Scaling
from mldyno.analysis.tables import column
from mldyno.records import Case
from mldyno.units import count, digits, show_error, show_percent, show_seconds
from mldyno.views.sentences import arms, claim, comparison_json, factor, named
from mldyno.views.tables import aligned

CANT_TELL = "can't tell"
WIDE = 0.1  # half of an exponent's interval from which on it is said how to narrow it
FAINT = 0.001  # an error under this is not told more closely


def answer_lines(found: Answers) -> list[str]:
    """All answers, one sentence each; what a crossover tells of a precision over all sizes is not told of each."""
    swept = {(tried.case, tried.machine) for one in found.crossovers if _of_precisions(one) for tried in one.tried}
    apart = [one for one in found.precisions if (one.outcome.case, one.outcome.machine) not in swept]
    return [
        *map(crossover_sentence, found.crossovers),
        *map(_precision_sentence, apart),
        *map(_copy_sentence, found.copies),
        *map(_scaling_sentence, found.scalings),
    ]


def answer_section(found: Answers) -> list[str]:
    """All answers as the end of an output; nothing where there are none."""
    lines = answer_lines(found)
    return ["", "what this says:", *(f"- {line}" for line in lines)] if lines else []


def answers_json(found: Answers) -> dict[str, Any]:
    """All answers as data, in SI units."""
    return {
        "crossovers": [_crossover_json(one) for one in found.crossovers],
        "precisions": [_precision_json(one) for one in found.precisions],
        "copies": [_copy_json(one) for one in found.copies],
        "scalings": [_scaling_json(one) for one in found.scalings],
    }


def _without(case: Case, *axes: str) -> str:
    """A case's id without what the answer is about."""
    left_away: dict[str, Any] = dict.fromkeys(axes)
    return replace(case, **left_away).id


def _range(low: float | None, high: float | None, decimals: int, unit: str = "") -> str:
    """An interval behind its value: ' (22-26 %)'; nothing where there is none."""
    if low is None or high is None:
        return ""
    to = " to " if low < 0 else "-"
    return f" ({low:,.{decimals}f}{to}{high:,.{decimals}f}{unit})"


def _became(status: str) -> str:
    """What became of a case that is not ok, as a verb."""
    return {"failed": "failed", "timeout": "timed out", "oom": "ran out of memory"}.get(status, f"is {status}")


def _noted(text: str, *notes: str) -> str:
    told = "; ".join(filter(None, notes))
    return f"{text} [{told}]" if told else text


# -- from which size on one beats the other ------------------------------------------------------


def crossover_sentence(found: Crossover) -> str:
    """From which size on one beats the other, at which sizes that is clear, and what is not known."""
    case = _without(found.tried[0].case, found.axis, found.over)
    parts = [_headline(found), *_gaps(found)]
    if _of_precisions(found):
        others = [one for one in found.tried if one.case.precision == found.other and one.status == "ok"]
        parts += [_off(others, f"{found.other}'s")] if others else []
    return _noted(f"{case}: {'; '.join(parts)}", *_crossover_notes(found))


def _of_precisions(found: Crossover) -> bool:
    return (found.axis, found.base) == ("precision", PLAIN)


def _sides(found: Crossover) -> tuple[str, str]:
    """The two sides in words: the other one, and the base."""
    return named(found.axis, found.other), named(found.axis, found.base)


def _headline(found: Crossover) -> str:
    other, base = _sides(found)
    if not found.comparisons:
        return f"{other} and {base} can't be compared at any {found.over}"
    first, last = found.comparisons[0], found.comparisons[-1]
    if first is last:
        only = f"{found.over} {found.size(first):,}, the only one that both were measured at"
        return f"{claim(first, other, base)} at {only}"
    everywhere = f"{found.over} from {found.size(first):,} to {found.size(last):,}"
    ends = f"{factor(first)} at {found.size(first):,}, {factor(last)} at {found.size(last):,}"
    regions, crossed = ", ".join(_regions(found)), found.crossings
    told = {
        "always": f"{other} beats {base} at every {everywhere}: {ends}",
        "never": f"{other} beats {base} at no {everywhere}: it is slower, {ends}",
        "equivalent": f"{other} and {base} are equivalent (within {show_percent(DELTA)}) at every {everywhere}",
        "open": f"no crossing was seen at any {everywhere}: {regions}",
    }
    if not crossed:
        return told[found.verdict]
    times = f"it crosses {len(crossed)} times: " if len(crossed) > 1 else ""
    return f"{times}{', and '.join(_turn(found, one) for one in crossed)}: {regions}"


def _turn(found: Crossover, crossing: Crossing) -> str:
    """Who beats whom from where on."""
    other, base = _sides(found)
    winner, loser = (other, base) if crossing.winner > 0 else (base, other)
    shown = digits(crossing.size, (crossing.high - crossing.low) / 2)
    decimals = len(shown.partition(".")[2])
    return f"{winner} beats {loser} from {found.over} {shown}{_range(crossing.low, crossing.high, decimals)} on"


def _regions(found: Crossover) -> Iterator[str]:
    """At which sizes what is clear."""
    other, base = _sides(found)
    words = {"faster": f"{other} is faster", "slower": f"{base} is faster", "equivalent": "equivalent"}
    for verdict, several in groupby(found.comparisons, key=lambda one: one.verdict):
        sizes = [found.size(one) for one in several]
        place = f"at {sizes[0]:,}" if len(sizes) == 1 else f"from {sizes[0]:,} to {sizes[-1]:,}"
        yield f"{words.get(verdict, CANT_TELL)} {place}"


def _gaps(found: Crossover) -> Iterator[str]:
    """What did not come out well on either side, from which size on."""
    for value in (found.base, found.other):
        lost = [one for one in found.missing if column(one, found.axis) == value]
        for status, several in groupby(lost, key=lambda one: one.status):
            first, *more = several
            size = f"{found.over} {column(first, found.over):,}"
            name = named(found.axis, value)
            if status == "oom":  # nothing larger was tried
                yield f"{name} {_became(status)} {'from' if more else 'at'} {size}{' on' if more else ''}"
            else:
                others = f" and {count(len(more), 'larger one')}" if more else ""
                yield f"{name} {_became(status)} at {size}{others} ({first.reason})"


def _crossover_notes(found: Crossover) -> Iterator[str]:
    paired = sum(one.how.startswith("paired") for one in found.comparisons)
    kinds = {"paired": paired, "archived": len(found.comparisons) - paired}
    yield ", ".join(f"{kind} at {count(number, 'size')}" for kind, number in kinds.items() if number)
    if found.verdict == "crosses":
        straight = ", which are only two: a bend would not be seen" if len(found.points) == 2 else ""
        yield f"interpolated between them{straight}"
    elif found.verdict == "never" and not found.missing:
        yield "nothing larger was measured"
    elif found.verdict == "always" and found.size(found.comparisons[0]) > 1:
        yield "nothing smaller was measured"
    yield next((one.advice for one in found.comparisons if one.advice), "")


def crossover_table(found: Crossover) -> str:
    """The time of a step on both sides at each size, and which of them is faster by how much."""
    other, base = _sides(found)
    compared = {found.size(one): one for one in found.comparisons}
    rows: dict[int, list[str]] = {}
    for outcome in found.tried:
        rows.setdefault(int(column(outcome, found.over)), []).append(_time(outcome))
    body = [[f"{size:,}", *times, _verdict(compared.get(size))] for size, times in rows.items()]
    title = f"{_without(found.tried[0].case, found.axis, found.over)}: time of one step"
    return aligned([found.over, base, other, f"{other} is"], body, 0, title)


def _time(outcome: Outcome) -> str:
    step = step_time(outcome.good)
    if step is None:
        return outcome.status
    return show_seconds(step.value, step.half_width) + show_error(step.value, step.half_width)


def _verdict(found: Comparison | None) -> str:
    if found is None:
        return ""
    if found.verdict == "inconclusive":
        return CANT_TELL
    return found.verdict if found.verdict == "equivalent" else f"{factor(found)} {found.verdict}"


def _crossover_json(found: Crossover) -> dict[str, Any]:
    other, base = _sides(found)
    return {
        "case": _without(found.tried[0].case, found.axis, found.over), "machine": found.tried[0].machine,
        "axis": found.axis, "base": base, "other": other, "over": found.over, "verdict": found.verdict,
        "crossings": [
            {"size": one.size, "low": one.low, "high": one.high, "below": one.below, "above": one.above,
             "faster_above": other if one.winner > 0 else base} for one in found.crossings
        ],
        "comparisons": [{found.over: found.size(one), **comparison_json(one)} for one in found.comparisons],
        "missing": [{"case": one.case.id, found.over: column(one, found.over), "status": one.status,
                     "reason": one.reason} for one in found.missing],
    }  # fmt: skip


# -- which precision pays ------------------------------------------------------------------------


def _precision_sentence(found: PrecisionGain) -> str:
    case, precision = _without(found.outcome.case, "precision"), str(found.outcome.case.precision)
    if found.comparison is None:
        return f"{case}: {precision} {_became(found.outcome.status)}: {found.outcome.reason}"
    one = found.comparison
    pays = {"faster": f"{precision} pays: it", "inconclusive": precision}.get(
        one.verdict, f"{precision} does not pay: it"
    )
    return _noted(f"{case}: {claim(one, pays, PLAIN)}; {_off([found.outcome])}", one.how, one.advice)


def _off(outcomes: Sequence[Outcome], whose: str = "its") -> str:
    """How far off a precision is, from the least to the most, in what its check looked at."""
    what, are = ("loss", "is") if outcomes[0].case.mode == "train" else ("results", "are")
    errors = [error for one in outcomes if (error := error_of(one)) is not None]
    if not errors:
        return f"how far {whose} {what} {are} off was not checked"
    if not any(errors):
        return f"{whose} {what} {are} the same"
    ends = dict.fromkeys("under 0.1 %" if end < FAINT else show_percent(end) for end in (min(errors), max(errors)))
    return f"{whose} {what} {are} {' to '.join(ends)} off"


def _precision_json(found: PrecisionGain) -> dict[str, Any]:
    case, one = found.outcome.case, found.comparison
    return {
        "case": _without(case, "precision"), "machine": found.outcome.machine, "precision": case.precision,
        "status": found.outcome.status, "reason": found.outcome.reason, "error": found.error,
        "comparison": comparison_json(one) if one else None,
    }  # fmt: skip


# -- what the copy costs -------------------------------------------------------------------------


def _copy_sentence(found: CopyCost) -> str:
    return f"{_without(found.comparison.other.case, 'placement')}: {copy_claim(found)}"


def copy_claim(found: CopyCost) -> str:
    """What a copy costs, how that was found out, and what would help."""
    one = found.comparison
    fine = found.low is not None and found.high is not None and found.high - found.low < 0.02
    decimals = 1 if fine or abs(found.share) < 0.1 else 0
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    share = f"{100 * found.share:.{decimals}f} %{_range(low, high, decimals, ' %')}"
    if one.verdict == "slower":
        told = f"costs {show_seconds(found.seconds or 0.0)} a step, {share} of it"
    elif one.verdict == "inconclusive":
        told = f"looks like {share} of a step; {CANT_TELL if low is not None else 'no interval'}"
    else:
        told = f"costs {'next to ' if one.verdict == 'equivalent' else ''}nothing: {claim(one, *arms(one))}"
    return _noted(f"copying {found.way} {told}", one.how, one.advice)


def _copy_json(found: CopyCost) -> dict[str, Any]:
    return {
        "case": _without(found.comparison.other.case, "placement"), "machine": found.comparison.other.machine,
        "way": found.way, "share": found.share, "low": found.low, "high": found.high, "seconds": found.seconds,
        "comparison": comparison_json(found.comparison),
    }  # fmt: skip


# -- how time grows with the length --------------------------------------------------------------


def _scaling_sentence(found: Scaling) -> str:
    case = _without(found.outcomes[0].case, "seq")
    several = len(found.outcomes) > 2
    told = f"{case}: the time of a step grows with seq to the power of {_power(found.fit)}"
    if several:
        told += f", {found.fit.how}"
    if found.bends:
        told += f"; but it bends: {_power(found.first)}, and {_power(found.last)}"
    elif several:
        told += f"; between the two longest {_power(found.last)}"
    return _noted(told, found.last.how, _how_to_narrow(found))


def _power(found: Exponent) -> str:
    """An exponent, its interval, and between which lengths it holds."""
    known = _range(found.low, found.high, 2) or " (no interval)"
    return f"{found.value:.2f}{known} from {found.shortest:,} to {found.longest:,}"


def _how_to_narrow(found: Scaling) -> str:
    if found.fit.half_width is None:
        return "too few samples for an interval: a larger --budget, or more --repeats"
    width = found.last.half_width
    if width is not None and width < WIDE:
        return ""
    return (
        "mldyno run --by seq pairs the lengths, which tells more"
        if found.last.how == "archived"
        else "more --repeats tell more"
    )


def _scaling_json(found: Scaling) -> dict[str, Any]:
    def exponent(one: Exponent) -> dict[str, Any]:
        return {"exponent": one.value, "low": one.low, "high": one.high, "from": one.shortest, "to": one.longest,
                "how": one.how}  # fmt: skip

    times = [(one.case.seq, step_time(one.good)) for one in found.outcomes]
    return {
        "case": _without(found.outcomes[0].case, "seq"), "machine": found.outcomes[0].machine,
        "fit": exponent(found.fit), "first": exponent(found.first), "last": exponent(found.last),
        "bends": found.bends,
        "steps": [{"seq": seq, "value": t and t.value, "low": t and t.low, "high": t and t.high} for seq, t in times],
    }  # fmt: skip
