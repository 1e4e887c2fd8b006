"""The first screen: scores, the league of machines, and the few sentences that matter most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from mldyno.analysis import grouped
from mldyno.analysis.answers import Verdicts, unreported
from mldyno.analysis.comparisons import SEPARATE, Comparison, between_machines
from mldyno.analysis.league import Division
from mldyno.analysis.outcomes import Outcome, thinned
from mldyno.analysis.scores import Score, fewest_missing, reference
from mldyno.units import count, digits, interval_parts
from mldyno.views.answers import answer_lines, verdict_kinds, verdict_lines
from mldyno.views.charts import MIDDLE, NARROW, Mark, Row, Rows
from mldyno.views.claims import WORK, Sentence, mean_sentence, sentence
from mldyno.views.outcomes import show_estimate, trust
from mldyno.views.records import headline
from mldyno.views.report.parts import Chart
from mldyno.views.report.speeds import compared_commands, speed_interval
from mldyno.views.report.subject import Subject
from mldyno.views.titles import case_on_device, kind_title, shared_title, ways_title, workload_title

MOST_SENTENCES = 3
MOST_SCORES = 6  # of machines and devices
MOST_LEAGUE_ROWS = 15  # of all divisions together: more would not fit on the screen
FEWEST_ROWS = 3  # of one division
ON_A_PHONE = (2, 3)  # divisions, and rows of each
MOST_NAMED = 2  # cases that a score misses, before the rest is only counted


class ScoreFigure(NamedTuple):
    """A score: of what, the number, and the ends of its 95 % interval."""

    about: str
    number: str
    ends: str


@dataclass(frozen=True)
class Summary:
    """The first screen: scores, what they are relative to or why there are none, the main findings, and the league."""

    scores: Sequence[ScoreFigure]
    note: str
    sentences: Sequence[str]
    league: Chart | None


def summary(subject: Subject) -> Summary:
    """Return the first screen."""
    scores = [_figure(score, subject) for score in subject.scores[:MOST_SCORES]]
    note = f"100 is {reference().machine}; version {reference().version} of the set." if scores else ""
    return Summary(scores, " ".join(filter(None, [note, _missing(subject)])), sentences(subject), league(subject))


def _figure(score: Score, subject: Subject) -> ScoreFigure:
    number, ends = interval_parts(score, decimals=0)
    framework = f", {score.case.framework}" if "framework" in subject.varied else ""
    return ScoreFigure(f"{kind_title(score.case)}, {score.case.device}{framework}", number, ends.strip("()"))


def _missing(subject: Subject) -> str:
    """Say what the fullest device lacks for a score where no device has one, unless it has none of the set."""
    sides = grouped(subject.outcomes, lambda outcome: (outcome.case.framework, outcome.case.device))
    lacking = []
    for mode, work in WORK.items():
        if any(score.case.mode == mode for score in subject.scores):
            continue
        if cases := fewest_missing(sides.values(), mode):
            named = ", ".join(workload_title(case.workload) for case in cases[:MOST_NAMED])
            more = f" and {count(len(cases) - MOST_NAMED, 'other')}" if len(cases) > MOST_NAMED else ""
            lacking.append(f"{named}{more} in {work}")
    return f"Missing for a score: {'; '.join(lacking)}. `mldyno quick` measures all." if lacking else ""


def sentences(subject: Subject) -> list[str]:
    """Return the most important sentences: clear answers, those to different questions first; else unclear ones."""
    kinds = [lines for lines in _answers(subject) if lines]
    lines = [*(lines[0] for lines in kinds), *(line for lines in kinds for line in lines[1:])]
    lines = [line for line in lines if line.clear] or lines
    texts = [f"{line.text} ({SEPARATE})" if line.only_separate else line.text for line in lines]
    texts += failures(subject.outcomes)
    devices = {outcome.case.device for outcome in subject.outcomes if not outcome.case.own_command}
    only = verdict_lines(Verdicts(only=subject.verdicts.only)) if devices else []
    times = (f"{case_on_device(outcome.case)}: {headline(*outcome.records)}" for outcome in subject.outcomes)
    return [*(texts or times), *only][:MOST_SENTENCES]


def _answers(subject: Subject) -> list[list[Sentence]]:
    """Return all answers by question, the clearest of each first: of the machine, or else of its cases."""
    verdicts = verdict_kinds(replace(subject.verdicts, references=(), only=""))
    kinds = [[Sentence(line.text, clear=line.clear) for line in lines] for lines in verdicts]  # of many cases
    compared = subject.between_machines
    means = [mean_sentence(mean).capitalised() for mean in between_machines(compared)]
    kinds = [means or list(map(sentence, compared)), *kinds, list(map(sentence, compared_commands(subject)))]
    if any(kinds):
        return kinds
    rest = unreported(subject.outcomes, subject.answers)
    return [answer_lines(subject.answers), list(map(sentence, rest))]


def failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield what did not succeed, by kind."""
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    for (status, reason), group in grouped(failed, lambda outcome: (outcome.status, outcome.reason)).items():
        more = f" and {count(len(group) - 1, 'other case')}" if len(group) > 1 else ""
        yield f"{case_on_device(group[0].case)}{more}: {status}: {reason}"


