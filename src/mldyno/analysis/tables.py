"""Outcomes laid out on axes: which cells there are, and what each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.analysis.comparisons import ONE_SIDED, compare
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import VALUES, Key, Outcome, column, in_order, varying
from mldyno.sources import as_typed


@dataclass(frozen=True)
class Cell:
    """One outcome in a table: its figure, or why there is none."""

    outcome: Outcome
    figure: Estimate | None
    notes: tuple[str, ...] = ()


@dataclass
class Table:
    """Rows and columns of cells; axes that vary, but were not asked for, are rows."""

    value: str
    rows: tuple[str, ...]
    cols: tuple[str, ...]
    row_keys: list[Key] = field(default_factory=list)
    col_keys: list[Key] = field(default_factory=list)
    cells: dict[tuple[Key, Key], Cell] = field(default_factory=dict)
    base: str = ""  # the base of speed-ups, in words
    per: str = "s"  # the period of rates, where they are shown

    def __post_init__(self) -> None:
        self.row_keys = self.row_keys or in_order({row for row, _ in self.cells})
        self.col_keys = self.col_keys or in_order({col for _, col in self.cells})


def lay_out(
    outcomes: Sequence[Outcome], rows: Sequence[str], cols: Sequence[str], value: str, warnings_too: bool = True,
    by: str | None = None,
) -> Table:  # fmt: skip
    """Return the table of a value, of speed-ups along `by`; the newest outcome wins where two fall into one cell."""
    shown = "step" if value == "speedup" else value
    of_steps = shown in VALUES or shown.startswith("time:")  # so that a case without it has failed
    figures = [(outcome, outcome.figure(shown)) for outcome in outcomes]
    figures = [(o, figure) for o, figure in figures if figure is not None or (o.status != "ok" and of_steps)]
    extra = [name for name in varying([o for o, _ in figures]) if name not in (*rows, *cols)]
    extra += [by] if by and by not in (*rows, *cols, *extra) else []
    cells = {}
    for outcome, figure in figures:
        row, col = (tuple(column(outcome, name) for name in names) for names in ((*rows, *extra), cols))
        cells[row, col] = Cell(outcome, figure, tuple(_notes(outcome, figure, value, warnings_too)))
    table = Table(value, (*rows, *extra), tuple(cols), cells=cells)
    return _relative(table, by) if value == "speedup" else table


def _notes(outcome: Outcome, figure: Estimate | None, value: str, warnings_too: bool) -> list[str]:
    notes = outcome.notes if warnings_too else []
    if figure is not None and value.startswith("time:") and not outcome.published:
        wanted = int(value.removeprefix("time:").removesuffix("steps"))
        if figure.steps != wanted:
            notes.append(f"projected from {figure.steps:,} steps")
    if figure is None and outcome.reason and not outcome.published:
        notes.append(f"{outcome.status}: {outcome.reason}")
    return notes


def _relative(table: Table, by: str | None) -> Table:
    """Turn times into speed-ups along an axis, or over the first column, or the first row of a single column."""
    outcomes = {place: cell.outcome for place, cell in table.cells.items()}
    table.base, base_of = _base(table, by)
    for place, cell in list(table.cells.items()):
        base = outcomes.get(base_of(place))
        figure = None
        notes = cell.notes
        if cell.figure is not None and base is cell.outcome:
            figure = Estimate(1.0, unit="1", samples=cell.figure.samples, steps=cell.figure.steps)
        elif cell.figure is not None and base is not None and (comparison := compare(base, cell.outcome)) is not None:
            counts = {"samples": cell.figure.samples, "steps": cell.figure.steps}
            figure = Estimate.around(comparison.ratio, comparison.speedup.half_width, unit="1", **counts)
            notes += (f"{ONE_SIDED}: a published figure has none",) if comparison.how == ONE_SIDED else ()
        table.cells[place] = Cell(cell.outcome, figure, notes)
    return table


Place = tuple[Key, Key]


def _base(table: Table, by: str | None) -> tuple[str, Callable[[Place], Place]]:
    """Return what speed-ups are relative to, in words, and the place of each cell's base."""
    if by is None:
        along_columns = len(table.col_keys) > 1
        keys, names = (table.col_keys, table.cols) if along_columns else (table.row_keys, table.rows)
        if not keys:
            return "itself", lambda place: place
        first = keys[0]
        words = ", ".join(_value_in_words(name, part) for name, part in zip(names, first, strict=True)) or "itself"
        return words, lambda place: (place[0], first) if along_columns else (first, place[1])
    side = 0 if by in table.rows else 1
    index = (table.rows, table.cols)[side].index(by)
    values = in_order({(place[side][index],) for place in table.cells})
    best = values[0][0] if values else None

    def moved(place: Place) -> Place:
        key = (*place[side][:index], best, *place[side][index + 1 :])
        return (key, place[1]) if side == 0 else (place[0], key)

    return _value_in_words(by, best), moved


def _value_in_words(name: str, part: Any) -> str:
    return f"{name} {as_typed(part) if name == 'workload' else part}"
