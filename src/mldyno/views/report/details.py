"""Sections that look closer: samples over time, shares of the peak, published machines, and all cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mldyno.analysis import published as placing
from mldyno.analysis.bounds import bound, shares
from mldyno.analysis.comparisons import compare
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Cell as Place
from mldyno.analysis.traces import sample_count, trace
from mldyno.stats.intervals import quantile
from mldyno.store.figures import marks
from mldyno.units import count, digits, show, show_seconds
from mldyno.views import charts
from mldyno.views.record_text import BOUNDS
from mldyno.views.report.parts import Cell, Chart, Part, Section, Table, Traces, Words
from mldyno.views.report.rows import share_row, shown_time, sides_of, time_row, time_unit
from mldyno.views.report.speeds import MOST_BARS, MOST_CHARTS
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import arms, claim, trust

SHAPED = ("drifting", "two-modes", "late-change", "recompiled", "throttled", "leaking")  # what a course makes visible
MOST_SAMPLES = 150_000  # of all cases that are drawn
FEWEST_EACH, MOST_EACH = 24, 240  # of one case
_PLACES = ("batch", "seq", "precision", "placement")


def traces(subject: Subject) -> Section | None:
    """The time of each step while it was measured."""
    found = [one for one in subject.outcomes if sample_count(one)]
    if not found:
        return None
    found.sort(key=lambda one: not any(w.code in SHAPED for w in one.warnings) and one.status != "unsteady")
    each = max(FEWEST_EACH, min(MOST_EACH, MOST_SAMPLES // len(found)))
    drawn = [_trace(one, each) for one in found]
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
    unit, per = time_unit(sorted(one.seconds for one in samples)[len(samples) // 2])
    there = sample_count(outcome)
    drawn = f"{len(samples):,} of {there:,} samples" if len(samples) < there else count(there, "sample")
    ordered = sorted(one.seconds for one in samples if one.stage == "steady") or sorted(one.seconds for one in samples)
    low, high = quantile(ordered, 0.01), quantile(ordered, 0.99)
    margin = max(0.3 * (high - low), 0.02 * high)
    ends = [float(f"{max(0.0, end) * per:.4g}") for end in (low - margin, high + margin)]
    rows = [[one.process, int(one.stage == "steady"), one.step, float(f"{one.seconds * per:.4g}")] for one in samples]
    return {"title": outcome.case.id, "machine": outcome.machine, "unit": f"{unit} a step", "ends": ends, "rows": rows,
            "caption": f"{trust(outcome)}. {drawn}, {count(len(outcome.records), 'process')}."}  # fmt: skip


def peak(subject: Subject) -> Section | None:
    """How much of each device's peaks the cases use, and what holds them up."""
    rows: list[dict[str, Any]] = []
    words = []
    axes = [axis for axis in subject.varied if axis not in ("machine", "workload", "mode")]
    for outcome in subject.outcomes:
        found = shares(outcome.good[0]) if outcome.good else None
        held = bound(outcome.good[0]) if outcome.good else None
        if found is None or held is None:
            continue
        told = f"{BOUNDS[held.kind]}: {held.why}"
        words.append(f"{outcome.case.id}: {told}")
        name = full_label(outcome.case, axes)
        name = f"{outcome.machine}: {name}" if len(subject.machines) > 1 else name
        kinds = (
            ("arithmetic", found.compute),
            ("memory traffic", found.memory),
            ("copies", found.copy),
            ("data", found.data),
        )
        rows += [share_row(share, name, kind, told) for kind, share in kinds if share is not None]
    if not rows:
        return None
    rows = rows[:MOST_BARS]
    alt = f"Bars: shares of the peak in {count(len({row['label'] for row in rows}), 'case')}, told in words below."
    chart = Chart(
        "peak", "Share of what the device can do", charts.bars(rows, sides_of(rows), "% of the peak", alt, 100.0), alt
    )
    lead = (
        "The peaks are measured on the same device, in the same process: plain matrix products for arithmetic, plain "
        "copies for memory. A model that works in caches can be over the peak of memory."
    )
    return Section("peaks", "Share of the peak", lead, [chart, Words("peak-words", words)])


