"""Claims in words: one grammar for all statements about two sides, in every view.

A `Wording` has one template for each verdict, and `Wording.of` is the only place that chooses between them. A
`Sentence` keeps what it states apart from its evidence, so that a view can show either without parsing text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mldyno.analysis import comparisons as comparing
from mldyno.analysis.answers import Ranking, rankings
from mldyno.analysis.comparisons import DELTA, ONE_SIDED, PAIRED, SEPARATE, Claim, Comparison, Mean, differing_axes
from mldyno.analysis.outcomes import Outcome, column
from mldyno.axes import AXIS
from mldyno.records import Record
from mldyno.sources import as_typed
from mldyno.store.figures import marks
from mldyno.units import Interval, digits, show_interval, show_percent
from mldyno.views.titles import case_on_device, case_title

CANT_TELL = "can't tell"
NO_CLEAR_DIFFERENCE = "no clear difference"
LARGEST_SHOWN = 1000  # times faster or slower: an end of an interval beyond it says no more
WORK = {"train": "training", "infer": "inference"}
_STEPS = {"train": "a training step", "infer": "an inference step"}


class Sentence(str):
    """A statement with its evidence in brackets behind it."""

    text: str  # the statement alone
    notes: tuple[str, ...]  # how it was measured, and what would settle it
    clear: bool  # whether it settles its question

    def __new__(cls, text: str, *notes: str, clear: bool = True) -> Sentence:
        known = tuple(filter(None, notes))
        sentence = super().__new__(cls, f"{text} [{'; '.join(known)}]" if known else text)
        sentence.text, sentence.notes, sentence.clear = text, known, clear
        return sentence

    @property
    def only_separate(self) -> bool:
        """True if it rests on separate runs alone."""
        return any(SEPARATE in note for note in self.notes) and not any(PAIRED in note for note in self.notes)

    def capitalised(self) -> Sentence:
        return Sentence(self.text[:1].upper() + self.text[1:], *self.notes, clear=self.clear)


@dataclass(frozen=True)
class Wording:
    """Templates that put a claim into words, one for each verdict.

    Templates may contain {times}, the factor over 1; {ratio} and {inverse}, as they are; {span}, the interval in words;
    {way}, faster or slower; {within}, what counts as equivalent; and whatever else `of` is given.
    """

    faster: str
    slower: str
    equivalent: str
    unclear: str  # for an inconclusive interval
    no_interval: str = ""  # where this differs from `unclear`

    def of(self, claim: Claim, **words: str) -> str:
        unclear = (self.no_interval if claim.low is None else "") or self.unclear
        templates = {"faster": self.faster, "slower": self.slower, "equivalent": self.equivalent}
        return templates.get(claim.verdict, unclear).format(
            times=times(claim), ratio=show_interval(claim.speedup, "x"),
            inverse=show_interval(claim.speedup.inverse, "x"), span=span(claim.speedup),
            way="faster" if claim.ratio > 1 else "slower", within=show_percent(DELTA), **words,
        )  # fmt: skip


SPEED = Wording(
    faster="{other} is {times} faster{each} than {base}",
    slower="{other} is {times} slower{each} than {base}",
    equivalent="{other} and {base} are equivalent{each} (within {within})",
    unclear=NO_CLEAR_DIFFERENCE + "{each} between {other} and {base} (the first is {span})",
    no_interval="{other} looks {times} {way}{each} than {base}{caveat}",
)
ENERGY = Wording(
    faster="{other} takes {inverse} of {base}'s energy{each}",
    slower="{other} takes {inverse} of {base}'s energy{each}",
    equivalent="{other} and {base} take equivalent energy{each} (within {within})",
    unclear=NO_CLEAR_DIFFERENCE + " in energy{each} between {other} and {base} (the first takes {inverse} of it)",
    no_interval="{other} looks as if it took {inverse} of {base}'s energy{each}; no interval",
)
CHANGE = Wording(
    faster="your change made {step} {times} faster",
    slower="your change made {step} {times} slower",
    equivalent="your change made no difference: {step} takes as long as before (within {within})",
    unclear="your change made " + NO_CLEAR_DIFFERENCE + " to {step} ({span})",
    no_interval="your change made " + NO_CLEAR_DIFFERENCE + " to {step}",
)
IN_A_CELL = Wording("{times} faster", "{times} slower", "equivalent", CANT_TELL)
ENERGY_IN_A_CELL = Wording("{times} less", "{times} more", "equivalent", CANT_TELL)
IN_A_CHART = Wording(
    "{times} faster", "{times} slower", "{times} equivalent", NO_CLEAR_DIFFERENCE + " ({span})", "{times}, no interval"
)


def times(claim: Claim) -> str:
    """Show the speed-up or slow-down of a claim as a factor over 1."""
    return show_interval(claim.speedup if claim.ratio >= 1 else claim.speedup.inverse, "x")


def span(ratio: Interval) -> str:
    """Show the interval of a ratio in words: 20 % slower to 10 % faster."""
    ends = []
    for end in (ratio.low, ratio.high):
        if end is not None:
            factor = max(end, 1 / end)
            large = f"{digits(factor, most=2)}x" if factor < LARGEST_SHOWN else f"over {LARGEST_SHOWN:,}x"
            by = show_percent(factor - 1) if factor < 2 else large
            ends.append(f"{by} {'faster' if end > 1 else 'slower'}")
    return " to ".join(ends)


def arms(comparison: Comparison) -> tuple[str, str]:
    """Return the values in which the sides differ, the other side first: ('roundtrip', 'device'); else their runs."""
    base, other = comparison.base, comparison.other
    different = differing_axes(base, other)
    if not different:
        return run_name(other.records[0]), run_name(base.records[0])

    def side(outcome: Outcome) -> str:
        names = [named(axis, column(outcome, axis)) for axis in different]
        return " ".join(names) + (" (published)" if outcome.published else "")

    return side(other), side(base)


def run_name(record: Record) -> str:
    """Return when a record was made, and in which run: 2026-11-16 04:01 UTC (run 20261116T040042-0260ab)."""
    return f"{record.created[:16].replace('T', ' ')} UTC (run {record.run.id})"


def named(axis: str, value: Any) -> str:
    """Return a value of an axis as a sentence has it: mps, roundtrip, batch 16, default threads."""
    if isinstance(value, bool):
        return AXIS[axis].say(value)
    if value is None or isinstance(value, int):
        words = axis.replace("_", " ")
        return f"default {words}" if value is None else f"{words} {value}"
    return as_typed(str(value)) if axis == "workload" else str(value)


def in_words(claim: Claim, other: str, base: str) -> str:
    """Say how two sides compare in speed or energy."""
    if claim.value == "energy":
        return ENERGY.of(claim, other=other, base=base, each=" an item" if claim.per_item else " a step")
    comparisons = claim.comparisons if isinstance(claim, Mean) else [claim]
    caveat = "" if any(map(_published, comparisons)) else "; no interval"
    return SPEED.of(claim, other=other, base=base, each=" per item" if claim.per_item else "", caveat=caveat)


def sentence(comparison: Comparison) -> Sentence:
    """Put a comparison into words; `footers` explains once that published figures have no interval."""
    base, other = comparison.base, comparison.other
    case = case_on_device(other.case, *differing_axes(base, other))
    if base.machine == other.machine and other.published:
        case = f"{case}, {other.machine}"
    is_command = other.case.own_command and other.case.workload != base.case.workload  # its words are the case
    codes = dict.fromkeys(code for code, _, _ in marked_figures(comparison))
    changed = (
        [] if differing_axes(base, other) else [f"differing {name}" for name in comparing.differences(base, other)]
    )
    advice = "" if _published(comparison) and comparison.low is None else comparison.advice
    text = in_words(comparison, *arms(comparison))
    notes = (comparison.how, *codes, *changed, advice)
    return Sentence(text if is_command else f"{case}: {text}", *notes, clear=comparison.settled)


def mean_sentence(mean: Mean) -> Sentence:
    """Put the mean of two or more comparisons into words."""
    comparisons = mean.comparisons
    doubtful = sum(bool(marked_figures(comparison)) for comparison in comparisons)
    among = f", {doubtful} of them doubtful" if doubtful else ""
    why = "" if mean.low is not None or any(map(_published, comparisons)) else ", since not each case has one"
    if mean.low is not None and any(comparison.how == ONE_SIDED for comparison in comparisons):
        why = ", own interval only"
    text = in_words(mean, *arms(comparisons[0]))
    return Sentence(f"geometric mean of {len(comparisons)} cases{among}: {text}{why}", clear=mean.settled)


def change_sentence(comparison: Comparison) -> Sentence:
    """Say what a change of the user's code did: your change made a training step 1.08x (1.06-1.10) slower."""
    case, older = comparison.other.case, comparison.base.case.workload
    text = CHANGE.of(comparison, step=_STEPS.get(str(case.mode), "a step"))
    where = f"{case_title(case, ('framework', 'mode'))} on {case.device}, against {older}"
    return Sentence(text, where, comparison.how, comparison.advice, clear=comparison.settled)


