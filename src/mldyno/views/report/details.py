"""What holds it back? What does it take? How sure is this? All cases, and how they were measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from mldyno.analysis import grouped
from mldyno.analysis.answers import Answers, CopyCost, energy_comparisons
from mldyno.analysis.breakdown import Bound, Shares, bound, shares
from mldyno.analysis.comparisons import alike
from mldyno.analysis.outcomes import Outcome, column, sample_count, trace, varying
from mldyno.analysis.rerun import rerun_commands, their_commands
from mldyno.axes import WAYS
from mldyno.records import Machine, Record
from mldyno.stats.intervals import quantile
from mldyno.units import Interval, count, digits, interval_parts, scale_of, show, show_percent, show_seconds
from mldyno.views.answers import answer_lines
from mldyno.views.charts import Lines, Mark, Point, Row, Samples
from mldyno.views.claims import Sentence, named, sentence
from mldyno.views.outcomes import energy_in_words, show_estimate, trust, trust_line, warning_meanings
from mldyno.views.records import BOUNDS, device_line, machine_lines
from mldyno.views.report.parts import Bullets, Chart, Content, Grid, GridCell, SideBySide, share_bars
from mldyno.views.report.speeds import MOST_ROWS
from mldyno.views.report.subject import Subject
from mldyno.views.report.summary import failures
from mldyno.views.titles import case_name, case_on_device

KINDS = (("arithmetic", "compute", "s1"), ("memory traffic", "memory", "s2"), ("copies", "copy", "s3"),
         ("data", "data", "s4"))  # fmt: skip
COPIES = {"in": "s1", "in and back": "s2", "back": "s3"}  # ways to copy a batch, with their colours
SHAPED = ("drifting", "two-modes", "late-change", "recompiled", "throttled", "leaking")  # warnings that a trace shows
MOST_TRACES = 12
MOST_SAMPLES = 240  # of one case
MOST_ENERGY_CHARTS = 6
ENERGY_FIGURES = {
    "energy": "energy a step", "energy_above_idle": "above idle", "power": "power", "peak_power": "at most",
    "idle_power": "at rest", "efficiency": "items a joule",
}  # fmt: skip
LIMITS_LEAD = (
    "The peaks are measured on the same device, in the same process: matmuls for arithmetic, copies for memory. "
    "A model that works in caches can be over the peak of memory."
)
ENERGY_LEAD = (
    "Measured after the times, in windows that open and close on the ticks of a sensor, with the idle machine as the "
    "baseline. What a sensor sees is its scope: energies of two scopes can't be compared. Nothing is estimated from a "
    "data sheet."
)
TRACES_LEAD = (
    "Each dot in the charts is the time of a step, averaged over one block of steps, in the order of measurement. "
    "Each process has its own colour, the warm-up is pale, and values off the scale are drawn at its edge. A slope is "
    "a drift; two bands are two speeds."
)
HOW_LINES = (
    "Each case ran in its own process. A block of steps is timed from its first step until the device has finished the "
    "last one. The first step and the warm-up are recorded separately.",
    "Measuring stopped when the time was known well enough, or when the budget was spent, which the trust line states.",
    "The number is the median of a process, or the mean of the medians of several processes. Its 95 % interval "
    "accounts for autocorrelated samples.",
    "Cases that do the same work in different ways were then compared head-to-head, interleaved: they are paired. "
    "Cases of separate runs were not: the state of the machine may have changed between them.",
)


def limits(subject: Subject) -> Content:
    """Show how much of each device's peaks the cases use, what holds them up, and what copies cost."""
    known = [(outcome, of_peaks, limit) for outcome in subject.outcomes if outcome.good
             and (of_peaks := shares(outcome.good[0])) is not None
             and (limit := bound(outcome.good[0])) is not None]  # fmt: skip
    lines = [f"{case_on_device(outcome.case)}: {BOUNDS[limit.kind]}: {limit.why}" for outcome, _, limit in known]
    lines += answer_lines(Answers(copies=subject.answers.copies))
    if not lines:
        return "", []
    charts = [*_peak_chart(subject, known), *_copy_chart(subject)]
    return LIMITS_LEAD if known else "", [*charts, Bullets("limit-lines", lines)]


