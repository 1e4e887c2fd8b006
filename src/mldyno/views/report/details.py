"""Sections that look closer: samples over time, shares of the peak, published machines, and all cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mldyno.analysis import published as published_figures
from mldyno.analysis.bounds import bound, shares
from mldyno.analysis.comparisons import compare
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.grouping import grouped
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Cell
from mldyno.analysis.traces import sample_count, trace
from mldyno.printable import printable
from mldyno.stats.intervals import quantile
from mldyno.store.figures import marks
from mldyno.units import count, digits, show, show_seconds
from mldyno.views import charts
from mldyno.views.record_text import BOUNDS
from mldyno.views.report.parts import Chart, Grid, GridCell, Paragraphs, Section, SectionPart, Traces
from mldyno.views.report.rows import share_row, sides_of, time_row, time_unit
from mldyno.views.report.speeds import MAX_BARS, MAX_CHARTS
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import arms, claim, shown_time, trust

SHAPED = ("drifting", "two-modes", "late-change", "recompiled", "throttled", "leaking")  # what a trace makes visible
MAX_SAMPLES = 150_000  # of all cases that are drawn
MIN_SAMPLES_EACH, MAX_SAMPLES_EACH = 24, 240  # of one case
_PLACES = ("batch", "seq", "precision", "placement")


def traces(subject: Subject) -> Section | None:
    """The time of each step while it was measured."""
    sampled = [outcome for outcome in subject.outcomes if sample_count(outcome)]
    if not sampled:
        return None
    sampled.sort(
        key=lambda outcome: not any(w.code in SHAPED for w in outcome.warnings) and outcome.status != "unsteady"
    )
    each = max(MIN_SAMPLES_EACH, min(MAX_SAMPLES_EACH, MAX_SAMPLES // len(sampled)))
    drawn = [_trace(outcome, each) for outcome in sampled]
    units = sorted({trace["unit"] for trace in drawn})
    specs = {unit: charts.samples([], unit, "Dots: the time of a step while it was measured") for unit in units}
    lead = (
        "Each dot is the time of a step, averaged over one block of steps, in the order in which they were measured; "
        "each process has a colour of its own, the warm-up is pale, what is off the scale lies at its edge. A slope "
        "is a drift, two bands are two speeds. Cases in which such a thing was seen come first."
    )
    return Section("traces", "Step times over time", lead, [Traces("traces-list", specs, drawn)])


def _trace(outcome: Outcome, most: int) -> dict[str, Any]:
    """The samples of a case in few letters: process, whether it is steady, steps done before, time in the unit."""
    samples = trace(outcome, most)
    unit, per = time_unit(sorted(sample.seconds for sample in samples)[len(samples) // 2])
    there = sample_count(outcome)
    drawn = f"{len(samples):,} of {there:,} samples" if len(samples) < there else count(there, "sample")
    steady = [sample.seconds for sample in samples if sample.stage == "steady"]
    ordered = sorted(steady or [sample.seconds for sample in samples])
    low, high = quantile(ordered, 0.01), quantile(ordered, 0.99)
    margin = max(0.3 * (high - low), 0.02 * high)
    ends = [float(f"{max(0.0, end) * per:.4g}") for end in (low - margin, high + margin)]
    rows = [[sample.process, int(sample.stage == "steady"), sample.step, float(f"{sample.seconds * per:.4g}")]
            for sample in samples]  # fmt: skip
    caption = f"{trust(outcome)}. {drawn}, {count(len(outcome.records), 'process')}."
    return {"title": printable(outcome.case.id), "machine": printable(outcome.machine), "caption": printable(caption),
            "unit": f"{unit} a step", "ends": ends, "rows": rows}  # fmt: skip


def peaks(subject: Subject) -> Section | None:
    """How much of each device's peaks the cases use, and what holds them up."""
    rows: list[dict[str, Any]] = []
    lines = []
    axes = [axis for axis in subject.varied if axis not in ("machine", "workload", "mode")]
    for outcome in subject.outcomes:
        of_peaks = shares(outcome.good[0]) if outcome.good else None
        limit = bound(outcome.good[0]) if outcome.good else None
        if of_peaks is None or limit is None:
            continue
        why = f"{BOUNDS[limit.kind]}: {limit.why}"
        lines.append(f"{outcome.case.id}: {why}")
        name = full_label(outcome.case, axes)
        name = f"{outcome.machine}: {name}" if len(subject.machines) > 1 else name
        kinds = (
            ("arithmetic", of_peaks.compute),
            ("memory traffic", of_peaks.memory),
            ("copies", of_peaks.copy),
            ("data", of_peaks.data),
        )
        rows += [share_row(share, name, kind, why) for kind, share in kinds if share is not None]
    if not rows:
        return None
    rows = rows[:MAX_BARS]
    alt = f"Bars: shares of the peak in {count(len({row['label'] for row in rows}), 'case')}, said in words below."
    chart = Chart(
        "peak", "Share of what the device can do", charts.bars(rows, sides_of(rows), "% of the peak", alt, 100.0), alt
    )
    lead = (
        "The peaks are measured on the same device, in the same process: matmuls for arithmetic, copies for "
        "memory. A model that works in caches can be over the peak of memory."
    )
    return Section("peaks", "Share of the peak", lead, [chart, Paragraphs("peak-lines", lines)])