def nothing_along(axis: str, where: str = "") -> str:
    """Say that there is nothing to compare along an axis, and what would help."""
    why = "no case was ok in two runs" if axis == "run" else f"no two cases that are ok differ only in {axis}"
    cure = {"run": "measure it once more", "machine": "import what another has measured", "workload": "measure another"}
    option = AXIS[axis].options[0] if axis in AXIS else ""
    return f"nothing to compare along {axis}{where}: {why}; {cure.get(axis, f'measure some with {option} A,B')}."


def best_sizes(ranked: Sequence[Ranking], axis: str) -> list[str]:
    """Name the size with the highest throughput in each ranking along a size."""
    lines = []
    for ranking in ranked:
        best, rivals = ranking.fastest, ranking.rivals
        if rate := best.figure("throughput"):
            size, item = named(axis, getattr(best.case, axis)), best.good[0].fact("item") or "item"
            others = [named(axis, getattr(each.base.case, axis)) for each in rivals]
            near = f"; {_and(others)} {'are' if others[1:] else 'is'} {_nearness(rivals, 'it')}" if others else ""
            where = case_on_device(best.case, axis)
            lines.append(f"best of {len(ranking.rest) + 1}: {size}, {digits(rate.value)} {item}s/s{near} [{where}]")
    return lines