def _peak_chart(subject: Subject, known: list[tuple[Outcome, Shares, Bound]]) -> Iterator[Chart]:
    rows = []
    for outcome, of_peaks, limit in known[:MOST_ROWS]:
        marks = []
        for name, kind, colour in KINDS:
            if (share := getattr(of_peaks, kind)) is not None:
                hover = f"{name} at {show_percent(share)} of its peak; {BOUNDS[limit.kind]}: {limit.why}"
                marks.append(Mark(Interval(100 * share), show_percent(share), hover, colour))
        rows.append(Row(subject.title(outcome), marks))
    if sum(len(row.marks) for row in rows) < 2:
        return
    used = {mark.colour for row in rows for mark in row.marks}
    rows.sort(key=lambda row: -row.marks[0].number.value)
    drawing = share_bars(rows, "% of the peak", {name: colour for name, _, colour in KINDS if colour in used})
    kind, number = Counter(limit.kind for _, _, limit in known).most_common(1)[0]
    title = f"{number} of {count(len(known), 'case')}: {BOUNDS[kind]}"
    caption = f"The first {MOST_ROWS} of {count(len(known), 'case')}." if len(known) > MOST_ROWS else ""
    yield Chart("peak", title, "Share of what the device can do", drawing, caption)


def _copy_chart(subject: Subject) -> Iterator[Chart]:
    copies = subject.answers.copies[:MOST_ROWS]
    if len(copies) < 2:
        return
    shared = grouped(copies, lambda cost: subject.title(cost.comparison.other, "placement"))
    rows = [Row(label, list(map(_copy_mark, group))) for label, group in shared.items()]
    rows.sort(key=lambda row: -row.largest)
    drawing = share_bars(rows, "% of a step", {f"copying {cost.way}": COPIES[cost.way] for cost in copies})
    most = _copy_mark(max(copies, key=lambda cost: cost.share.value))
    title = f"Copying takes up to {most.text} of a step" if most.number.value > 2 else "Copying costs next to nothing"
    yield Chart("copies", title, "Share of a step that goes into copying its batch, with 95 % intervals", drawing)


def _copy_mark(cost: CopyCost) -> Mark:
    """Return the share of a step in percent; one under 0 is drawn as nothing, and its number stays as it is."""
    drawn, (text, _) = cost.share.scaled_by(100).clipped(0, math.inf), interval_parts(cost.share, "%")
    return Mark(drawn, text, f"copying {cost.way} takes {text} of a step; {cost.comparison.how}", COPIES[cost.way])


def energy(subject: Subject) -> Content:
    """Show the energy and power of steps, and time against energy for work done in several ways."""
    sensed = [(outcome, joules) for outcome in subject.outcomes
              if outcome.status == "ok" and (joules := outcome.figure("energy")) is not None]  # fmt: skip
    if not sensed:
        return "", []
    known = [outcome for outcome, _ in sensed]
    lines = [*answer_lines(subject.answers.about("energy")), *map(sentence, energy_comparisons(known))]
    summaries, rows = [], []
    for outcome, joules in sensed:
        text, evidence = energy_in_words(outcome, joules)
        summaries.append(Sentence(f"{subject.title(outcome)}: {text}", evidence))
        figures, scope = map(outcome.figure, ENERGY_FIGURES), str(outcome.with_energy[0].fact("energy_scope"))
        cells = [GridCell("") if each is None else GridCell(show_estimate(each), each.value) for each in figures]
        rows.append([GridCell(subject.title(outcome), head=True), *cells, GridCell(scope)])
    return ENERGY_LEAD, [
        SideBySide(_energy_charts(subject, known)[:MOST_ENERGY_CHARTS]),
        Bullets("energy-lines", lines),
        Grid("energy-grid", "Energy and power of each case", ["case", *ENERGY_FIGURES.values(), "scope"], rows),
        Bullets("energy-summaries", summaries),
    ]