def league(subject: Subject) -> Chart | None:
    """Draw this machine among others, in each kind of work that they share."""
    divisions = kinds_of_work(subject)
    if not divisions:
        return None
    drawn = divisions[: MOST_LEAGUE_ROWS // FEWEST_ROWS]
    compared = [comparison for division in divisions for comparison in division.rivals]
    faster = sum(_is_known_to_be(comparison, "faster") for comparison in compared)
    slower = sum(_is_known_to_be(comparison, "slower") for comparison in compared)
    about = "Speed in the same work, items a second; hollow: published figures, which have no interval"
    wide, narrow = (
        Rows([(shared_title(division.case), league_rows(division, rows)) for division in drawn[:some]],
             "times as fast as this machine, log scale", base=1.0, compact=True, widths=(MIDDLE, NARROW))
        for some, rows in ((len(drawn), MOST_LEAGUE_ROWS // len(drawn)), ON_A_PHONE)
    )  # fmt: skip
    left_out = len(divisions) - len(drawn)
    caption = f"Not shown: {count(left_out, 'more kind')} of work." if left_out else ""
    return Chart("league", _league_title(faster, slower, len(compared)), about, wide, caption, narrow)


def _is_known_to_be(comparison: Comparison, side: Literal["faster", "slower"]) -> bool:
    """Return whether ours is faster, or slower, with its interval; without one, by the ratio."""
    if comparison.low is None:
        return comparison.ratio > 1 if side == "faster" else comparison.ratio < 1
    return comparison.verdict == side


def _league_title(faster: int, slower: int, others: int) -> str:
    """Say how many others are slower, or else faster, and how many are about as fast."""
    which = "the one other" if others == 1 else f"all {others} others"
    if others in (faster, slower):
        return f"{'Faster' if faster else 'Slower'} than {which} in the same work"
    if not faster and not slower:
        return f"About as fast as {which} in the same work"
    first = f"Faster than {faster}" if faster else f"Slower than {slower}"
    even = others - faster - slower
    ties = f", about as fast as {even}" if even else ""
    return f"{first} of {others} others in the same work{ties}"


def kinds_of_work(subject: Subject) -> list[Division]:
    """Return the division with the most machines for each workload and mode, the largest first."""
    kinds = grouped(subject.league, lambda division: (division.case.workload, division.case.mode))
    largest = [max(divisions, key=lambda division: len(division.outcomes)) for divisions in kinds.values()]
    return sorted(largest, key=lambda division: -len(division.outcomes))


def league_rows(division: Division, most: int) -> list[Row]:
    """Return rows, the fastest first; of too many, ours and some of the others, from the fastest to the slowest."""
    places = range(len(division.outcomes))
    theirs = [place for place in places if place not in division.ours]
    ours = sorted(division.ours)[: max(1, most - 2)]
    room = max(1, most - len(ours))
    placed = sorted([*((place, True) for place in ours), *((place, False) for place in thinned(theirs, room))])
    labels = [_label(outcome) for outcome in division.outcomes]
    named = len({division.outcomes[place].case.framework for place in division.ours}) > 1
    rows = []
    for place, strong in placed:
        outcome, same = division.outcomes[place], labels.count(labels[place]) > 1
        label = _label(outcome, same or (strong and named))
        rows.append(Row(label, [_mark(outcome, division.best)], strong))
    return rows


def _mark(outcome: Outcome, best: Outcome) -> Mark:
    """Return the speed relative to the best of ours; published figures are hollow, since they have no interval."""
    ours, theirs = best.step, outcome.step
    assert ours is not None
    assert theirs is not None
    rate = theirs.per(outcome.case.batch or 1, "1/s")  # of a batch: publications do not say what else is counted
    text, hover = f"{digits(rate.value, rate.half_width)}/s", f"{show_estimate(theirs)} a step; {trust(outcome)}"
    return Mark(speed_interval(ours.value / theirs.value, theirs), text, hover, "soft", outcome.published)


def _label(outcome: Outcome, with_framework: bool = False) -> str:
    """Name machine, device and the unusual ways; the framework only where it is needed to distinguish two rows."""
    framework = outcome.case.framework if with_framework else ""
    return ", ".join(filter(None, [outcome.machine, outcome.case.device, framework, ways_title(outcome.case)]))
