"""Tables as text: for the terminal, as Markdown, CSV, JSON or LaTeX.

Names come from records, and records from anybody: in each form they are escaped, so that they show as text.
Times are in one unit where the whole table can be read in it, else each cell has its own. In CSV, which programs
read, a column has one unit, which its head names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.tables import Cell, Key, Table, column
from mldyno.axes import AXIS
from mldyno.metrics import metric_named
from mldyno.printable import printable
from mldyno.store.figures import inert
from mldyno.units import Scale, common_scale, digits, scale_of, show, show_error
from mldyno.views.as_json import case_without, machine_json
from mldyno.views.sentences import CANT_TELL, factor, named, shown_time

FORMATS = ("terminal", "markdown", "csv", "json", "latex")
NO_MEMORY = "-"
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "µ": r"$\mu$",
}  # fmt: skip
_MARKDOWN = re.compile(r"[\\`*|<>\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def title_of(table: Table) -> str:
    """What the table shows, in words."""
    if table.value == "speedup":
        return f"speed-up over {printable(table.base)}"
    return printable(metric_named(table.value).title)


def cell_text(cell: Cell | None, scale: Scale | None = None, ratio: bool = False) -> str:
    """A cell as a person reads it: 2.31 ms ±1.2 %, `-` where memory ran out, else the status."""
    if cell is None:
        return ""
    if cell.figure is None:
        return NO_MEMORY if cell.outcome.status == "oom" else cell.outcome.status
    figure = cell.figure
    if ratio:
        return f"{digits(figure.value, figure.half_width)}x{show_error(figure.value, figure.half_width)}"
    known = show_error(figure.value, figure.half_width)
    return show(figure.value, figure.unit, figure.half_width, scale) + known


def _worded(part: Any) -> str:
    """A value of an axis as it is typed: yes, no, fp32."""
    return {True: "yes", False: "no"}[part] if isinstance(part, bool) else printable(str(part))


def _label(name: str, part: Any) -> str:
    if part is None:
        return "unstated"
    return AXIS[name].short(part) if name in AXIS and AXIS[name].number else _worded(part)


def _heads(table: Table) -> list[str]:
    if not table.cols:
        return [title_of(table)]
    return [", ".join(_label(n, p) for n, p in zip(table.cols, col, strict=True)) for col in table.col_keys]


def _row_labels(row: Key) -> list[str]:
    return ["" if part is None else _worded(part) for part in row]


def _notes(table: Table) -> tuple[dict[tuple[Key, Key], str], list[str]]:
    """Marks for cells, and the notes they point to."""
    numbers: dict[str, int] = {}
    marks = {}
    for row in table.row_keys:
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            if cell is None or not cell.notes:
                continue
            used = [numbers.setdefault(printable(note), len(numbers) + 1) for note in cell.notes]
            marks[row, col] = " [" + ",".join(map(str, used)) + "]"
    return marks, [f"[{number}] {note}" for note, number in numbers.items()]


def grid(table: Table, with_marks: bool = True) -> tuple[list[str], list[list[str]], list[str]]:
    """Heads, lines of cells, and the notes below; not escaped yet."""
    marks, notes = _notes(table) if with_marks else ({}, [])
    known = [cell.figure for cell in table.cells.values() if cell.figure is not None]
    scale = common_scale([figure.value for figure in known], known[0].unit) if known else None
    ratio = metric_named(table.value).ratio
    body = []
    for row in table.row_keys:
        texts = [cell_text(table.cells.get((row, col)), scale, ratio) for col in table.col_keys]
        marked = [text + marks.get((row, col), "") for text, col in zip(texts, table.col_keys, strict=True)]
        body.append([*_row_labels(row), *marked])
    return [*table.rows, *_heads(table)], body, notes


def to_json(table: Table) -> list[dict[str, Any]]:
    """One object a cell, in SI units."""
    cells = []
    for (row, col), cell in table.cells.items():
        figure = cell.figure
        cells.append({
            **dict(zip(table.rows, row, strict=True)), **dict(zip(table.cols, col, strict=True)),
            **machine_json(cell.outcome),
            "value": figure and figure.value, "low": figure and figure.low, "high": figure and figure.high,
            "unit": figure and figure.unit, "steps": figure and figure.steps, "status": cell.outcome.status,
            "reason": cell.outcome.reason, "provenance": cell.outcome.records[0].provenance,
            "notes": list(cell.notes),
        })  # fmt: skip
    return cells


def render(table: Table, form: str, notes_too: bool = True) -> str:
    """The table in one of FORMATS; its notes can be omitted where another table has just said them."""
    if form == "json":
        better = metric_named(table.value).better
        content = {"value": table.value, "title": title_of(table), "better": better, "cells": to_json(table)}
        return json.dumps(content, indent=1)
    if form == "csv":
        return _csv(table)
    return {"terminal": _terminal, "markdown": _markdown, "latex": _latex}[form](table, notes_too)


# -- CSV -----------------------------------------------------------------------------------------


def _csv(table: Table) -> str:
    """Numbers in one unit a column, each followed by half of its interval where the column has some."""
    columns = [_column(table, col, head) for col, head in zip(table.col_keys, _heads(table), strict=True)]
    lines = [[*table.rows, *(inert(head) for column in columns for head in column[0])]]
    for place, row in enumerate(table.row_keys):
        lines.append([*map(inert, _row_labels(row)), *(text for column in columns for text in column[place + 1])])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().rstrip("\n")


def _column(table: Table, col: Key, head: str) -> list[list[str]]:
    """The head and the cells of one column, two of each where it has intervals."""
    cells = [table.cells.get((row, col)) for row in table.row_keys]
    known = [cell.figure for cell in cells if cell is not None and cell.figure is not None]
    unit = known[0].unit if known else "1"
    factor, name = scale_of(min(figure.value for figure in known), unit) if known else (1.0, "")
    named = "" if unit == "1" else f" [{name}]"
    spread = any(figure.half_width is not None for figure in known)
    lines = [[f"{head}{named}", *([f"{head} ±{named}"] if spread else [])]]
    for cell in cells:
        figure = None if cell is None else cell.figure
        if cell is None or figure is None:
            texts = ["" if cell is None else cell.outcome.status, ""]
        else:
            width = None if figure.half_width is None else figure.half_width / factor
            texts = [_number(figure.value / factor, width), "" if width is None else _number(width, most=2)]
        lines.append(texts[: len(lines[0])])
    return lines


def _number(value: float, error: float | None = None, most: int = 3) -> str:
    """A number as programs read it."""
    return digits(value, error, most).replace(",", "")


# -- Markdown and LaTeX --------------------------------------------------------------------------


def markdown_text(text: str) -> str:
    """Text in which nothing means anything to Markdown, or to the HTML that it becomes."""
    named = {"<": "&lt;", ">": "&gt;"}
    return _MARKDOWN.sub(lambda match: named.get(match[0], f"\\{match[0]}"), text.replace("&", "&amp;"))


def _markdown(table: Table, notes_too: bool) -> str:
    header, body, notes = grid(table, notes_too)
    lines = [[markdown_text(part) for part in line] for line in (header, *body)]
    lines.insert(1, ["---"] * len(table.rows) + ["---:"] * (len(header) - len(table.rows)))
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    below = "\n".join(f"- {markdown_text(note)}" for note in notes)
    return "\n\n".join(filter(None, [f"**{markdown_text(title_of(table))}**", text, below]))


def latex_text(text: str) -> str:
    """Text in which nothing means anything to LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex(table: Table, notes_too: bool) -> str:
    """A `tabular` that needs no package, and its notes in small print."""
    header, body, notes = grid(table, notes_too)
    leaning = "l" * len(table.rows) + "r" * (len(header) - len(table.rows))
    lines = [" & ".join(_guarded(latex_text(part)) for part in line) + r" \\" for line in (header, *body)]
    text = [f"% {title_of(table)}", rf"\begin{{tabular}}{{{leaning}}}", r"\hline", lines[0], r"\hline", *lines[1:],
            r"\hline", r"\end{tabular}"]  # fmt: skip
    return "\n".join([*text, *(rf"\par{{\footnotesize {latex_text(note)}}}" for note in notes)])


