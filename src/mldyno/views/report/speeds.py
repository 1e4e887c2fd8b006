"""Sections about how fast: times by device, speed-ups, and tables of batches and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mldyno.analysis.comparisons import Comparison, Mean, alike
from mldyno.analysis.headlines import means_by_work
from mldyno.analysis.outcomes import OF_THE_MACHINE, Outcome
from mldyno.analysis.tables import Cell as Place
from mldyno.analysis.tables import Key, lay_out, varying
from mldyno.analysis.tables import Table as Layout
from mldyno.units import count, show
from mldyno.views import charts
from mldyno.views.report.parts import Cell, Chart, Section, Table
from mldyno.views.report.rows import ratio_row, shown_time, sides_of, time_row, time_unit
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import named
from mldyno.views.tables import NO_MEMORY

MOST_CHARTS = 16
MOST_BARS = 36
MOST_TABLES = 16
MOST_ROWS = 12  # of a table, before the rest of it is unfolded
WARMEST = 9


def durations(subject: Subject) -> Section:
    """The time of a step on each device, and speed-ups over the first of them."""
    parts = list(bar_charts(subject, MOST_BARS))
    if not parts:
        return Section("durations", "Time of a step", "No case came out with a time; All cases says why.")
    lead = "The thin line at the end of a bar is the 95 % interval."
    if not subject.devices:
        lead += " There is only one device here, so there is no speed-up to show."
    works = len({work_name(one.case) for one in subject.outcomes})
    if works > MOST_CHARTS:
        lead += f" The first {MOST_CHARTS} of {works} workloads and modes; the others are in All cases."
    return Section("durations", "Time of a step, by device", lead, parts)


def bar_charts(subject: Subject, most: int) -> Iterator[Chart]:
    """The speed-ups, and the times of each workload in each mode; with at most so many bars each."""
    yield from _speedups(subject, most)
    works: dict[str, list[Outcome]] = {}
    for outcome in subject.outcomes:
        if outcome.figure("step") is not None:
            works.setdefault(work_name(outcome.case), []).append(outcome)
    for number, (name, several) in enumerate(list(works.items())[:MOST_CHARTS]):
        yield _times(subject, f"time-{number}", name, several, most)


def _times(subject: Subject, identity: str, name: str, outcomes: Sequence[Outcome], most: int) -> Chart:
    """Bars for one workload in one mode."""
    axes = [axis for axis in varying(outcomes) if axis not in ("device", "machine")] or ["batch"]
    steps = [(one, step) for one in outcomes[:most] if (step := one.figure("step")) is not None]
    unit, per = time_unit(max(step.value for _, step in steps))
    rows = [time_row(one, step, label(one.case, axes) or "a step", subject.side(one), per) for one, step in steps]
    sides = sides_of(rows)
    caption = f"The first {most} of {len(outcomes)}; the others are in All cases." if len(outcomes) > most else ""
    alt = f"Bars: the time of a step of {name}, {count(len(rows), 'case')} on {', '.join(sides[:6])}. "
    alt += "The numbers are in the table of all cases."
    return Chart(identity, name, charts.bars(rows, sides, f"{unit} a step, shorter is faster", alt), alt, caption)


def _speedups(subject: Subject, most: int) -> Iterator[Chart]:
    """How many times as fast each device is as the first: each comparison, or means where they are many."""
    found: Sequence[Comparison | Mean] = subject.devices
    caption = "Each pair did the same work. A bar to the right of the dashed line is faster, one to the left is slower."
    if len(found) > most:
        found = means_by_work(subject.devices, "device")
        caption += f" {count(len(subject.devices), 'comparison')}: geometric means by workload and mode."
    if not found:
        return
    rows = []
    axes = [axis for axis in varying([one.other for one in subject.devices]) if axis not in ("device", "machine")]
    for one in found[:most]:
        other = one.other if isinstance(one, Comparison) else one.comparisons[0].other
        name = full_label(other.case, axes if isinstance(one, Comparison) else ())
        rows.append(ratio_row(one, name, subject.side(other)))
    base = subject.devices[0].base.case.device
    alt = f"Bars: speed-up over {base} in {count(len(rows), 'case')}, with intervals; the same is told in words above."
    spec = charts.speedups(rows, sides_of(rows), f"times as fast as {base}", alt)
    yield Chart("speedup", f"Speed-up over {base}", spec, alt, caption)


def grids(subject: Subject) -> Section | None:
    """Tables of batches and lengths, coloured by speed."""
    tables = [table for group in alike(subject.outcomes, "batch", "seq", "device", "machine")
              for table in _grids_of(subject, group)]  # fmt: skip
    if not tables:
        return None
    lead = (
        "Time of one step. Colour is speed: the stronger, the more items a second, against the best of the same work. "
        f"{NO_MEMORY} means out of memory. A mark (!) means that something spoke against the number: "
        "the notes below the table, and All cases, say what."
    )
    if len(tables) > MOST_TABLES:
        lead += f" The first {MOST_TABLES} of {len(tables)} tables; all numbers are in All cases."
    return Section("grids", "Batches and sequence lengths", lead,
                   [_numbered(table, place) for place, table in enumerate(tables[:MOST_TABLES])])  # fmt: skip


def _numbered(table: Table, place: int) -> Table:
    return Table(f"grid-{place}", table.caption, table.columns, table.rows, table.notes, shown=MOST_ROWS)


def _grids_of(subject: Subject, group: Sequence[Outcome]) -> Iterator[Table]:
    """The tables of one work: one for each device where lengths vary, else one with devices as columns."""
    best = max((rate.value for one in group if (rate := one.figure("throughput")) is not None), default=0.0)
    about = _about(subject, group[0])
    if len({one.case.seq for one in group}) > 1:
        for side in dict.fromkeys(subject.side(one) for one in group):
            those = [one for one in group if subject.side(one) == side]
            yield _grid(lay_out(those, ("batch",), ("seq",), "step", warnings_too=False), f"{about}, {side}", best)
    elif len({one.case.batch for one in group}) > 1:
        cols = ("machine", "device") if len(subject.machines) > 1 else ("device",)
        yield _grid(lay_out(group, ("batch",), cols, "step", warnings_too=False), about, best)


def _about(subject: Subject, outcome: Outcome) -> str:
    """What all cells of a table have in common, as far as it is not the same in the whole report."""
    axes = [axis for axis in subject.varied if axis not in ("batch", "seq", "device", "machine")]
    return " ".join(filter(None, [work_name(outcome.case), label(outcome.case, axes)]))


def _grid(table: Layout, caption: str, best: float) -> Table:
    heads = [", ".join(_column(n, p) for n, p in zip(table.cols, key, strict=True)) for key in table.col_keys]
    rows, notes = [], {}
    for row in table.row_keys:
        cells = [_cell(table.cells.get((row, col)), best) for col in table.col_keys]
        for col in table.col_keys:
            place = table.cells.get((row, col))
            notes.update(dict.fromkeys(_doubts(place.outcome) if place else ()))
        rows.append([_row_head(row), *cells])
    return Table(
        "", caption, ["batch" if table.rows == ("batch",) else ", ".join(table.rows), *heads], rows, list(notes)
    )


def _column(name: str, part: object) -> str:
    return "no sequence" if part is None else named(name, part)


def _row_head(row: Key) -> Cell:
    number = float(row[0]) if isinstance(row[0], int) else None
    return Cell(", ".join(f"{part:,}" if isinstance(part, int) else str(part) for part in row), number, head=True)


def _doubts(outcome: Outcome) -> list[str]:
    """What spoke against an outcome, apart from what holds for the whole machine."""
    if outcome.status not in ("ok", "oom"):
        return [f"{outcome.status}: {outcome.reason}"]
    told = [one for one in outcome.warnings if one.code not in OF_THE_MACHINE]
    return [f"{one.code}: {one.message}" for one in told]


def _cell(place: Place | None, best: float) -> Cell:
    if place is None:
        return Cell("")
    if place.figure is None:
        return Cell(NO_MEMORY if place.outcome.status == "oom" else place.outcome.status, doubtful=False)
    rate = place.outcome.figure("throughput")
    heat = None if rate is None or not best else min(WARMEST, int(rate.value / best * (WARMEST + 0.999)))
    under = "" if rate is None else show(rate.value, "1/s", rate.half_width)
    return Cell(shown_time(place.figure), place.figure.value, heat, under, bool(_doubts(place.outcome)))