def _energy_charts(subject: Subject, known: Sequence[Outcome]) -> list[Chart]:
    """Draw energy over time, for each work done in several ways and seen by sensors of one scope."""
    by_scope = grouped(known, lambda outcome: outcome.with_energy[0].fact("energy_scope")).values()
    groups = [group for scope in by_scope for group in alike(scope, *WAYS) if len(group) > 1]
    charts = []
    for number, group in enumerate(groups):
        axes = [axis for axis in varying(group) if axis != "machine"]
        figures = [(outcome, outcome.step, outcome.figure("energy")) for outcome in group]
        both = [(outcome, step, joules) for outcome, step, joules in figures if step is not None and joules is not None]
        second, unit = scale_of(max(step.value for _, step, _ in both), "s")
        joule, name = scale_of(max(joules.value for _, _, joules in both), "J")
        lines = []
        for outcome, step, joules in both:
            side = ", ".join(named(axis, column(outcome, axis)) for axis in _needed(axes, group))
            dot = Point(
                step.value / second,
                joules.scaled_by(1 / joule),
                f"{show_estimate(step)}, {show_estimate(joules)} a step",
            )
            lines.append((side, [dot]))
        title = f"{subject.title(group[0], *axes)}: time against energy"
        drawing = Lines(lines, f"{unit} a step", f"{name} a step")
        charts.append(Chart(f"energy-{number}", title, "Lower left is better in both", drawing))
    return charts


def _needed(axes: Sequence[str], group: Sequence[Outcome]) -> list[str]:
    """Return the axes without which two outcomes of a group would have the same short name."""
    needed = list(axes)
    for axis in reversed(axes):
        rest = [each for each in needed if each != axis]
        if rest and len({tuple(column(outcome, each) for each in rest) for outcome in group}) == len(group):
            needed = rest
    return needed


def sure(subject: Subject) -> Content:
    """Show how far the numbers can be trusted, what failed, and each step while it was measured."""
    known = [trust_line(subject.outcomes), *warning_meanings(subject.outcomes)]
    lines = [line.removeprefix("trust: ").strip() for line in known]
    sampled = [outcome for outcome in subject.outcomes if sample_count(outcome)]
    sampled.sort(key=lambda each: not any(w.code in SHAPED for w in each.warnings) and each.status != "unsteady")
    drawn = [_trace(number, each) for number, each in enumerate(sampled[:MOST_TRACES])]
    lead = TRACES_LEAD if drawn else ""
    if len(sampled) > MOST_TRACES:
        lead += f" Shown are {MOST_TRACES} of {len(sampled):,} cases, those with a drift or two speeds first."
    trust_lines = Bullets("trust-lines", [*lines, *failures(subject.outcomes)], shown=8)
    return lead, [trust_lines, SideBySide(drawn), Bullets("how-lines", HOW_LINES)]