def beside(subject: Subject) -> Section | None:
    """Published machines beside these, in the same work."""
    table = placing.place(subject.outcomes, subject.published)
    if table is None:
        return None
    works: dict[tuple[Any, ...], list[Place]] = {}
    for cell in table.cells.values():
        case = cell.outcome.case
        works.setdefault((case.workload, case.mode, *(getattr(case, name) for name in _PLACES)), []).append(cell)
    parts: list[Part] = []
    lines: list[str] = []
    for number, several in enumerate(list(works.values())[:MOST_CHARTS]):
        parts += _beside(f"beside-{number}", several)
        lines += _against(several)
    if not parts:
        return None
    lead = (
        "Figures that other people published of the same work, as they were published: without an interval, and "
        "with software of their time. What is marked as published was not measured by mldyno."
    )
    return Section("beside", "Published machines beside yours", lead, [*parts, Words("beside-words", lines)])


def _beside(identity: str, cells: Sequence[Place]) -> Iterator[Chart]:
    known = [(cell.outcome, cell.figure) for cell in cells if cell.figure is not None]
    if len({outcome.published for outcome, _ in known}) < 2:
        return
    known.sort(key=lambda pair: pair[1].value)
    known = known[:MOST_BARS]
    case = known[0][0].case
    unit, per = time_unit(max(step.value for _, step in known))
    rows = [_machine_row(outcome, step, per) for outcome, step in known]
    title = f"{work_name(case)}, {label(case, _PLACES)}"
    alt = f"Bars: the time of a step of {title} on {count(len(rows), 'machine')}, published ones among them; "
    alt += "the same is told in words below."
    yield Chart(identity, title, charts.bars(rows, ["measured", "published"], f"{unit} a step", alt), alt)


def _machine_row(outcome: Outcome, step: Estimate, per: float) -> dict[str, Any]:
    doubt = f" ({', '.join(code for code, _ in marks(outcome.records[0]))})" if outcome.published else ""
    name = f"{outcome.case.device}: {outcome.machine}" + (doubt if doubt != " ()" else "")
    return time_row(outcome, step, name, "published" if outcome.published else "measured", per)


def _against(cells: Sequence[Place]) -> Iterator[str]:
    """Each measured one against each published one."""
    theirs = [cell.outcome for cell in cells if cell.outcome.published and cell.figure is not None]
    for mine in (cell.outcome for cell in cells if not cell.outcome.published and cell.figure is not None):
        for other in theirs:
            found = compare(other, mine)
            if found is not None:
                yield f"{mine.case.id}: {claim(found, *arms(found))}"


def cases(subject: Subject) -> Section:
    """Every number, with how far it can be trusted."""
    several = len(subject.machines) > 1
    columns = [
        "case",
        *(["machine"] if several else []),
        "time of a step",
        "items/s",
        "first step",
        "peak memory",
        "trust",
    ]
    rows = [_case_row(one, several) for one in subject.outcomes]
    told: dict[str, str] = {}
    for outcome in subject.outcomes:
        for warning in outcome.warnings:
            told.setdefault(
                warning.code, f"{warning.code}: {warning.message}" + (f"; {warning.hint}." if warning.hint else ".")
            )
    lead = "Every case, its numbers, and how far they can be trusted. Sort it by any column."
    table = Table("all-cases", "All cases", columns, rows, list(told.values()), numbers=2 if several else 1)
    return Section("cases", "All cases", lead, [table])


def _case_row(outcome: Outcome, several: bool) -> list[Cell]:
    step, rate, first, peak = (outcome.figure(name) for name in ("step", "throughput", "first_step", "peak_memory"))
    if step is None:
        time = Cell("-" if outcome.status == "oom" else outcome.status)
    else:
        time = Cell(shown_time(step), step.value)
    why = trust(outcome) if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
    return [
        Cell(outcome.case.id, head=True),
        *([Cell(outcome.machine)] if several else []),
        time,
        Cell("") if rate is None else Cell(digits(rate.value, rate.half_width), rate.value),
        Cell("") if first is None else Cell(show_seconds(first.value), first.value),
        Cell("") if peak is None else Cell(show(peak.value, peak.unit), peak.value),
        Cell(why),
    ]