def published(subject: Subject) -> Section | None:
    """Published machines beside these, in the same work."""
    table = published_figures.place(subject.outcomes, subject.published)
    if table is None:
        return None
    axes = ("workload", "mode", *_PLACES)
    works = grouped(table.cells.values(), lambda cell: tuple(getattr(cell.outcome.case, name) for name in axes))
    parts: list[SectionPart] = []
    lines: list[str] = []
    for number, cells in enumerate(list(works.values())[:MAX_CHARTS]):
        parts += _published_chart(f"published-{number}", cells)
        lines += _against_published(cells)
    if not parts:
        return None
    lead = (
        "Figures that other people published of the same work, as they were published: without an interval, and "
        "with software of their time. What is marked as published was not measured by mldyno."
    )
    return Section("published", "Published machines beside yours", lead, [*parts, Paragraphs("published-lines", lines)])


def _published_chart(identity: str, cells: Sequence[Cell]) -> Iterator[Chart]:
    known = [(cell.outcome, cell.figure) for cell in cells if cell.figure is not None]
    if len({outcome.published for outcome, _ in known}) < 2:
        return
    known.sort(key=lambda pair: pair[1].value)
    known = known[:MAX_BARS]
    case = known[0][0].case
    unit, per = time_unit(max(step.value for _, step in known))
    rows = [_machine_row(outcome, step, per) for outcome, step in known]
    title = f"{work_name(case)}, {label(case, _PLACES)}"
    alt = f"Bars: the time of a step of {title} on {count(len(rows), 'machine')}, published ones among them; "
    alt += "the same is said in words below."
    yield Chart(identity, title, charts.bars(rows, ["measured", "published"], f"{unit} a step", alt), alt)


def _machine_row(outcome: Outcome, step: Estimate, per: float) -> dict[str, Any]:
    doubts = ", ".join(code for code, _ in marks(outcome.records[0])) if outcome.published else ""
    name = f"{outcome.case.device}: {outcome.machine}" + (f" ({doubts})" if doubts else "")
    return time_row(outcome, step, name, "published" if outcome.published else "measured", per)


def _against_published(cells: Sequence[Cell]) -> Iterator[str]:
    """Each measured one against each published one."""
    theirs = [cell.outcome for cell in cells if cell.outcome.published and cell.figure is not None]
    for mine in (cell.outcome for cell in cells if not cell.outcome.published and cell.figure is not None):
        for other in theirs:
            comparison = compare(other, mine)
            if comparison is not None:
                yield f"{mine.case.id}: {claim(comparison, *arms(comparison))}"


def cases(subject: Subject) -> Section:
    """Every number, with how far it can be trusted."""
    machines = ["machine"] if len(subject.machines) > 1 else []
    columns = ["case", *machines, "time of a step", "items/s", "first step", "peak memory", "trust"]
    rows = [_case_row(outcome, bool(machines)) for outcome in subject.outcomes]
    notes: dict[str, str] = {}
    for warning in (warning for outcome in subject.outcomes for warning in outcome.warnings):
        hint = f"; {warning.hint}" if warning.hint else ""
        notes.setdefault(warning.code, f"{warning.code}: {warning.message}{hint}.")
    lead = "Every case, its numbers, and how far they can be trusted. Sort it by any column."
    grid = Grid("all-cases", "All cases", columns, rows, list(notes.values()), numbers=1 + len(machines))
    return Section("cases", "All cases", lead, [grid])


def _case_row(outcome: Outcome, with_machine: bool) -> list[GridCell]:
    step, rate, first, peak = (outcome.figure(name) for name in ("step", "throughput", "first_step", "peak_memory"))
    if step is None:
        time = GridCell("-" if outcome.status == "oom" else outcome.status)
    else:
        time = GridCell(shown_time(step), step.value)
    why = trust(outcome) if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
    return [
        GridCell(outcome.case.id, head=True),
        *([GridCell(outcome.machine)] if with_machine else []),
        time,
        GridCell("") if rate is None else GridCell(digits(rate.value, rate.half_width), rate.value),
        GridCell("") if first is None else GridCell(show_seconds(first.value), first.value),
        GridCell("") if peak is None else GridCell(show(peak.value, peak.unit), peak.value),
        GridCell(why),
    ]
