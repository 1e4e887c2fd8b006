"""Tables as text for the terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from mldyno.analysis.tables import Cell, Key, Table
from mldyno.units import digits, show, show_error

FORMATS = ("text", "markdown", "csv", "json")
NO_MEMORY = "-"
TITLES = {
    "step": "time of one step", "throughput": "items per second", "speedup": "speed-up",
    "first_step": "time of the first step", "peak_memory": "peak memory of the process",
    "roof": "operations a second, over those of plain products",
}  # fmt: skip


def title_of(table: Table) -> str:
    """What the table shows, in words."""
    if table.value.startswith("time:"):
        return f"time of {int(table.value[5:].removesuffix('steps')):,} steps"
    if table.value == "speedup":
        return f"speed-up over {table.base}"
    return TITLES.get(table.value, table.value.replace("_", " "))


def cell_text(cell: Cell | None) -> str:
    """A cell as a person reads it: 2.31 ms ±1.2 %, `-` where memory ran out, else the status."""
    if cell is None:
        return ""
    if cell.figure is None:
        return NO_MEMORY if cell.outcome.status == "oom" else cell.outcome.status
    figure = cell.figure
    if figure.unit == "1":
        return f"{digits(figure.value, figure.half_width)}x"
    return show(figure.value, figure.unit, figure.half_width) + show_error(figure.value, figure.half_width)


def _label(name: str, part: Any) -> str:
    if part is None:
        return "unstated"
    return {"batch": f"b{part}", "seq": f"s{part}"}.get(name, str(part))


def _notes(table: Table) -> tuple[dict[tuple[Key, Key], str], list[str]]:
    """Marks for cells, and the notes they point to."""
    numbers: dict[str, int] = {}
    marks = {}
    for row in table.row_keys:
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            if cell is None or not cell.notes:
                continue
            used = [numbers.setdefault(note, len(numbers) + 1) for note in cell.notes]
            marks[row, col] = " [" + ",".join(map(str, used)) + "]"
    return marks, [f"[{number}] {note}" for note, number in numbers.items()]


def _grid(table: Table, with_marks: bool) -> tuple[list[str], list[list[str]], list[str]]:
    marks, notes = _notes(table) if with_marks else ({}, [])
    heads = [", ".join(_label(n, p) for n, p in zip(table.cols, col, strict=True)) for col in table.col_keys]
    header = [*table.rows, *(heads if table.cols else [title_of(table)])]
    body = []
    for row in table.row_keys:
        cells = [cell_text(table.cells.get((row, col))) + marks.get((row, col), "") for col in table.col_keys]
        body.append([*("" if p is None else str(p) for p in row), *cells])
    return header, body, notes


def to_json(table: Table) -> list[dict[str, Any]]:
    """One object a cell, in SI units."""
    found = []
    for (row, col), cell in table.cells.items():
        figure = cell.figure
        found.append({
            **dict(zip(table.rows, row, strict=True)), **dict(zip(table.cols, col, strict=True)),
            "value": figure and figure.value, "low": figure and figure.low, "high": figure and figure.high,
            "unit": figure and figure.unit, "steps": figure and figure.steps, "status": cell.outcome.status,
            "reason": cell.outcome.reason, "provenance": cell.outcome.records[0].provenance,
            "notes": list(cell.notes),
        })  # fmt: skip
    return found


def render(table: Table, form: str, notes_too: bool = True) -> str:
    """The table in one of FORMATS; its notes can be left away where another table has just said them."""
    if form == "json":
        return json.dumps({"value": table.value, "title": title_of(table), "cells": to_json(table)}, indent=1)
    header, body, notes = _grid(table, with_marks=notes_too and form != "csv")
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([header, *body])
        return out.getvalue().rstrip("\n")
    if form == "markdown":
        lines = [header, ["---"] * len(table.rows) + ["---:"] * (len(header) - len(table.rows)), *body]
        text = "\n".join("| " + " | ".join(part.replace("|", "\\|") for part in line) + " |" for line in lines)
        return "\n\n".join(filter(None, [f"**{title_of(table)}**", text, "\n".join(f"- {n}" for n in notes)]))
    text = aligned(header, body, len(table.rows), title_of(table))
    if len(table.col_keys) > 1 and max(map(len, text.splitlines())) > _width():
        return render(_long(table), form, notes_too)
    return "\n".join([text, *notes])


def _long(table: Table) -> Table:
    """The same table with its columns as further rows: long instead of wide."""
    keys = [(*row, *col) for row in table.row_keys for col in table.col_keys if (row, col) in table.cells]
    cells = {((*row, *col), ()): cell for (row, col), cell in table.cells.items()}
    return Table(table.value, (*table.rows, *table.cols), (), keys, [()], cells, table.base)


def _width() -> int:
    """The terminal's width; for a pipe as much as is needed."""
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


def aligned(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "") -> str:
    """Aligned columns for the terminal; the first `left` columns lean left."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=SIMPLE_HEAD, title=Text(title) if title else None, title_justify="left", pad_edge=False)
    for place, name in enumerate(header):
        grid.add_column(Text(name), justify="left" if place < left else "right", no_wrap=True)
    for line in body:
        grid.add_row(*(Text(part) for part in line))
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
