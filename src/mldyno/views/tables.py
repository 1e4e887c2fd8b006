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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from mldyno.views.window import NO_WINDOW, WIDEST, console, plain, window_width

FORMATS = ("terminal", "markdown", "csv", "json", "latex")
NO_MEMORY = "-"
WIDTH_IN_PIPES = 120  # columns of a table
HEAD_WIDTH = 12  # columns: a longer head is broken into lines
GAP = 2  # spaces between narrow columns
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
    """Return the title of a table; a throughput with its items and period."""
    nouns = _nouns(table)
    noun = nouns.pop() if len(nouns) == 1 else "items"
    return _title(table).replace("items per second", f"{noun} per {PERIODS[table.per][0]}")


def _nouns(table: Table) -> set[str]:
    """Return the items that a table of throughputs counts; empty for another value."""
    cells = table.cells.values() if table.value.partition(":")[0] == "throughput" else ()
    return {_noun(cell.outcome) for cell in cells if cell.figure is not None}


def _noun(outcome: Outcome) -> str:
    item = printable(outcome.item)
    return item if item in UNITS else f"{item}s"


def _scales(table: Table) -> Callable[[Cell], Scale | None]:
    """Return the unit of each cell: a common one if all can be read in it; a throughput's with its items."""
    if nouns := _nouns(table):
        seconds, mixed = PERIODS[table.per][1], len(nouns) > 1
        return lambda cell: (1 / seconds, f"{_noun(cell.outcome) if mixed else ''}/{table.per}")
    figures = [cell.figure for cell in table.cells.values() if cell.figure is not None]
    alike = len({figure.unit for figure in figures}) == 1  # prices may be in several currencies
    common = common_scale([figure.value for figure in figures], figures[0].unit) if alike else None
    return lambda cell: common


def cell_text(cell: Cell | None, metric: Metric, scale: Scale | None = None) -> str:
    """Show a cell: 2.31 ms ±1.2 %, `-` where memory ran out, else the status."""
    if cell is None:
        return ""
    if cell.figure is None:
        return NO_MEMORY if cell.outcome.status == "oom" else cell.outcome.status
    return metric.show(cell.figure, cell.figure.unit, scale)


def _typed(name: str, part: Any) -> str:
    """Return a value of an axis as it is typed: yes, no, fp32."""
    if isinstance(part, bool):
        return "yes" if part else "no"
    return printable(as_typed(part) if name == "workload" else str(part))


def _heads(table: Table) -> list[str]:
    def label(name: str, part: Any) -> str:
        if part is None:
            return "unstated"
        return AXIS[name].short(part) if name in AXIS and AXIS[name].number else _typed(name, part)

    if not table.cols:
        return [title_of(table)]
    return [", ".join(map(label, table.cols, col)) for col in table.col_keys]


def _row_labels(table: Table, row: Key) -> list[str]:
    return ["" if part is None else _typed(name, part) for name, part in zip(table.rows, row, strict=True)]


def grid(
    table: Table, escaped: Callable[[str], str] = str, mark: str = " [{}]", numbers: dict[str, int] | None = None
) -> tuple[list[str], list[list[str]], dict[str, int]]:
    """Return heads and lines of escaped cells with marks, and the notes by number, not escaped yet."""
    numbers = {} if numbers is None else numbers
    scale, metric = _scales(table), metric_named(table.value)
    body = []
    for row in table.row_keys:
        line = [escaped(label) for label in _row_labels(table, row)]
        for col in table.col_keys:
            cell = table.cells.get((row, col))
            text = escaped(cell_text(cell, metric, scale(cell) if cell else None))
            marks = [numbers.setdefault(printable(note), len(numbers) + 1) for note in (cell.notes if cell else ())]
            line.append(text + (mark.format(",".join(map(str, sorted(marks)))) if marks else ""))
        body.append(line)
    return [escaped(head) for head in (*table.rows, *_heads(table))], body, numbers


def note_lines(numbers: Mapping[str, int]) -> list[str]:
    """Return the notes below a table: [1] projected from 20 steps."""
    return [f"[{number}] {note}" for note, number in numbers.items()]


def machine_json(outcome: Outcome) -> dict[str, Any]:
    """Return the machine's name, and the file that the outcome was imported from."""
    record = outcome.records[0]
    return {"machine": record.machine.name, "imported_from": record.imported_from or None}


def _json(table: Table) -> str:
    """Return one object for each cell, in SI units."""
    cells = [{
        **dict(zip((*table.rows, *table.cols), (*row, *col), strict=True)), **machine_json(cell.outcome),
        **{name: getattr(cell.figure, name, None) for name in ("value", "low", "high", "unit", "steps")},
        "status": cell.outcome.status, "reason": cell.outcome.reason,
        "provenance": cell.outcome.records[0].provenance, "notes": cell.notes,
    } for (row, col), cell in table.cells.items()]  # fmt: skip
    better = metric_named(table.value).better
    return json.dumps({"value": table.value, "title": _title(table), "better": better, "cells": cells}, indent=1)


