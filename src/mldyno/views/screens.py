"""The screens that commands end with: the results of a run, and the summary of `quick`."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from mldyno.analysis import grouped
from mldyno.analysis.answers import (
    Answers,
    Verdicts,
    answers,
    comparisons_along,
    energy_comparisons,
    rankings,
    typical,
    unreported,
)
from mldyno.analysis.breakdown import bound
from mldyno.analysis.comparisons import along, not_comparable
from mldyno.analysis.league import Division
from mldyno.analysis.outcomes import Outcome, thinned
from mldyno.analysis.scores import missing, reference, scores
from mldyno.analysis.tables import Table, lay_out
from mldyno.axes import SIZES, WAYS, Mode
from mldyno.sources import NOW, Source
from mldyno.units import count, show_interval
from mldyno.views import claims
from mldyno.views.answers import answer_lines, answer_section, verdict_lines
from mldyno.views.claims import WORK, Sentence, sentence
from mldyno.views.outcomes import energy_lines, phase_lines, show_estimate, trust_line, trust_lines
from mldyno.views.records import BOUNDS, FAKE_FRAMEWORK
from mldyno.views.tables import render
from mldyno.views.titles import case_name, case_title, shared_title
from mldyno.views.window import fitted, plain, window_width


def run_screen(
    measured: Sequence[Outcome], by: str | None = None, sources: Sequence[Source] = (), commands: bool = False,
    energy: bool = False, placed: Table | None = None,
) -> list[str]:  # fmt: skip
    """Return a run's table, trust, comparisons and answers; versions of a file go by their titles throughout."""
    titles = version_titles(sources)
    outcomes = [outcome.renamed(titles.get(outcome.case.workload, "")) for outcome in measured]
    rows = ["workload"] if commands else ["workload", "mode", "batch"]
    table = lay_out(outcomes, rows, ["device"], "throughput" if by in SIZES else "step", warnings_too=False)
    order = list(titles.values())
    if titles:
        table.row_keys.sort(key=lambda key: order.index(key[table.rows.index("workload")]))
    legend = "; ".join(f"{title} is {name}" for name, title in titles.items())
    reported = answers(outcomes)
    lines = comparison_lines(outcomes, reported, by, order)
    return [
        render(table, "terminal"),
        f"\n{legend}" if legend else "",
        *phase_lines(outcomes),
        *trust_lines(outcomes),
        *energy_lines(outcomes, wanted=energy),
        *unpaired_lines(outcomes),
        *(["", *lines] if lines else []),
        *answer_section(reported),
        *(["", "against published machines:", render(placed, "terminal")] if placed is not None else []),
    ]