def fastest_frameworks(comparisons: Sequence[Comparison]) -> list[str]:
    """Name the fastest framework, for cases that were compared in more than two."""
    lines = []
    for ranking in rankings(comparisons, "framework"):
        number, gain, rivals = len(ranking.rest) + 1, ranking.gain, ranking.rivals
        first, work = ranking.fastest.case.framework, case_on_device(ranking.fastest.case, "framework")
        if number > 2 and rivals:
            names = _and([first, *(each.base.case.framework for each in rivals)])
            lines.append(
                f"no clear winner of {number} frameworks: {names} are {_nearness(rivals, 'each other')} [{work}]"
            )
        elif number > 2:
            over = f", {times(gain)} faster than {gain.base.case.framework}" if gain else ""
            lines.append(f"fastest of {number} frameworks: {first}{over} [{work}]")
    return lines


def _nearness(rivals: Sequence[Comparison], fastest: str) -> str:
    equal = all(each.verdict == "equivalent" for each in rivals)
    return f"equivalent (within {show_percent(DELTA)})" if equal else f"within noise of {fastest}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _published(comparison: Claim) -> bool:
    return isinstance(comparison, Comparison) and (comparison.base.published or comparison.other.published)


def marked_figures(comparison: Comparison) -> list[tuple[str, Outcome, str]]:
    """Return the marks of published figures on either side: suspect or superseded, the figure, and the reason."""
    published = [side for side in (comparison.base, comparison.other) if side.published]
    return [(code, side, reason) for side in published for code, reason in marks(side.records[0])]


def contradictions(comparisons: Sequence[Comparison]) -> list[str]:
    """Explain where times in tables contradict the paired comparison."""
    sides = dict.fromkeys(" and ".join(arms(each)) for each in comparisons if each.contradicts_times)
    why = ("their times in tables point the other way, since each was measured alone at a different time; trust the "
           "paired comparison, in which they took turns")  # fmt: skip
    return [f"{both}: {why}" for both in sides]


def footers(comparisons: Sequence[Comparison]) -> list[str]:
    """Explain once for all comparisons which figures are doubted or contradicted, and which have no interval."""
    marked = [doubt for comparison in comparisons for doubt in marked_figures(comparison)]
    lines = [f"{code}: {side.machine}, {case_on_device(side.case)}: {reason}" for code, side, reason in marked]
    if any(map(_published, comparisons)):
        lines.append("published figures have no interval, so a ratio with one may be off by an unknown amount")
    return [*contradictions(comparisons), *dict.fromkeys(lines)]
