"""How speed depends on batch and length: tables, time, crossovers; and on the ranks: speed-up and waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from mldyno.analysis import grouped
from mldyno.analysis.answers import Answers
from mldyno.analysis.breakdown import RankSplit, split
from mldyno.analysis.comparisons import alike
from mldyno.analysis.outcomes import OF_THE_MACHINE, Key, Outcome, varying
from mldyno.analysis.sweeps import Scaling
from mldyno.analysis.tables import Cell, Table, lay_out
from mldyno.axes import AXIS
from mldyno.units import Interval, scale_of, show, show_interval, show_percent
from mldyno.views.answers import answer_lines
from mldyno.views.charts import Lines, Mark, Point, Row
from mldyno.views.claims import named
from mldyno.views.outcomes import rank_lines, show_estimate
from mldyno.views.report.parts import Bullets, Chart, Content, Grid, GridCell, SideBySide, share_bars
from mldyno.views.report.subject import Subject
from mldyno.views.tables import NO_MEMORY
from mldyno.views.titles import case_title, work_title

MOST_CHARTS = 6  # of crossovers, of growths, and of ranks
MOST_CURVES = 5  # in one chart
MOST_GRIDS = 16
MOST_ROWS = 12  # of a table, before the rest of it is unfolded, and of the chart of ranks
WARMEST = 9

RANKS_LEAD = (
    "Measured in one job, interleaved in rounds: steps with an exchange of gradients, steps without it, and steps of "
    "one process alone. The dashed line is one process; ideally each added rank adds as much as the first."
)
Split = tuple[Outcome, RankSplit]


def scaling(subject: Subject) -> Content:
    """Show how speed depends on batch and length, for cases with two sizes."""
    lines = answer_lines(
        Answers(crossovers=subject.answers.about("step").crossovers, scalings=subject.answers.scalings)
    )
    grids = [grid for group in alike(subject.outcomes, "batch", "seq", "device") for grid in _grids_of(group)]
    charts = [*islice(_crossover_charts(subject), MOST_CHARTS), *islice(_growth_charts(subject), MOST_CHARTS)]
    numbered = [replace(grid, id=f"grid-{place}") for place, grid in enumerate(grids[:MOST_GRIDS])]
    lead = _how_to_read(bool(charts), len(grids))
    return lead, [SideBySide(charts), Bullets("scaling-lines", lines), SideBySide(numbered)]


def _how_to_read(charts: bool, grids: int) -> str:
    parts = [
        "All axes of the charts are logarithmic. Above a dashed line the other side is faster; the large dot is where "
        "both are equal, with its 95 % interval." if charts else "",
        "The tables have the time of a step. The stronger the colour, the more items per second, relative to the best "
        f"in the same work. {NO_MEMORY} means out of memory; ! means that a warning applies, which is explained below "
        "the table." if grids else "",
        f"The first {MOST_GRIDS} of {grids} tables; all numbers are in All cases." if grids > MOST_GRIDS else "",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


def _crossover_charts(subject: Subject) -> Iterator[Chart]:
    """Draw the speed-up of one side over the other at each size; those that cross come first."""
    swept = [each for each in subject.answers.about("step").crossovers if len(each.comparisons) > 1]
    swept.sort(key=lambda each: (each.verdict != "crosses", each.axis != "device"))
    for number, crossover in enumerate(swept):
        axis, over = crossover.axis, crossover.over
        other, base = named(axis, crossover.other), named(axis, crossover.base)
        points = [
            Point(crossover.size(each), each.speedup, f"{show_interval(each.speedup, 'x')}; {each.how}")
            for each in crossover.comparisons
        ]
        crossings = [(crossing.value, crossing.low, crossing.high) for crossing in crossover.crossings]
        drawing = Lines([(f"{other} against {base}", points)], over, f"times as fast as {base}", 1.0, crossings)
        title = f"{subject.title(crossover.tried[0], axis, over)}: {other} against {base}"
        yield Chart(f"crossover-{number}", title, f"Times as fast, at each {over}", drawing)


def _growth_charts(subject: Subject) -> Iterator[Chart]:
    """Draw the time of a step over the length of sequences, for each work."""
    works = grouped(subject.answers.scalings, lambda each: work_title(each.outcomes[0].case))
    for number, (name, group) in enumerate(works.items()):
        yield Chart(f"growth-{number}", name, "Time of a step, at each length", _growth(group[:MOST_CURVES]))


def _growth(scalings: Sequence[Scaling]) -> Lines:
    axes = [axis for axis in varying([each.outcomes[0] for each in scalings]) if axis != "machine"] or ["device"]
    steps = [step.value for each in scalings for outcome in each.outcomes if (step := outcome.step) is not None]
    second, unit = scale_of(max(steps), "s")
    lines = []
    for each in scalings:
        first = each.outcomes[0]
        side = ", ".join(AXIS[axis].say(getattr(first.case, axis)) for axis in axes)
        times = [(outcome.case.seq or 0, outcome.step) for outcome in each.outcomes]
        about = f"exponent {each.fit.value:.2f} overall"
        points = [
            Point(seq, step.scaled_by(1 / second), f"{show_estimate(step)}; {about}") for seq, step in times if step
        ]
        lines.append((side, points))
    return Lines(lines, "tokens", f"{unit} a step")


def _grids_of(group: Sequence[Outcome]) -> Iterator[Grid]:
    """Yield the tables of one work: one for each device where lengths vary, else one with devices as columns."""
    best = max((rate.value for outcome in group if (rate := outcome.figure("throughput")) is not None), default=0.0)
    about = case_title(group[0].case, ("framework", "device", "batch", "seq"))
    if len({outcome.case.seq for outcome in group}) > 1:
        for device, on_device in grouped(group, lambda outcome: outcome.case.device).items():
            table = lay_out(on_device, ("batch",), ("seq",), "step", warnings_too=False)
            yield _grid(table, f"{about}, {device}", best)
    elif len({outcome.case.batch for outcome in group}) > 1:
        yield _grid(lay_out(group, ("batch",), ("device",), "step", warnings_too=False), about, best)


def _grid(table: Table, caption: str, best: float) -> Grid:

    def column_head(name: str, part: object) -> str:
        return "no sequence" if part is None else AXIS[name].say(part) if name in AXIS else str(part)

    def row_head(row: Key) -> GridCell:
        number = float(row[0]) if isinstance(row[0], int) else None
        text = ", ".join(f"{part:,}" if isinstance(part, int) else str(part) for part in row)
        return GridCell(text, number, head=True)

    heads = [", ".join(map(column_head, table.cols, key)) for key in table.col_keys]
    rows = [[row_head(row), *(_cell(table.cells.get((row, col)), best) for col in table.col_keys)]
            for row in table.row_keys]  # fmt: skip
    cells = [table.cells.get((row, col)) for row in table.row_keys for col in table.col_keys]
    notes = dict.fromkeys(doubt for cell in cells if cell for doubt in _doubts(cell.outcome))
    return Grid("", caption, [", ".join(table.rows), *heads], rows, list(notes), shown=MOST_ROWS)


def _doubts(outcome: Outcome) -> list[str]:
    """Return what speaks against an outcome, except what holds for the whole machine."""
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
    return GridCell(show_estimate(cell.figure), cell.figure.value, heat, under, bool(_doubts(cell.outcome)))


def ranks(subject: Subject) -> Content:
    """Show what several ranks gain, and how long they wait for each other."""
    known = [(outcome, parts) for outcome in subject.outcomes if (parts := split(outcome)) is not None]
    if not known:
        return "", []
    gained = [each for each in known if each[1].over_same_threads is not None]
    parts_of = {outcome.records[0].id: parts for outcome, parts in gained}
    works = [[(outcome, parts_of[outcome.records[0].id]) for outcome in group]
             for group in alike([outcome for outcome, _ in gained], "ranks")]  # fmt: skip
    works = [sorted(work, key=lambda each: each[1].ranks) for work in works[:MOST_CHARTS]]
    charts = [_gain(subject, number, work) for number, work in enumerate(works)]
    lines = [f"{subject.title(outcome)}: {'; '.join(rank_lines(outcome, parts))}" for outcome, parts in known]
    return RANKS_LEAD, [SideBySide(charts), _waiting(subject, known), Bullets("rank-lines", lines)]


def _gain(subject: Subject, number: int, group: Sequence[Split]) -> Chart:
    """Draw the speed-up against ranks, and the line on which each rank adds as much as the first."""
    counts = [1, *(parts.ranks for _, parts in group if parts.ranks > 1)]
    ideal = [Point(count, Interval(count), "each rank adds as much as the first") for count in counts]
    lines = [("ideal", ideal), ("same threads", _points(group, "over_same_threads"))]
    if any(parts.over_all_cores is not None for _, parts in group):
        lines.append(("all cores", _points(group, "over_all_cores")))
    gains = [(parts.over_same_threads, parts.ranks) for _, parts in group if parts.over_same_threads is not None]
    best, ranks = max(gains, key=lambda gain: gain[0].value)
    title = f"{subject.title(group[0][0], 'ranks')}: {ranks} ranks give {show_interval(best, 'x')}"
    drawing = Lines(lines, "ranks", "times as fast", 1.0)
    return Chart(f"ranks-{number}", title, "Times as many items a second as one process", drawing)


def _points(group: Sequence[Split], which: str) -> list[Point]:
    factors = [(parts.ranks, getattr(parts, which)) for _, parts in group]
    return [Point(count, gain, show_interval(gain, "x")) for count, gain in factors if gain is not None]


def _waiting(subject: Subject, known: Sequence[Split]) -> Chart:
    """Draw the share of a step that computes, and the share that waits for gradients."""
    rows = []
    for outcome, parts in known[:MOST_ROWS]:
        waiting = min(1.0, max(0.0, parts.waiting.value))
        hover = f"{show_interval(parts.waiting, '%')} of a step waits for gradients"
        marks = [Mark(Interval(100 * share), show_percent(share), hover, colour)
                 for share, colour in ((1 - waiting, "s1"), (waiting, "s4"))]  # fmt: skip
        rows.append(Row(subject.title(outcome), marks))
    worst = max((parts for _, parts in known), key=lambda parts: parts.waiting.value)
    most = f"Up to {show_percent(worst.waiting.value)}" if worst.waiting.value > 0 else "Nothing"
    title = f"{most} of a step waits for gradients"
    drawing = share_bars(rows, "% of a step", {"computing": "s1", "waiting for gradients": "s4"})
    return Chart("rank-steps", title, "What a step of several ranks is made of", drawing)
