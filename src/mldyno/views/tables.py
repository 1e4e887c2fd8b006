"""Tables as text: for the terminal, as Markdown, CSV, JSON or LaTeX.

Names come from records, and records from anybody: in each form they are escaped, so that they show as text.
Times are in one unit where the whole table can be read in it, else each cell has its own. In CSV, which programs
read, a column has one unit, which its head names.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from mldyno.analysis.outcomes import Key, Outcome
from mldyno.analysis.tables import Cell, Table
from mldyno.axes import AXIS, COMMAND
from mldyno.metrics import Metric, metric_named
from mldyno.printable import printable
from mldyno.sources import as_typed
from mldyno.store.figures import inert
from mldyno.units import PERIODS, UNITS, Scale, common_scale, digits, scale_of
from mldyno.views.claims import named
from mldyno.views.window import NO_WINDOW, console, plain, window_width

FORMATS = ("terminal", "markdown", "csv", "json", "latex")
NO_MEMORY = "-"
WIDTH_IN_PIPES = 120  # of a table
HEAD_WIDTH = 12  # columns that a head has at least before it is broken
GAP = 2  # spaces between columns that must be narrow
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "µ": r"$\mu$",
}  # fmt: skip
_MARKDOWN = re.compile(r"[\\`*|<>\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def _title(table: Table) -> str:
    if table.value == "speedup":
        return f"speed-up over {printable(table.base)}"
    if table.value == "score":
        from mldyno.analysis.scores import reference

        return f"score, quick {reference().version}: 100 is {reference().machine}"
    title = printable(metric_named(table.value).title)
    runs = bool(table.cells) and all(cell.outcome.case.framework == COMMAND for cell in table.cells.values())
    return title.replace("one step", "one run") if runs else title


def title_of(table: Table) -> str:
    """Return what the table shows; a throughput with its items, and the time that it is counted over."""
    nouns = _nouns(table)
    noun = nouns.pop() if len(nouns) == 1 else "items"
    return _title(table).replace("items per second", f"{noun} per {PERIODS[table.per][0]}")


def _nouns(table: Table) -> set[str]:
    """Return what the cells of a throughput count; nothing for another value."""
    if table.value.partition(":")[0] != "throughput":
        return set()
    return {_noun(cell.outcome) for cell in table.cells.values() if cell.figure is not None}


def _noun(outcome: Outcome) -> str:
    item = printable(outcome.item)
    return item if item in UNITS else f"{item}s"


def _scales(table: Table) -> Callable[[Cell], Scale | None]:
    """Return the unit of each cell: a common one if all can be read in it; a throughput's with its items."""
    if nouns := _nouns(table):
        seconds, mixed = PERIODS[table.per][1], len(nouns) > 1
        return lambda cell: (1 / seconds, f"{_noun(cell.outcome) if mixed else ''}/{table.per}")
    known = [cell.figure for cell in table.cells.values() if cell.figure is not None]
    common = common_scale([figure.value for figure in known], known[0].unit) if known else None
    return lambda cell: common


def cell_text(cell: Cell | None, metric: Metric, scale: Scale | None = None) -> str:
    """Show a cell: 2.31 ms ±1.2 %, `-` where memory ran out, else the status."""
    if cell is None:
        return ""
    if cell.figure is None:
        return NO_MEMORY if cell.outcome.status == "oom" else cell.outcome.status
    return metric.show(cell.figure, cell.figure.unit, scale)


def _worded(name: str, part: Any) -> str:
    """Return a value of an axis as it is typed: yes, no, fp32."""
    if isinstance(part, bool):
        return {True: "yes", False: "no"}[part]
    return printable(as_typed(part) if name == "workload" else str(part))


def _label(name: str, part: Any) -> str:
    if part is None:
        return "unstated"
    return AXIS[name].short(part) if name in AXIS and AXIS[name].number else _worded(name, part)


def _heads(table: Table) -> list[str]:
    if not table.cols:
        return [title_of(table)]
    return [", ".join(_label(n, p) for n, p in zip(table.cols, col, strict=True)) for col in table.col_keys]


