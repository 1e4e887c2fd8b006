"""Sections about how fast: times by device, speed-ups, and tables of batches and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mldyno.analysis.answers import means_by_work
from mldyno.analysis.comparisons import Comparison, Mean, alike
from mldyno.analysis.grouping import grouped
from mldyno.analysis.outcomes import OF_THE_MACHINE, Outcome
from mldyno.analysis.tables import Cell, Key, Table, lay_out, varying
from mldyno.units import count, show
from mldyno.views import charts
from mldyno.views.report.parts import Chart, Grid, GridCell, Section
from mldyno.views.report.rows import ratio_row, sides_of, time_row, time_unit
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import named, shown_time
from mldyno.views.tables import NO_MEMORY

MAX_CHARTS = 16
MAX_BARS = 36
MAX_GRIDS = 16
MAX_ROWS = 12  # of a grid, before the rest of it is unfolded
WARMEST = 9


def durations(subject: Subject) -> Section:
    """The time of a step on each device, and speed-ups over the first of them."""
    parts = list(bar_charts(subject, MAX_BARS))
    if not parts:
        return Section("durations", "Time of a step", "No case has a time; All cases says why.")
    lead = "The thin line at the end of a bar is the 95 % interval."
    if not subject.devices:
        lead += " There is only one device here, so there is no speed-up to show."
    works = len({work_name(outcome.case) for outcome in subject.outcomes})
    if works > MAX_CHARTS:
        lead += f" The first {MAX_CHARTS} of {works} workloads and modes; the others are in All cases."
    return Section("durations", "Time of a step, by device", lead, parts)


def bar_charts(subject: Subject, most: int) -> Iterator[Chart]:
    """The speed-ups, and the times of each workload in each mode; with at most so many bars each."""
    yield from _speedups(subject, most)
    timed = [outcome for outcome in subject.outcomes if outcome.step is not None]
    works = grouped(timed, lambda outcome: work_name(outcome.case))
    for number, (name, group) in enumerate(list(works.items())[:MAX_CHARTS]):
        yield _times(subject, f"time-{number}", name, group, most)


def _times(subject: Subject, identity: str, name: str, outcomes: Sequence[Outcome], most: int) -> Chart:
    """Bars for one workload in one mode."""
    axes = [axis for axis in varying(outcomes) if axis not in ("device", "machine")] or ["batch"]
    steps = [(outcome, outcome.step) for outcome in outcomes[:most] if outcome.step is not None]
    unit, per = time_unit(max(step.value for _, step in steps))
    rows = [time_row(outcome, step, label(outcome.case, axes) or "a step", subject.side(outcome), per)
            for outcome, step in steps]  # fmt: skip
    sides = sides_of(rows)
    caption = f"The first {most} of {len(outcomes)}; the others are in All cases." if len(outcomes) > most else ""
    alt = f"Bars: the time of a step of {name}, {count(len(rows), 'case')} on {', '.join(sides[:6])}. "
    alt += "The numbers are in the table of all cases."
    return Chart(identity, name, charts.bars(rows, sides, f"{unit} a step, shorter is faster", alt), alt, caption)


def _speedups(subject: Subject, most: int) -> Iterator[Chart]:
    """How many times as fast each device is as the first: each comparison, or means where they are many."""
    results: Sequence[Comparison | Mean] = subject.devices
    caption = "Each pair did the same work. A bar to the right of the dashed line is faster, one to the left is slower."
    if len(results) > most:
        results = means_by_work(subject.devices, "device")
        caption += f" {count(len(subject.devices), 'comparison')}: geometric means by workload and mode."
    if not results:
        return
    rows = []
    axes = [axis for axis in varying([each.other for each in subject.devices]) if axis not in ("device", "machine")]
    for result in results[:most]:
        single = isinstance(result, Comparison)
        other = result.other if isinstance(result, Comparison) else result.comparisons[0].other
        rows.append(ratio_row(result, full_label(other.case, axes if single else ()), subject.side(other)))
    base = subject.devices[0].base.case.device
    alt = f"Bars: speed-up over {base} in {count(len(rows), 'case')}, with intervals; the same is said in words above."
    spec = charts.speedups(rows, sides_of(rows), f"times as fast as {base}", alt)
    yield Chart("speedup", f"Speed-up over {base}", spec, alt, caption)


def grids(subject: Subject) -> Section | None:
    """Tables of batches and lengths, coloured by speed."""
    all_grids = [grid for group in alike(subject.outcomes, "batch", "seq", "device", "machine")
                 for grid in _grids_of(subject, group)]  # fmt: skip
    if not all_grids:
        return None
    lead = (
        "Time of one step. Colour is speed: the stronger, the more items a second, against the best of the same work. "
        f"{NO_MEMORY} means out of memory. A mark (!) means that something spoke against the number: "
        "the notes below the table, and All cases, say what."
    )
    if len(all_grids) > MAX_GRIDS:
        lead += f" The first {MAX_GRIDS} of {len(all_grids)} tables; all numbers are in All cases."
    numbered = [replace(grid, id=f"grid-{place}") for place, grid in enumerate(all_grids[:MAX_GRIDS])]
    return Section("grids", "Batches and sequence lengths", lead, numbered)


def _grids_of(subject: Subject, group: Sequence[Outcome]) -> Iterator[Grid]:
    """The tables of one work: one for each device where lengths vary, else one with devices as columns."""
    best = max((rate.value for outcome in group if (rate := outcome.figure("throughput")) is not None), default=0.0)
    about = _about(subject, group[0])
    if len({outcome.case.seq for outcome in group}) > 1:
        for side in dict.fromkeys(map(subject.side, group)):
            on_side = [outcome for outcome in group if subject.side(outcome) == side]
            yield _grid(lay_out(on_side, ("batch",), ("seq",), "step", warnings_too=False), f"{about}, {side}", best)
    elif len({outcome.case.batch for outcome in group}) > 1:
        cols = ("machine", "device") if len(subject.machines) > 1 else ("device",)
        yield _grid(lay_out(group, ("batch",), cols, "step", warnings_too=False), about, best)


def _about(subject: Subject, outcome: Outcome) -> str:
    """What all cells of a table have in common, as far as it is not the same in the whole report."""
    axes = [axis for axis in subject.varied if axis not in ("batch", "seq", "device", "machine")]
    return " ".join(filter(None, [work_name(outcome.case), label(outcome.case, axes)]))


def _grid(table: Table, caption: str, best: float) -> Grid:
    heads = [", ".join(_column(n, p) for n, p in zip(table.cols, key, strict=True)) for key in table.col_keys]
    rows, notes = [], {}
    for row in table.row_keys:
        cells = [_cell(table.cells.get((row, col)), best) for col in table.col_keys]
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            notes.update(dict.fromkeys(_doubts(cell.outcome) if cell else ()))
        rows.append([_row_head(row), *cells])
    return Grid("", caption, [", ".join(table.rows), *heads], rows, list(notes), shown=MAX_ROWS)


def _column(name: str, part: object) -> str:
    return "no sequence" if part is None else named(name, part)


def _row_head(row: Key) -> GridCell:
    number = float(row[0]) if isinstance(row[0], int) else None
    return GridCell(", ".join(f"{part:,}" if isinstance(part, int) else str(part) for part in row), number, head=True)


def _doubts(outcome: Outcome) -> list[str]:
    """What spoke against an outcome, apart from what holds for the whole machine."""
    if outcome.status not in ("ok", "oom"):
        return [f"{outcome.status}: {outcome.reason}"]
    warnings = [warning for warning in outcome.warnings if warning.code not in OF_THE_MACHINE]
    return [f"{warning.code}: {warning.message}" for warning in warnings]


def _cell(cell: Cell | None, best: float) -> GridCell:
    if cell is None:
        return GridCell("")
    if cell.figure is None:
        return GridCell(NO_MEMORY if cell.outcome.status == "oom" else cell.outcome.status)
    rate = cell.outcome.figure("throughput")
    heat = None if rate is None or not best else min(WARMEST, int(rate.value / best * (WARMEST + 0.999)))
    under = "" if rate is None else show(rate.value, "1/s", rate.half_width)
    return GridCell(shown_time(cell.figure), cell.figure.value, heat, under, bool(_doubts(cell.outcome)))