def _trace(number: int, outcome: Outcome) -> Chart:
    """Draw the samples of a case, thinned out evenly."""
    samples = trace(outcome, MOST_SAMPLES)
    second, unit = scale_of(sorted(sample.seconds for sample in samples)[len(samples) // 2], "s")
    there = sample_count(outcome)
    drawn = f"{len(samples):,} of {there:,} samples" if len(samples) < there else count(there, "sample")
    steady = [sample.seconds for sample in samples if sample.stage == "steady"]
    ordered = sorted(steady or [sample.seconds for sample in samples])
    low, high = quantile(ordered, 0.01), quantile(ordered, 0.99)
    margin = max(0.3 * (high - low), 0.02 * high)
    ends = (max(0.0, low - margin) / second, (high + margin) / second)
    dots = [(sample.process, sample.stage == "steady", sample.step, sample.seconds / second) for sample in samples]
    about = f"{trust(outcome)}. {drawn}, {count(len(outcome.records), 'process')}"
    return Chart(f"trace-{number}", case_on_device(outcome.case), about, Samples(dots, f"{unit} a step", ends))


def cases(subject: Subject) -> Content:
    """List every number, with how far it can be trusted."""
    columns = ["case", "time of a step", "items/s", "first step", "peak memory", "trust"]
    rows = [_case_row(outcome) for outcome in subject.outcomes]
    lead = "Every case, its numbers, and how far they can be trusted. Sort it by any column."
    return lead, [Grid("all-cases", "All cases", columns, rows, warning_notes(subject.outcomes), shown=20)]


def warning_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Explain each kind of warning once."""
    notes: dict[str, str] = {}
    for warning in (warning for outcome in outcomes for warning in outcome.warnings):
        hint = f"; {warning.hint}" if warning.hint else ""
        notes.setdefault(warning.code, f"{warning.code}: {warning.message}{hint}.")
    return list(notes.values())


def _case_row(outcome: Outcome) -> list[GridCell]:
    step, rate, first, peak = (outcome.figure(name) for name in ("step", "throughput", "first_step", "peak_memory"))
    no_time = GridCell("-" if outcome.status == "oom" else outcome.status)
    why = trust(outcome) if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
    return [
        GridCell(case_name(outcome.case), head=True),
        no_time if step is None else GridCell(show_estimate(step), step.value),
        GridCell("") if rate is None else GridCell(digits(rate.value, rate.half_width), rate.value),
        GridCell("") if first is None else GridCell(show_seconds(first.value), first.value),
        GridCell("") if peak is None else GridCell(show(peak.value, peak.unit), peak.value),
        GridCell(why),
    ]


def method(subject: Subject) -> Content:
    """Show on what it was measured, with what, and how to run it again."""
    records = [record for outcome in subject.outcomes for record in (*outcome.records, *outcome.pairings)]
    runs = {record.run.id: record.created[:10] for record in records}
    first, last = min(runs.values()), max(runs.values())
    steps = sum(record.fact("steps") or 0 for record in records)
    software = list(dict.fromkeys(map(_software, records)))
    settings = dict.fromkeys(f"{name}={value}" for each in records for name, value in each.software.env.items())
    lines = [
        f"{count(len(subject.outcomes), 'case')} in {count(len(records), 'process')}, {count(steps, 'step')}, "
        f"{count(len(runs), 'run')} {f'on {first}' if first == last else f'from {first} to {last}'}.",
        *(f"Software: {versions}." for versions in software[:8]),
        *([f"Settings that matter: {', '.join(list(settings)[:12])}."] if settings else []),
        *(f"To run it again: {command}" for command in rerun_commands(subject.outcomes)),
        *(f"They ran: {line}" for line in their_commands(subject.outcomes)),
    ]
    cells = [[GridCell(name, head=True), GridCell(text)] for name, text in machine_facts(subject.machine)]
    machine = Grid("machine", subject.machine.name, (), cells, numbers=9)
    return "", [machine, Bullets("method-lines", lines, shown=40)]


def machine_facts(machine: Machine) -> list[tuple[str, str]]:
    """Return what a machine says of its system, processor and devices."""
    devices = [(f"{device.framework} {device.name}", device_line(device)) for device in machine.devices]
    return [("system", machine_lines(machine)[1]), ("processor", machine.cpu), *devices]


def _software(record: Record) -> str:
    software = record.software
    versions = [f"{name} {version}" for name, version in software.versions.items()]
    threads = [count(software.threads, "thread")] if software.threads else []
    return ", ".join([*versions, f"Python {software.python}", *threads, f"mldyno {software.mldyno}"])