def _row_labels(table: Table, row: Key) -> list[str]:
    return ["" if part is None else _worded(name, part) for name, part in zip(table.rows, row, strict=True)]


def _marks(table: Table, numbers: dict[str, int]) -> dict[tuple[Key, Key], str]:
    """Return the numbers of each cell's notes; a note that has none yet gets the next one, in the order of reading."""
    marks = {}
    for row in table.row_keys:
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            if cell is None or not cell.notes:
                continue
            used = [numbers.setdefault(printable(note), len(numbers) + 1) for note in cell.notes]
            marks[row, col] = ",".join(map(str, sorted(used)))
    return marks


def grid(
    table: Table,
    with_marks: bool = True,
    escaped: Callable[[str], str] = str,
    mark: str = " [{}]",
    numbers: dict[str, int] | None = None,
) -> tuple[list[str], list[list[str]], list[str]]:
    """Return heads, lines of cells, escaped and with marks in the form asked for, and the notes, not escaped yet.

    `numbers` are those of notes that tables before this one have.
    """
    numbers = {} if numbers is None else numbers
    marks = _marks(table, numbers) if with_marks else {}
    notes = [f"[{number}] {note}" for note, number in numbers.items()]
    scale, metric = _scales(table), metric_named(table.value)
    body = []
    for row in table.row_keys:
        line = [escaped(label) for label in _row_labels(table, row)]
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            text = escaped(cell_text(cell, metric, scale(cell) if cell else None))
            line.append(text + (mark.format(marks[row, col]) if (row, col) in marks else ""))
        body.append(line)
    return [escaped(head) for head in (*table.rows, *_heads(table))], body, notes


def machine_json(outcome: Outcome) -> dict[str, Any]:
    """Return the machine's name, and the file that the outcome was imported from."""
    record = outcome.records[0]
    return {"machine": record.machine.name, "imported_from": record.imported_from or None}


def to_json(table: Table) -> list[dict[str, Any]]:
    """Return one object for each cell, in SI units."""
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
    """Return the table in one of FORMATS; its notes can be omitted where another table has just said them."""
    if form == "json":
        better = metric_named(table.value).better
        content = {"value": table.value, "title": _title(table), "better": better, "cells": to_json(table)}
        return json.dumps(content, indent=1)
    if form == "csv":
        return _csv(replace(table, per="s"))
    return {"terminal": _terminal, "markdown": _markdown, "latex": _latex}[form](table, notes_too)


# -- CSV -----------------------------------------------------------------------------------------


def _csv(table: Table) -> str:
    """Return numbers in one unit a column, each followed by its half-width where the column has some."""
    columns = [_column(table, col, head) for col, head in zip(table.col_keys, _heads(table), strict=True)]
    lines = [[*table.rows, *(inert(head) for column in columns for head in column[0])]]
    for place, row in enumerate(table.row_keys):
        lines.append(
            [*map(inert, _row_labels(table, row)), *(text for column in columns for text in column[place + 1])]
        )
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().rstrip("\n")


def _column(table: Table, col: Key, head: str) -> list[list[str]]:
    """Return the head and the cells of one column, two of each where it has intervals."""
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
    """Return a number as programs read it."""
    return digits(value, error, most).replace(",", "")


# -- Markdown and LaTeX --------------------------------------------------------------------------


def markdown_text(text: str) -> str:
    """Escape text for Markdown, and for the HTML that it becomes."""
    named = {"<": "&lt;", ">": "&gt;"}
    return _MARKDOWN.sub(lambda match: named.get(match[0], f"\\{match[0]}"), text.replace("&", "&amp;"))


def _markdown(table: Table, notes_too: bool) -> str:
    header, body, notes = grid(table, notes_too, markdown_text, r" \[{}\]")
    leaning = ["---"] * len(table.rows) + ["---:"] * (len(header) - len(table.rows))
    text = "\n".join("| " + " | ".join(line) + " |" for line in (header, leaning, *body))
    below = "\n".join(f"- {markdown_text(note)}" for note in notes)
    return "\n\n".join(filter(None, [f"**{markdown_text(title_of(table))}**", text, below]))


