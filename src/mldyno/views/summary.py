"""The screen that a run of `quick` ends with: at most 24 lines of 80 columns. All else is in the report and in `show`.

The machine, its score, bars beside well-known machines, at most four sentences, and how far to trust it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from mldyno.analysis.answers import Verdicts, typical
from mldyno.analysis.bounds import bound
from mldyno.analysis.grouping import grouped
from mldyno.analysis.league import Division
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.scores import Score, missing, reference, scores
from mldyno.axes import Mode
from mldyno.units import count, show_interval
from mldyno.views.answers import spread, verdict_lines
from mldyno.views.sentences import FAKE_FRAMEWORK, shown, trust_line
from mldyno.views.titles import case_title, shared_title, work_title
from mldyno.views.window import fitted, plain, window_width

WIDTH, MOST_LINES = 80, 24
MOST_DIVISIONS, MOST_SENTENCES = 2, 4
MOST_BESIDE, FEWEST_BESIDE = 3, 1  # other machines in a division
NAME_WIDTH, BAR_WIDTH = 34, 24
BAR, THIN_BAR = "█", "▏"
_HOLDS = {"compute": "arithmetic", "memory": "memory", "host": "issuing work to the device", "copy": "copies"}


def screen(
    outcomes: Sequence[Outcome], verdicts: Verdicts, divisions: Sequence[Division], notes: Sequence[str], report: str
) -> list[str]:
    """The whole screen; with fewer machines beside this one where it would be too long."""
    for most in range(MOST_BESIDE, FEWEST_BESIDE - 1, -1):
        blocks = [
            [_machine(outcomes), *score_lines(outcomes)] if outcomes else [],
            [line for division in divisions[:MOST_DIVISIONS] for line in _bars(division, most)],
            [line for text in _sentences(outcomes, verdicts, notes) for line in _wrapped(f"- {text}")],
            [*_wrapped(trust_line(outcomes)), report],
        ]
        lines = [line for block in blocks if block for line in (*block, "")][:-1]
        if len(lines) <= MOST_LINES:
            break
    return lines


def _wrapped(text: str) -> list[str]:
    return fitted(text, min(WIDTH, window_width())).split("\n")


def _machine(outcomes: Sequence[Outcome]) -> str:
    """The machine and what computed, in one line."""
    record = outcomes[0].records[-1]
    machine = record.machine
    versions = ", ".join(f"{name} {version}" for name, version in list(record.software.versions.items())[:1])
    known = filter(None, (machine.name, "virtual machine" if machine.virtualised else "", versions))
    return textwrap.shorten(", ".join(known), WIDTH, placeholder=" …")


def score_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The scores of each device, and what 100 is; or how many cases are missing for one."""
    devices = grouped(scores(outcomes), lambda score: score.case.device)
    if not devices:
        lacking = sum(len(missing(outcomes, mode)) for mode in get_args(Mode))
        return [f"no score: {lacking} of its {count(len(reference().rates), 'case')} have no time yet"]
    lines = [f"score on {device}: {', '.join(map(score_text, known))}" for device, known in devices.items()]
    return [*lines, f"  (100 is {reference().machine})"]


def score_text(score: Score) -> str:
    """A score with what it is of: training 103 (92-114)."""
    return f"{work_title(score.case).rpartition(', ')[2]} {show_interval(score, decimals=0)}"


def _bars(division: Division, most: int) -> list[str]:
    """This machine's fastest device and some others in one work, the fastest first; a longer bar is faster."""
    comparisons = spread(division.beside, most)
    fastest = max([1.0, *(1 / comparison.ratio for comparison in comparisons)])
    step = division.best.step
    ours = (1.0, _name("this machine", division.best), f"{shown(step)} a step" if step else "")
    speeds = [(each.base, each.speedup.inverse) for each in comparisons]
    rows = [ours, *((speed.value, _name(base.machine, base), show_interval(speed, "x")) for base, speed in speeds)]
    rows.sort(key=lambda row: -row[0])
    return [shared_title(division.case), *(_bar(speed / fastest, name, text) for speed, name, text in rows)]


def _name(machine: str, outcome: Outcome) -> str:
    device = f", {outcome.case.device}"
    return f"{textwrap.shorten(machine, NAME_WIDTH - len(device), placeholder='…')}{device}"


def _bar(share: float, name: str, text: str) -> str:
    if plain() or window_width() < WIDTH:
        return f"  {name}: {text}"
    return f"  {name:<{NAME_WIDTH}} {BAR * round(share * BAR_WIDTH) or THIN_BAR} {text}"


def _sentences(outcomes: Sequence[Outcome], verdicts: Verdicts, notes: Sequence[str]) -> list[str]:
    """What matters most to this machine, the most important first; the report says how each was found out."""
    about, copies = (verdict_lines(each) for each in (replace(verdicts, references=(), copies=()),
                                                      Verdicts(copies=verdicts.copies)))  # fmt: skip
    said = [*_failures(outcomes), *about, *notes, *_held_back(outcomes), *copies]
    if all(outcome.case.framework == "fake" for outcome in outcomes):
        said.insert(0, FAKE_FRAMEWORK)
    return [line.partition(" [")[0] for line in said[:MOST_SENTENCES]]


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    if failed:
        first, others = failed[0], len(failed) - 1
        more = f" (and {count(others, 'other case')})" if others else ""
        yield f"{case_title(first.case)}{more}: {first.status}: {first.reason}"


def _held_back(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What limits most of the typical cases on the fastest device."""
    good = [outcome for outcome in typical(outcomes) if outcome.good]
    limits = [limit for outcome in good if (limit := bound(outcome.good[0])) is not None]
    kinds = Counter(_HOLDS[limit.kind] for limit in limits if limit.kind in _HOLDS)
    if kinds:
        parts = [f"{name} in {number}" for name, number in kinds.most_common()]
        yield f"What holds it back, in {count(len(limits), 'case')}: {', '.join(parts)}"