def _guarded(text: str) -> str:
    """A bracket at the start of a line would be taken for an option of the line break before it."""
    return f"{{}}{text}" if text.startswith("[") else text


# -- the terminal --------------------------------------------------------------------------------


def _terminal(table: Table, notes_too: bool) -> str:
    header, body, notes = grid(table, notes_too)
    text = aligned(header, body, len(table.rows), title_of(table))
    if _widest(text) > _width():
        if len(table.col_keys) > 1:
            return _terminal(_long(table), notes_too)
        text = "\n".join([title_of(table), *(f"{' '.join(filter(None, line[:-1]))}\n  {line[-1]}" for line in body)])
    return "\n".join([text, *notes])


def _widest(text: str) -> int:
    return max(map(len, text.splitlines()))


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

    heading = Text(printable(title)) if title else None
    grid = RichTable(box=SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False)
    for place, name in enumerate(header):
        grid.add_column(Text(printable(name)), justify="left" if place < left else "right", no_wrap=True)
    for line in body:
        grid.add_row(*(Text(printable(part)) for part in line))
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


# -- crossovers ----------------------------------------------------------------------------------


def crossover_table(crossover: Crossover) -> str:
    """The time of a step on both sides at each size, and which of them is faster by how much."""
    other, base = named(crossover.axis, crossover.other), named(crossover.axis, crossover.base)
    compared = {crossover.size(comparison): comparison for comparison in crossover.comparisons}
    rows: dict[int, list[str]] = {}
    for outcome in crossover.tried:
        time = outcome.status if outcome.step is None else shown_time(outcome.step)
        rows.setdefault(int(column(outcome, crossover.over)), []).append(time)
    body = [[f"{size:,}", *times, _verdict(compared.get(size))] for size, times in rows.items()]
    title = f"{case_without(crossover.tried[0].case, crossover.axis, crossover.over)}: time of one step"
    return aligned([crossover.over, base, other, f"{other} is"], body, 0, title)


def _verdict(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    if comparison.verdict == "inconclusive":
        return CANT_TELL
    return comparison.verdict if comparison.verdict == "equivalent" else f"{factor(comparison)} {comparison.verdict}"