def unpaired_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Say which cases could not be compared head-to-head, and why, each once."""
    failed = [record for outcome in outcomes for record in outcome.pairings if record.status != "ok"]
    lines = []
    for (_, status, reason), group in grouped(failed, lambda each: (each.run.group, each.status, each.reason)).items():
        names = ", ".join(dict.fromkeys(case_name(record.case) for record in group))
        lines.append(f"not compared head-to-head: {names}: {status}: {reason}")
    return list(dict.fromkeys(lines))


def comparison_lines(
    outcomes: Sequence[Outcome], reported: Answers, by: str | None = None, versions: Sequence[str] = ()
) -> list[str]:
    """Return the comparisons along an axis, or along all ways, that no answer reports."""
    good = [outcome for outcome in outcomes if outcome.status == "ok"]
    every = [each for way in ([by] if by else WAYS) for each in comparisons_along(outcomes, way)]
    sizes = rankings(every, by) if by in SIZES else []
    lines: list[str] = []
    for comparison in unreported(outcomes, reported, by):
        of_versions = {comparison.base.case.workload, comparison.other.case.workload} <= {*versions}
        lines.append(claims.change_sentence(comparison) if of_versions else sentence(comparison))
    return [
        *lines,
        *map(sentence, energy_comparisons(outcomes, by)),
        *claims.contradictions([*every, *(each for ranking in sizes for each in ranking.rest)]),
        *claims.best_sizes(sizes, by or ""),
        *claims.fastest_frameworks(comparisons_along(outcomes, "framework")),
        *not_comparable(along(good, "framework")),
        *([claims.nothing_along(by)] if by and not every else []),
    ]


def statements(outcomes: Sequence[Outcome]) -> list[str]:
    """Return all comparisons and answers, a line each."""
    reported = answers(outcomes)
    return [*comparison_lines(outcomes, reported), *answer_lines(reported)]


def version_titles(sources: Sequence[Source]) -> dict[str, str]:
    """Return the titles of the versions of a file, by the names of their workloads; the older one first."""
    versions = sorted((source for source in sources if source.version), key=lambda source: source.version == NOW)
    return {source.name: source.version_title for source in versions}


WIDTH, MOST_LINES = 80, 24
MOST_DIVISIONS, MOST_SENTENCES = 2, 4
MOST_RIVALS, FEWEST_RIVALS = 3, 1  # other machines in a division
NAME_WIDTH, BAR_WIDTH = 34, 24
BAR, THIN_BAR = "█", "▏"


def screen(
    outcomes: Sequence[Outcome], verdicts: Verdicts, divisions: Sequence[Division], notes: Sequence[str], report: str
) -> list[str]:
    """Return the screen of `quick`; name fewer other machines where it would be too long."""
    for most in range(MOST_RIVALS, FEWEST_RIVALS - 1, -1):
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
    machine, software = outcomes[0].records[-1].machine, outcomes[0].records[-1].software
    versions = [f"{name} {version}" for name, version in software.versions.items()]
    parts = [machine.name, "virtual machine" if machine.virtualised else "", *versions[:1]]
    return textwrap.shorten(", ".join(filter(None, parts)), WIDTH, placeholder=" …")


def score_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the scores of each device, and the machine that has 100; or how many cases are missing for one."""
    devices = grouped(scores(outcomes), lambda score: score.case.device)
    if not devices:
        lacking = sum(len(missing(outcomes, mode)) for mode in get_args(Mode))
        return [f"no score: {lacking} of its {count(len(reference().rates), 'case')} have no time yet"]
    texts = {device: [f"{WORK[str(score.case.mode)]} {show_interval(score, decimals=0)}" for score in group]
             for device, group in devices.items()}  # fmt: skip
    return [*(f"score on {device}: {', '.join(text)}" for device, text in texts.items()),
            f"  (100 is {reference().machine})"]  # fmt: skip


def _bars(division: Division, most: int) -> list[str]:
    """Draw this machine's fastest device and some others in the same work, the fastest first."""
    step = division.best.step
    rows = [(1.0, "this machine", division.best, f"{show_estimate(step)} a step" if step else "")]
    for comparison in thinned(division.rivals, most):
        speed, theirs = comparison.speedup.inverse, comparison.base
        rows.append((speed.value, theirs.machine, theirs, show_interval(speed, "x")))
    fastest, lines = max(share for share, *_ in rows), [shared_title(division.case)]
    for share, machine, outcome, text in sorted(rows, key=lambda row: -row[0]):
        device = f", {outcome.case.device}"
        name = textwrap.shorten(machine, NAME_WIDTH - len(device), placeholder="…") + device
        bar = BAR * round(share / fastest * BAR_WIDTH) or THIN_BAR
        narrow = plain() or window_width() < WIDTH
        lines.append(f"  {name}: {text}" if narrow else f"  {name:<{NAME_WIDTH}} {bar} {text}")
    return lines


def _sentences(outcomes: Sequence[Outcome], verdicts: Verdicts, notes: Sequence[str]) -> list[str]:
    """Return the most important statements first, without their evidence, which is in the report."""
    about, copies = (verdict_lines(each) for each in (replace(verdicts, references=(), copies=()),
                                                      Verdicts(copies=verdicts.copies)))  # fmt: skip
    lines = [*_failures(outcomes), *about, *notes, *_bottlenecks(outcomes), *copies]
    if all(outcome.case.framework == "fake" for outcome in outcomes):
        lines.insert(0, FAKE_FRAMEWORK)
    return [line.text if isinstance(line, Sentence) else line for line in lines[:MOST_SENTENCES]]


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    if failed:
        first, rest = failed[0], len(failed) - 1
        more = f" (and {count(rest, 'other case')})" if rest else ""
        yield f"{case_title(first.case)}{more}: {first.status}: {first.reason}"


def _bottlenecks(outcomes: Sequence[Outcome]) -> Iterator[str]:
    limits = [bound(outcome.good[0]) for outcome in typical(outcomes) if outcome.good]
    kinds = Counter(limit.kind for limit in limits if limit is not None and limit.kind != "unclear")
    if kinds:
        parts = [f"{number} {'is' if number == 1 else 'are'} {BOUNDS[kind]}" for kind, number in kinds.most_common()]
        yield f"Bottleneck: of {count(sum(map(bool, limits)), 'case')}, {', '.join(parts)}"