def render(table: Table, form: str) -> str:
    """Return the table in one of FORMATS."""
    return {"terminal": _terminal, "markdown": _markdown, "csv": _csv, "json": _json, "latex": _latex}[form](table)


def _csv(table: Table) -> str:
    """Return numbers in one unit a column, each followed by its half-width where the column has some."""
    table = replace(table, per="s")
    names = [table.rows, *(tuple(map(inert, _row_labels(table, row))) for row in table.row_keys)]
    columns = [_column(table, col, head) for col, head in zip(table.col_keys, _heads(table), strict=True)]
    lines = [[*line, *(text for column in columns for text in column[place])] for place, line in enumerate(names)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().rstrip("\n")


def _column(table: Table, col: Key, head: str) -> list[list[str]]:
    """Return the head and the cells of one column, two of each where it has intervals."""
    cells = [table.cells.get((row, col)) for row in table.row_keys]
    figures = [cell.figure for cell in cells if cell is not None and cell.figure is not None]
    units = {figure.unit for figure in figures}
    unit = units.pop() if len(units) == 1 else "1"
    factor, name = scale_of(min(figure.value for figure in figures), unit) if figures else (1.0, "")
    in_unit = "" if unit == "1" else f" [{name}]"
    lines = [[inert(f"{head}{in_unit}"), inert(f"{head} ±{in_unit}")]]
    for cell in cells:
        if cell is None or cell.figure is None:
            lines.append(["" if cell is None else cell.outcome.status, ""])
            continue
        width = None if cell.figure.half_width is None else cell.figure.half_width / factor
        texts = [digits(cell.figure.value / factor, width), "" if width is None else digits(width, most=2)]
        own = f" {cell.figure.unit}" if units else ""  # prices in several currencies
        lines.append([text.replace(",", "") + (own if text else "") for text in texts])
    return [line[: 2 if any(figure.half_width is not None for figure in figures) else 1] for line in lines]


def markdown_text(text: str) -> str:
    """Escape text for Markdown, and for the HTML that it becomes."""
    named = {"<": "&lt;", ">": "&gt;"}
    return _MARKDOWN.sub(lambda match: named.get(match[0], f"\\{match[0]}"), text.replace("&", "&amp;"))


def _markdown(table: Table) -> str:
    header, body, notes = grid(table, markdown_text, r" \[{}\]")
    leaning = ["---"] * len(table.rows) + ["---:"] * (len(header) - len(table.rows))
    text = "\n".join("| " + " | ".join(line) + " |" for line in (header, leaning, *body))
    below = "\n".join(f"- {markdown_text(note)}" for note in note_lines(notes))
    return "\n\n".join(filter(None, [f"**{markdown_text(title_of(table))}**", text, below]))


def latex_text(text: str) -> str:
    """Escape text for LaTeX; two hyphens stay two."""
    return re.sub("-(?=-)", "-{}", "".join(_LATEX.get(letter, letter) for letter in text))


def _latex(table: Table) -> str:
    """Return a `tabular` with the rules of booktabs; where it has notes, with these below it in a `threeparttable`."""
    header, body, notes = grid(table, latex_text, r"\tnote{{{}}}")
    leaning = "l" * len(table.rows) + "r" * (len(header) - len(table.rows))
    # LaTeX would take a bracket or a star at the start of a line for an option of the line break before it.
    guarded = [[f"{{}}{part}" if part.startswith(("[", "*")) else part for part in line] for line in (header, *body)]
    head, *lines = [" & ".join(line) + r" \\" for line in guarded]
    text = [rf"\begin{{tabular}}{{{leaning}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule",
            r"\end{tabular}"]  # fmt: skip
    if notes:
        items = [rf"\item[{number}] {latex_text(note)}" for note, number in notes.items()]
        text = [r"\begin{threeparttable}", *text, r"\begin{tablenotes}", r"\footnotesize", *items,
                r"\end{tablenotes}", r"\end{threeparttable}"]  # fmt: skip
    packages = "booktabs,threeparttable" if notes else "booktabs"
    return "\n".join([f"% {title_of(table)}", rf"% needs \usepackage{{{packages}}}", *text])


def _terminal(table: Table) -> str:
    """Return the table as columns; where these are too wide, in parts or as a list, whichever is shorter."""
    width = window_width()
    width = WIDTH_IN_PIPES if width == NO_WINDOW else width
    header, body, notes = grid(table)
    text = _in_columns(header, body, len(table.rows), title_of(table), width)
    if text:
        return "\n".join([text, *note_lines(notes)])
    reduced, shared = _without_shared(table)
    title = ": ".join(filter(None, [title_of(table), shared]))
    in_parts = _in_parts(reduced, title, width) if table.cols and not plain() else ""
    return min(filter(None, [in_parts, _as_list(reduced, title, width)]), key=lambda form: form.count("\n"))


def _in_parts(table: Table, title: str, width: int) -> str:
    """Split a wide table into parts with some of its columns each; return nothing if a column does not fit."""
    left = len(table.rows)
    header, body, _ = grid(table)
    cells = [max(len(line[place]) for line in body) for place in range(len(header))]
    widths = [max(cell, *map(len, head.split())) for cell, head in zip(cells, header, strict=True)]
    heads = [max(cell, min(HEAD_WIDTH, len(head))) for cell, head in zip(widths, header, strict=True)][left:]
    texts, numbers = [title], dict[str, int]()
    for part in _packed(heads, width - sum(cell + GAP for cell in widths[:left])):
        cols = [table.col_keys[place] for place in part]
        rows = [row for row in table.row_keys if any((row, col) in table.cells for col in cols)]
        header, body, _ = grid(replace(table, row_keys=rows, col_keys=cols), numbers=numbers)
        broken = [textwrap.wrap(head, heads[place], break_long_words=False, break_on_hyphens=False)
                  for place, head in zip(part, header[left:], strict=True)]  # fmt: skip
        header[left:] = map("\n".join, broken)
        texts.append(_drawn(header, body, left, padding=(0, GAP - 1, 0, 0), show_edge=False))
    return "\n".join(["\n\n".join(texts), *note_lines(numbers)]) if len(texts) > 1 else ""


def _packed(widths: Sequence[int], room: int) -> list[list[int]]:
    """Distribute columns evenly over as few parts as possible; none where a column does not fit."""
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


def _without_shared(table: Table) -> tuple[Table, str]:
    """Return the table without the axes that all its cells share, and the shared values in words."""
    remaining, shared = [], []
    for side, names in enumerate((table.rows, table.cols)):
        values = [{place[side][index] for place in table.cells} for index in range(len(names))]
        remaining.append([index for index, parts in enumerate(values) if len(parts) != 1])
        shared += [(name, *parts) for name, parts in zip(names, values, strict=True) if len(parts) == 1]

    def key(side: int, part: Key) -> Key:
        return tuple(part[index] for index in remaining[side])

    return replace(
        table,
        rows=key(0, table.rows), cols=key(1, table.cols),
        row_keys=[key(0, row) for row in table.row_keys], col_keys=[key(1, col) for col in table.col_keys],
        cells={(key(0, row), key(1, col)): cell for (row, col), cell in table.cells.items()},
    ), _words(shared)  # fmt: skip


def _as_list(table: Table, title: str, width: int) -> str:
    """Return a row for each cell; where that is too wide too, a line or two for each."""
    cells = {((*row, *col), ()): table.cells[row, col] for row in table.row_keys for col in table.col_keys
             if (row, col) in table.cells}  # fmt: skip
    axes, keys = (*table.rows, *table.cols), [key for key, _ in cells]
    header, body, notes = grid(replace(table, rows=axes, cols=(), row_keys=keys, col_keys=[()], cells=cells))
    text = _in_columns(header, body, len(axes), title, width)
    if not text:
        cases = [_words(zip(axes, key, strict=True)) for key in keys]
        lines = [(_part(case, line[-1]), f"{case}\n  {line[-1]}") for case, line in zip(cases, body, strict=True)]
        text = "\n".join([title, *(line if len(line) <= window_width() else broken for line, broken in lines)])
    return "\n".join([text, *note_lines(notes)])


def _words(parts: Iterable[tuple[str, Any]]) -> str:
    """Return values on axes as in a sentence, without unstated ones."""
    return printable(", ".join(named(axis, part) for axis, part in parts if part is not None))


def aligned(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "") -> str:
    """Return columns for the terminal, the first `left` aligned left; where they do not fit, a line for each row."""
    text = _in_columns(header, body, left, title, window_width())
    if text:
        return text
    if plain():
        rows = ["\n".join(_part(*pair) for pair in zip(header, line, strict=True) if pair[1]) for line in body]
        return "\n\n".join([*([printable(title)] if title else []), *rows])
    rows = []
    for line in body:
        pairs = zip(header[left:], line[left:], strict=True)
        figures = "; ".join(f"{name} {text}".strip() for name, text in pairs if text)
        rows.append(printable(": ".join(filter(None, (", ".join(filter(None, line[:left])), figures)))))
    return "\n".join([*([printable(title)] if title else []), *rows])


def _part(name: str, text: str) -> str:
    return printable(f"{name}: {text}" if name else text)


def _in_columns(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str, width: int) -> str:
    """Return the columns; nothing where they are wider than that, or text is to be plain."""
    if plain():
        return ""
    text = _drawn(header, body, left, title)
    return text if max(map(len, text.splitlines())) <= width else ""


def _drawn(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "", **looks: Any) -> str:
    """Draw columns, the first `left` aligned left; a head may have two or more lines."""
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
    console(out, width=WIDEST, color_system=None, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
