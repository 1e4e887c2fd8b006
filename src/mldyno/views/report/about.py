"""Sections about the whole: what the numbers say, what the machine is, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mldyno.analysis.comparisons import DELTA, between_machines
from mldyno.analysis.headlines import Headline, compared_along
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.verdicts import verdicts as judge
from mldyno.records import Machine, Record
from mldyno.units import count, show_percent
from mldyno.views.answers import answer_lines
from mldyno.views.devices import device_line
from mldyno.views.report.parts import Cell, Figure, Figures, Part, Section, Table, Words
from mldyno.views.report.subject import Subject
from mldyno.views.sentences import arms, factor, footers, machine_lines, mean_sentence, sentence
from mldyno.views.verdicts import verdict_lines

MODES = {"train": "training", "infer": "inference"}
MOST_FIGURES = 6
FAKE_CASE = "This was the fake framework: nothing was computed, and no time is real."


def verdicts(subject: Subject) -> Section:
    """What the numbers say, the most important first."""
    told = best_headlines(subject)
    parts: list[Part] = [Figures([figure_of(one, len(subject.machines) > 1) for one in told])] if told else []
    machines = compared_along(subject.outcomes, "machine")
    whole = verdict_lines(judge(subject.outcomes, subject.published)) if len(subject.machines) == 1 else []
    told_once = replace(subject.answers, precisions=(), copies=()) if whole else subject.answers
    lines = [*whole, *map(mean_sentence, between_machines(machines)), *answer_lines(told_once)]
    if not lines:
        lines = [sentence(one) for axis in ("device", "machine") for one in compared_along(subject.outcomes, axis)]
    lines += [*footers(machines), *_failures(subject.outcomes)]
    if not lines and not told:
        lines = ["There is nothing to compare: each case was measured in one way only. Name two devices, precisions or "
                 "placements in one run, and this says which one is faster."]  # fmt: skip
    if subject.rehearsed:
        lines.insert(0, FAKE_CASE)
    if lines:
        parts.append(Words("verdict-words", lines, shown=8))
    lead = "Each with its 95 % interval. Means are geometric; each workload's largest size counts."
    return Section("verdicts", "What the numbers say", lead, parts)


def best_headlines(subject: Subject) -> list[Headline]:
    """The few that matter most: sure ones first, and devices before precisions."""
    return sorted(subject.headlines, key=lambda one: not one.sure)[:MOST_FIGURES]


def figure_of(one: Headline, several: bool) -> Figure:
    """A headline as a large number; the machine is named where there are several."""
    mean = one.mean
    other, base = arms(mean.comparisons[0])
    about = f"{other} against {base}"
    about = f"{MODES[one.mode].capitalize()}: {about}" if one.mode else about
    if several and one.axis != "machine":
        about = f"{mean.comparisons[0].other.machine}. {about}"
    if len(mean.comparisons) == 1:
        source = f"{mean.comparisons[0].other.case.id}; {mean.comparisons[0].how}"
    else:
        source = f"geometric mean of {count(len(mean.comparisons), 'case')}"
    if mean.verdict == "equivalent":
        return Figure(about, "equal", f"within {show_percent(DELTA)}", source)
    number, _, interval = factor(mean).partition(" ")
    way = "faster" if mean.ratio > 1 else "slower"
    says = f"{way} {interval}".strip() if one.sure else f"looks {way} {interval}; can't tell"
    return Figure(about, number, says, source)


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What did not come out well, by kind."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in outcomes:
        if one.status != "ok":
            found.setdefault((one.status, one.reason), []).append(one.case.id)
    for (status, reason), several in found.items():
        more = f" and {count(len(several) - 1, 'other case')}" if len(several) > 1 else ""
        yield f"{several[0]}{more}: {status}: {reason}"


def machine(subject: Subject) -> Section:
    """What was measured on."""
    title = "The machine" if len(subject.machines) == 1 else "The machines"
    return Section("machine", title, "", [_machine_table(one, place) for place, one in enumerate(subject.machines)])


def _machine_table(found: Machine, place: int) -> Table:
    rows = [("system", machine_lines(found)[1]), ("processor", found.cpu)]
    rows += [(f"{device.framework} {device.name}", device_line(device)) for device in found.devices]
    return Table(f"machine-{place}", found.name, (),
                 [[Cell(name, head=True), Cell(text)] for name, text in rows], numbers=9)  # fmt: skip


def method(subject: Subject) -> Section:
    """How it was measured, with what, and how to do it again."""
    records = [record for one in subject.outcomes for record in (*one.records, *one.pairings)]
    runs = {record.run.id: record.created[:10] for record in records}
    steps = sum(int(record.facts.get("steps") or 0) for record in records)
    software = list(dict.fromkeys(map(_software, records)))
    settings = list(dict.fromkeys(f"{name}={value}" for one in records for name, value in one.software.env.items()))
    lines = [
        f"{count(len(subject.outcomes), 'case')} in {count(len(records), 'process')}, {count(steps, 'step')}, "
        f"{count(len(runs), 'run')} from {min(runs.values())} to {max(runs.values())}.",
        *(f"Software: {one}." for one in software[:8]),
        *([f"Settings that matter: {', '.join(settings[:12])}."] if settings else []),
        *_HOW,
        *(f"To measure it once more: {command}" for command in subject.commands),
    ]
    return Section("method", "How it was measured", "", [Words("method-words", lines, shown=40)])


_HOW = (
    "Every case ran in a process of its own. A block of steps is timed from its first step until the device has done "
    "the last one. The first step and the warm-up are kept apart.",
    "Measuring went on until the time was known well enough, or the budget was used up; then the trust line says so.",
    "The number is the median of a process, or the mean of the medians of several processes. Its 95 % interval holds "
    "for samples that resemble their neighbours.",
    "Cases that do the same work in different ways were then measured against each other in turns: that is what paired "
    "means. Archived means that they were not, and what the machine did in between is in neither.",
)


def _software(record: Record) -> str:
    """What computed, in words."""
    software = record.software
    versions = ", ".join(f"{name} {version}" for name, version in software.versions.items())
    threads = f", {count(software.threads, 'thread')}" if software.threads else ""
    return f"{versions or record.case.framework}, Python {software.python}{threads}, mldyno {software.mldyno}"