def latex_text(text: str) -> str:
    """Escape text for LaTeX; two hyphens stay two."""
    return re.sub("-(?=-)", "-{}", "".join(_LATEX.get(letter, letter) for letter in text))


def _latex(table: Table, notes_too: bool) -> str:
    """Return a `tabular` with the rules of booktabs; where it has notes, with these below it in a `threeparttable`."""
    header, body, notes = grid(table, notes_too, latex_text, r"\tnote{{{}}}")
    leaning = "l" * len(table.rows) + "r" * (len(header) - len(table.rows))
    head, *lines = [" & ".join(map(_guarded, line)) + r" \\" for line in (header, *body)]
    text = [rf"\begin{{tabular}}{{{leaning}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule",
            r"\end{tabular}"]  # fmt: skip
    if notes:
        items = [rf"\item{number}] {latex_text(note)}" for number, _, note in (note.partition("] ") for note in notes)]
        text = [r"\begin{threeparttable}", *text, r"\begin{tablenotes}", r"\footnotesize", *items,
                r"\end{tablenotes}", r"\end{threeparttable}"]  # fmt: skip
    packages = "booktabs,threeparttable" if notes else "booktabs"
    return "\n".join([f"% {title_of(table)}", rf"% needs \usepackage{{{packages}}}", *text])


def _guarded(text: str) -> str:
    """Return a bracket or a star at the start of a line would be taken for a part of the line break before it."""
    return f"{{}}{text}" if text.startswith(("[", "*")) else text


# -- the terminal --------------------------------------------------------------------------------


def _terminal(table: Table, notes_too: bool) -> str:
    """Return the table as columns; where these are too wide, in parts or as a list, whichever is shorter."""
    header, body, notes = grid(table, notes_too)
    text = _in_columns(header, body, len(table.rows), title_of(table), _table_width())
    if text:
        return "\n".join([text, *notes])
    forms = [_in_parts(table, notes_too), _as_list(table, notes_too)]
    return min(filter(None, forms), key=lambda form: form.count("\n"))


def _table_width() -> int:
    """Return the columns that a table may have; in a pipe as many as a reader can follow."""
    width = window_width()
    return WIDTH_IN_PIPES if width == NO_WINDOW else width


def _in_parts(table: Table, notes_too: bool) -> str:
    """Repeat the rows, each time with some of the columns below their broken heads; nothing if that can't be.

    The title says what all cells share.
    """
    if plain() or not table.cols:
        return ""
    table, shared = _without_shared(table)
    left = len(table.rows)
    header, body, _ = grid(table, notes_too)
    cells = [max(len(line[place]) for line in body) for place in range(len(header))]
    widths = [max(cell, *map(len, head.split())) for cell, head in zip(cells, header, strict=True)]
    heads = [max(width, min(HEAD_WIDTH, len(head))) for width, head in zip(widths, header, strict=True)][left:]
    parts = _packed(heads, _table_width() - sum(width + GAP for width in widths[:left]))
    if not parts:
        return ""
    numbers: dict[str, int] = {}
    texts, notes = [": ".join(filter(None, [title_of(table), shared]))], list[str]()
    for part in parts:
        header, body, notes = grid(
            _part_of(table, [table.col_keys[place] for place in part]), notes_too, numbers=numbers
        )
        header[left:] = [_broken(head, heads[place]) for place, head in zip(part, header[left:], strict=True)]
        texts.append(_drawn(header, body, left, padding=(0, GAP - 1, 0, 0), show_edge=False))
    return "\n".join(["\n\n".join(texts), *notes])


