"""How does it scale? Batches and lengths as tables, time over lengths, and from which size on one way beats another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from mldyno.analysis import grouped
from mldyno.analysis.answers import Answers
from mldyno.analysis.comparisons import alike
from mldyno.analysis.outcomes import OF_THE_MACHINE, Key, Outcome, varying
from mldyno.analysis.sweeps import Crossover, Scaling
from mldyno.analysis.tables import Cell, Table, lay_out
from mldyno.axes import AXIS
from mldyno.units import show, show_interval
from mldyno.views.answers import answer_lines
from mldyno.views.charts import Lines, Point
from mldyno.views.claims import named
from mldyno.views.outcomes import shown
from mldyno.views.report.parts import Chart, Charts, Grid, GridCell, Grids, Paragraphs, Section, SectionPart
from mldyno.views.report.rows import time_unit
from mldyno.views.report.subject import Subject
from mldyno.views.tables import NO_MEMORY
from mldyno.views.titles import case_title, work_title

MOST_CHARTS = 6  # of crossings, and of growths
MOST_CURVES = 5  # in one chart
MOST_GRIDS = 16
MOST_ROWS = 12  # of a grid, before the rest of it is unfolded
WARMEST = 9


def scaling(subject: Subject) -> Section | None:
    """How speed goes with batch and length; nothing where no case has two sizes."""
    answers = Answers(crossovers=subject.answers.about("step").crossovers, scalings=subject.answers.scalings)
    lines = answer_lines(answers)
    all_grids = [grid for group in alike(subject.outcomes, "batch", "seq", "device")
                 for grid in _grids_of(group)]  # fmt: skip
    charts = [*islice(_crossings(subject), MOST_CHARTS), *islice(_growths(subject), MOST_CHARTS)]
    parts: list[SectionPart] = [Charts(charts)] if charts else []
    parts += [Paragraphs("scaling-lines", lines)] if lines else []
    if all_grids:
        numbered = [replace(grid, id=f"grid-{place}") for place, grid in enumerate(all_grids[:MOST_GRIDS])]
        parts.append(Grids(numbered))
    if not parts:
        return None
    return Section("scaling", "How does it scale?", "Scaling", _lead(bool(charts), len(all_grids)), parts)


def _lead(charts: bool, grids: int) -> str:
    """How to read what is there."""
    parts = [
        "All axes of the charts are logarithmic. Above a dashed line the other side is faster; the large dot is where "
        "both are equal, with its 95 % interval." if charts else "",
        "The tables have the time of a step. Colour is speed: the stronger, the more items a second, against the best "
        f"of the same work. {NO_MEMORY} means out of memory; a mark (!) means that the notes below the table say what "
        "spoke against the number." if grids else "",
        f"The first {MOST_GRIDS} of {grids} tables; all numbers are in All cases." if grids > MOST_GRIDS else "",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


# -- charts over sizes -------------------------------------------------------------------------------


def _crossings(subject: Subject) -> Iterator[Chart]:
    """How many times as fast one side is as the other, at each size; those that cross come first."""
    swept = [each for each in subject.answers.about("step").crossovers if len(each.comparisons) > 1]
    swept.sort(key=lambda each: (each.verdict != "crosses", each.axis != "device"))
    for number, crossover in enumerate(swept):
        yield _crossing(subject, f"crossover-{number}", crossover)


def _crossing(subject: Subject, identity: str, crossover: Crossover) -> Chart:
    axis, over = crossover.axis, crossover.over
    other, base = named(axis, crossover.other), named(axis, crossover.base)
    points = [
        Point(crossover.size(each), each.ratio, f"{show_interval(each.speedup, 'x')}; {each.how}", each.low, each.high)
        for each in crossover.comparisons
    ]
    crossings = [(crossing.size, crossing.low, crossing.high) for crossing in crossover.crossings]
    drawing = Lines([(f"{other} against {base}", points)], over, f"times as fast as {base}", 1.0, crossings)
    title = f"{subject.title(crossover.tried[0], axis, over)}: {other} against {base}"
    return Chart(identity, title, f"Times as fast, at each {over}", drawing)


def _growths(subject: Subject) -> Iterator[Chart]:
    """The time of a step over the length of sequences, for each work."""
    works = grouped(subject.answers.scalings, lambda each: work_title(each.outcomes[0].case))
    for number, (name, group) in enumerate(works.items()):
        yield _growth(f"growth-{number}", name, group[:MOST_CURVES])


def _growth(identity: str, name: str, scalings: Sequence[Scaling]) -> Chart:
    axes = [axis for axis in varying([each.outcomes[0] for each in scalings]) if axis != "machine"] or ["device"]
    times = [(each, outcome, outcome.step) for each in scalings for outcome in each.outcomes]
    unit, per = time_unit(max(step.value for _, _, step in times if step is not None))
    lines = []
    for each in scalings:
        first = each.outcomes[0]
        side = ", ".join(AXIS[axis].say(getattr(first.case, axis)) for axis in axes)
        points = []
        for outcome, step in [(outcome, step) for of, outcome, step in times if of is each and step is not None]:
            low, high = (None if end is None else end * per for end in (step.low, step.high))
            hover = f"{shown(step)}; exponent {each.fit.value:.2f} overall"
            points.append(Point(outcome.case.seq or 0, step.value * per, hover, low, high))
        lines.append((side, points))
    return Chart(identity, name, "Time of a step, at each length", Lines(lines, "tokens", f"{unit} a step"))


# -- tables of batches and lengths -------------------------------------------------------------------


def _grids_of(group: Sequence[Outcome]) -> Iterator[Grid]:
    """The tables of one work: one for each device where lengths vary, else one with devices as columns."""
    best = max((rate.value for outcome in group if (rate := outcome.figure("throughput")) is not None), default=0.0)
    about = case_title(group[0].case, ("framework", "device", "batch", "seq"))
    if len({outcome.case.seq for outcome in group}) > 1:
        for device, on_device in grouped(group, lambda outcome: outcome.case.device).items():
            table = lay_out(on_device, ("batch",), ("seq",), "step", warnings_too=False)
            yield _grid(table, f"{about}, {device}", best)
    elif len({outcome.case.batch for outcome in group}) > 1:
        yield _grid(lay_out(group, ("batch",), ("device",), "step", warnings_too=False), about, best)


def _grid(table: Table, caption: str, best: float) -> Grid:
    heads = [", ".join(_column(n, p) for n, p in zip(table.cols, key, strict=True)) for key in table.col_keys]
    rows, notes = [], {}
    for row in table.row_keys:
        cells = [_cell(table.cells.get((row, col)), best) for col in table.col_keys]
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            notes.update(dict.fromkeys(_doubts(cell.outcome) if cell else ()))
        rows.append([_row_head(row), *cells])
    return Grid("", caption, [", ".join(table.rows), *heads], rows, list(notes), shown=MOST_ROWS)


def _column(name: str, part: object) -> str:
    return "no sequence" if part is None else AXIS[name].say(part) if name in AXIS else str(part)


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
    return GridCell(shown(cell.figure), cell.figure.value, heat, under, bool(_doubts(cell.outcome)))
