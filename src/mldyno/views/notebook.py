"""Results as HTML for a notebook: plain tables and lists in the notebook's own style.

Rule: whatever comes from a record is escaped; a machine called <script> shows as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Table
from mldyno.views.claims import arms, footers, times
from mldyno.views.outcomes import trust_lines
from mldyno.views.report.parts import Chart
from mldyno.views.report.pictures import picture_svg
from mldyno.views.tables import grid, note_lines, title_of
from mldyno.views.titles import case_name


def lines_html(lines: Sequence[str]) -> str:
    """Return lines as a list; nothing where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def grid_html(header: Sequence[str], body: Sequence[Sequence[str]], left: int, title: str = "") -> str:
    """Return a table whose first `left` columns lean left."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ["left" if place < left else "right" for place in range(len(cells))]
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
        )

    rows = "".join(f"<tr>{line('td', cells)}</tr>" for cells in body)
    named = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{named}<thead><tr>{line('th', header)}</tr></thead><tbody>{rows}</tbody></table>"


def table_html(table: Table) -> str:
    """Return a table with its notes."""
    header, body, notes = grid(table)
    return f"<div>{grid_html(header, body, len(table.rows), title_of(table))}{lines_html(note_lines(notes))}</div>"


def comparisons_html(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons, a row each: factor, verdict, and how they were made."""
    body = []
    for each in comparisons:
        other, base = arms(each)
        way = "faster" if each.ratio >= 1 else "slower"
        body.append([case_name(each.other.case), base, other, f"{times(each)} {way}", each.verdict, each.how])
    header = ["case", "base", "other", "the other is", "verdict", "how"]
    return f"<div>{grid_html(header, body, len(header))}{lines_html(footers(comparisons))}</div>"


def results_html(table: Table, outcomes: Sequence[Outcome], charts: Sequence[Chart] = ()) -> str:
    """Return the results of a run: their table, how far they can be trusted, and their charts."""
    drawings = "".join(f"<div>{picture_svg(chart)}</div>" for chart in charts)
    return f"<div>{table_html(table)}{lines_html(trust_lines(outcomes))}{drawings}</div>"
