"""Sections about the whole: what the numbers say, what the machine is, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mldyno.analysis.answers import Headline, compared_along
from mldyno.analysis.answers import verdicts as verdicts_of
from mldyno.analysis.comparisons import DELTA, between_machines
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.grouping import grouped
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Machine, Record
from mldyno.units import count, show_percent
from mldyno.views.answers import answer_lines, verdict_lines
from mldyno.views.as_json import case_without
from mldyno.views.devices import device_line
from mldyno.views.report.parts import Figure, Figures, Grid, GridCell, Paragraphs, Section, SectionPart
from mldyno.views.report.subject import Subject
from mldyno.views.sentences import (
    CANT_TELL,
    FAKE_FRAMEWORK,
    WORK,
    arms,
    factor,
    footers,
    machine_lines,
    mean_sentence,
    sentence,
)

MAX_FIGURES = 6
NOTHING_TO_COMPARE = (
    "There is nothing to compare: each case was measured in one way only. Name two devices, precisions or placements "
    "in one run, and this says which one is faster."
)


def verdicts(subject: Subject) -> Section:
    """What the numbers say, the most important first; what the verdicts say is not said of each case again."""
    headlines = best_headlines(subject)
    parts: list[SectionPart] = [Figures([figure_of(each, subject) for each in headlines])] if headlines else []
    between = compared_along(subject.outcomes, "machine")
    answers, lines = subject.answers, []
    if len(subject.machines) == 1:
        about_machine = verdicts_of(subject.outcomes, subject.published)
        lines = verdict_lines(about_machine)
        about_batches = set(map(_swept, about_machine.batches))
        others = [each for each in answers.crossovers if _swept(each) not in about_batches]
        answers = replace(answers, crossovers=others, precisions=(), copies=()) if lines else answers
    lines += [*map(mean_sentence, between_machines(between)), *answer_lines(answers)]
    if not lines:
        lines = [sentence(each) for axis in ("device", "machine") for each in compared_along(subject.outcomes, axis)]
    lines += [*footers(between), *_failures(subject.outcomes)]
    if not lines and not headlines:
        lines = [NOTHING_TO_COMPARE]
    if subject.fake:
        lines.insert(0, FAKE_FRAMEWORK)
    if lines:
        parts.append(Paragraphs("verdict-lines", lines, shown=8))
    lead = "Each with its 95 % interval. Means are geometric; each workload's largest size counts."
    return Section("verdicts", "What the numbers say", lead, parts)


def _swept(crossover: Crossover) -> tuple[str, ...]:
    """What a crossover is about."""
    axis, over = crossover.axis, crossover.over
    return axis, over, str(crossover.other), case_without(crossover.tried[0].case, axis, over)


def best_headlines(subject: Subject) -> list[Headline]:
    """The few that matter most: sure ones first, and devices before precisions."""
    return sorted(subject.headlines, key=lambda headline: not headline.sure)[:MAX_FIGURES]


def figure_of(headline: Headline, subject: Subject) -> Figure:
    """A headline as a large number; machine and device are named where there are several."""
    mean, first = headline.mean, headline.mean.comparisons[0]
    other, base = arms(first)
    about = f"{other} against {base}"
    if headline.axis == "precision" and "device" in subject.varied:
        about = f"{about} on {first.other.case.device}"
    if first.other.case.mode:
        about = f"{WORK[first.other.case.mode].capitalize()}: {about}"
    if headline.axis != "machine" and len(subject.machines) > 1:
        about = f"{first.other.machine}. {about}"
    if len(mean.comparisons) == 1:
        source = f"{first.other.case.id}; {first.how}"
    else:
        source = f"geometric mean of {count(len(mean.comparisons), 'case')}"
    if mean.verdict == "equivalent":
        return Figure(about, "equal", f"within {show_percent(DELTA)}", source)
    number, _, interval = factor(mean).partition(" ")
    way = "faster" if mean.ratio > 1 else "slower"
    says = f"{way} {interval}".strip() if headline.sure else f"looks {way} {interval}; {CANT_TELL}"
    return Figure(about, number, says, source)


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What did not succeed, by kind."""
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    for (status, reason), group in grouped(failed, lambda outcome: (outcome.status, outcome.reason)).items():
        more = f" and {count(len(group) - 1, 'other case')}" if len(group) > 1 else ""
        yield f"{group[0].case.id}{more}: {status}: {reason}"


def machine(subject: Subject) -> Section:
    """What was measured on."""
    title = "The machine" if len(subject.machines) == 1 else "The machines"
    return Section("machine", title, "", [_machine_grid(each, place) for place, each in enumerate(subject.machines)])


def _machine_grid(machine: Machine, place: int) -> Grid:
    rows = [("system", machine_lines(machine)[1]), ("processor", machine.cpu)]
    rows += [(f"{device.framework} {device.name}", device_line(device)) for device in machine.devices]
    cells = [[GridCell(name, head=True), GridCell(text)] for name, text in rows]
    return Grid(f"machine-{place}", machine.name, (), cells, numbers=9)


def method(subject: Subject) -> Section:
    """How it was measured, with what, and how to run it again."""
    records = [record for outcome in subject.outcomes for record in (*outcome.records, *outcome.pairings)]
    runs = {record.run.id: record.created[:10] for record in records}
    steps = sum(record.fact("steps") or 0 for record in records)
    software = list(dict.fromkeys(map(_software, records)))
    settings = dict.fromkeys(f"{name}={value}" for each in records for name, value in each.software.env.items())
    lines = [
        f"{count(len(subject.outcomes), 'case')} in {count(len(records), 'process')}, {count(steps, 'step')}, "
        f"{count(len(runs), 'run')} from {min(runs.values())} to {max(runs.values())}.",
        *(f"Software: {versions}." for versions in software[:8]),
        *([f"Settings that matter: {', '.join(list(settings)[:12])}."] if settings else []),
        *_HOW,
        *(f"To run it again: {command}" for command in subject.commands),
        *(f"They ran: {line}" for line in subject.their_commands),
    ]
    return Section("method", "How it was measured", "", [Paragraphs("method-lines", lines, shown=40)])


_HOW = (
    "Every case ran in a process of its own. A block of steps is timed from its first step until the device has done "
    "the last one. The first step and the warm-up are kept apart.",
    "Measuring went on until the time was known well enough, or the budget was used up; then the trust line says so.",
    "The number is the median of a process, or the mean of the medians of several processes. Its 95 % interval holds "
    "for autocorrelated samples too.",
    "Cases that do the same work in different ways were then measured head-to-head, in turns: that is what paired "
    "means. Separate runs means that they were not, and what the machine did in between is in neither.",
)


def _software(record: Record) -> str:
    """What computed, in words."""
    software = record.software
    versions = ", ".join(f"{name} {version}" for name, version in software.versions.items())
    threads = f", {count(software.threads, 'thread')}" if software.threads else ""
    return f"{versions or record.case.framework}, Python {software.python}{threads}, mldyno {software.mldyno}"