def _packed(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the places of columns in as few parts as they fit into, evenly; none where one of them does not fit."""
    if max(widths) > room:
        return []

    def packed(most: int) -> list[list[int]]:
        parts: list[list[int]] = [[]]
        for place in range(len(widths)):
            taken = sum(widths[each] + GAP for each in parts[-1])
            if len(parts[-1]) == most or taken + widths[place] > room:
                parts.append([])
            parts[-1].append(place)
        return parts

    fewest = packed(len(widths))
    even = packed(math.ceil(len(widths) / len(fewest)))
    return even if len(even) == len(fewest) else fewest


def _broken(head: str, width: int) -> str:
    return "\n".join(textwrap.wrap(head, width, break_long_words=False, break_on_hyphens=False))


def _part_of(table: Table, cols: list[Key]) -> Table:
    """Return the table with these columns only, and the rows that have something in them."""
    rows = [row for row in table.row_keys if any((row, col) in table.cells for col in cols)]
    return replace(table, row_keys=rows, col_keys=cols)


def _without_shared(table: Table) -> tuple[Table, str]:
    """Return the table without the axes that all its cells share, and what these are, in words."""
    places = list(table.cells)
    remaining, shared = [], []
    for side, names in enumerate((table.rows, table.cols)):
        values = {name: {place[side][index] for place in places} for index, name in enumerate(names)}
        remaining.append([index for index, name in enumerate(names) if len(values[name]) != 1])
        shared += [(name, *known) for name, known in values.items() if len(known) == 1]

    def key(side: int, part: Key) -> Key:
        return tuple(part[index] for index in remaining[side])

    return replace(
        table,
        rows=key(0, table.rows), cols=key(1, table.cols),
        row_keys=[key(0, row) for row in table.row_keys], col_keys=[key(1, col) for col in table.col_keys],
        cells={(key(0, row), key(1, col)): cell for (row, col), cell in table.cells.items()},
    ), _words(shared)  # fmt: skip


def _as_list(table: Table, notes_too: bool) -> str:
    """Return a row for each cell; where that is too wide too, a line for each."""
    long, shared = _without_shared(_long(table))
    header, body, notes = grid(long, notes_too)
    title = ": ".join(filter(None, [title_of(table), shared]))
    text = _in_columns(header, body, len(long.rows), title, _table_width())
    facts = [_fact(long.rows, row, line[-1]) for row, line in zip(long.row_keys, body, strict=True)]
    return "\n".join([text or "\n".join([title, *facts]), *notes])


def _long(table: Table) -> Table:
    """Return the same table with its columns as further rows."""
    places = [(row, col) for row in table.row_keys for col in table.col_keys if (row, col) in table.cells]
    cells = {((*row, *col), ()): table.cells[row, col] for row, col in places}
    keys = [key for key, _ in cells]
    return replace(table, rows=(*table.rows, *table.cols), cols=(), row_keys=keys, col_keys=[()], cells=cells)


def _words(parts: Iterable[tuple[str, Any]]) -> str:
    """Return values on axes as a sentence has them, without what is unstated."""
    return printable(", ".join(named(axis, part) for axis, part in parts if part is not None))


def _fact(axes: Sequence[str], row: Key, value: str) -> str:
    """Return a cell in a line; in two where the window is too narrow."""
    case = _words(zip(axes, row, strict=True))
    line = _part(case, value)
    return line if len(line) <= window_width() else f"{case}\n  {value}"


def aligned(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "") -> str:
    """Return columns for the terminal, the first `left` aligned left; where they do not fit, parts with their names.

    In plain text each part has a line.
    """
    text = _in_columns(header, body, left, title, window_width())
    if text:
        return text
    between, below = ("\n", "\n\n") if plain() else ("; ", "\n")
    rows = [between.join(_part(*pair) for pair in zip(header, line, strict=True) if pair[1]) for line in body]
    return below.join([*([printable(title)] if title else []), *rows])


def _part(name: str, text: str) -> str:
    return printable(f"{name}: {text}" if name else text)


def _in_columns(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str, width: int) -> str:
    """Return the columns; nothing where they are wider than that, or text is to be plain."""
    if plain():
        return ""
    text = _drawn(header, body, left, title)
    return text if max(map(len, text.splitlines())) <= width else ""


def _drawn(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "", **looks: Any) -> str:
    """Return columns of which the first `left` lean left; a head may have several lines."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    heading = Text(printable(title)) if title else None
    grid = RichTable(box=SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False, **looks)
    for place, name in enumerate(header):
        head = Text("\n".join(map(printable, name.split("\n"))))
        grid.add_column(head, justify="left" if place < left else "right", no_wrap=True, vertical="bottom")
    for line in body:
        grid.add_row(*(Text(printable(part)) for part in line))
    out = io.StringIO()
    console(out, width=10_000, color_system=None, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
