"""The report as one file of HTML: nothing in it is fetched, and nothing from a record can become markup or code.

Text is escaped by the template, and in charts where they are drawn. What unfolds is packed. The page's own policy lets
nothing run, style or load but what is written here: one script and one style sheet, by their hashes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from mldyno.store import transfer
from mldyno.units import count
from mldyno.views.drawing import DATA, IN_PAGE, templates
from mldyno.views.records import FAKE_FRAMEWORK
from mldyno.views.report.parts import Chart, Grid, Paragraphs, Section
from mldyno.views.report.sections import sections_of
from mldyno.views.report.subject import Subject
from mldyno.views.report.summary import summary

FILES = DATA / "report"


def page(subject: Subject, texts: Sequence[str]) -> str:
    """The whole page, with the records, given as their texts, in it."""
    sections = sections_of(subject)
    packed = transfer.pack(texts)
    script, style = ((FILES / name).read_text(encoding="utf-8") for name in ("page.js", "style.css"))
    text: str = page_template("page.html").render(
        subject=subject, summary=summary(subject), sections=sections, notice=FAKE_FRAMEWORK if subject.fake else "",
        script=script, style=style, policy=_policy(script, style), more=_packed(_more(sections)),
        records=packed, tag=transfer.TAG, end=transfer.END, included=_included(packed.records, len(texts)),
    )  # fmt: skip
    return text


def _included(packed: int, there: int) -> str:
    """How many of the records are in the page."""
    if packed >= there:
        return f"All {count(there, 'record')} with every raw sample are in this page."
    return (
        f"{packed:,} of {there:,} records are in this page with every raw sample; the others did not fit. "
        "mldyno export writes all of them."
    )


def page_template(name: str) -> Any:
    """A template of the report, in which charts can be drawn."""
    environment = templates("report")
    environment.globals["drawings"] = drawings
    return environment.get_template(name)


def drawings(chart: Chart) -> list[str]:
    """A chart as SVG, once for each of its widths."""
    wide, *narrow = chart.drawing.widths
    drawn = [(chart.drawing, wide), *((chart.narrow or chart.drawing, width) for width in narrow)]
    return [drawing.draw(width, IN_PAGE).svg(chart.described) for drawing, width in drawn]


def _policy(script: str, style: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in (script, style))
    script_hash, style_hash = hashes
    return (
        f"default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _packed(content: Any) -> str:
    """Data for the page's script: packed, so that it takes little room and can't end the element it stands in."""
    return base64.b64encode(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def _more(sections: Sequence[Section]) -> dict[str, str]:
    """What unfolds when it is asked for, as markup: rows and sentences beyond the first ones."""
    macros = page_template("parts.html").module
    more = {}
    for section in sections:
        for part in section.single_parts:
            if isinstance(part, Grid) and len(part.rows) > part.shown:
                more[part.id] = str(macros.rows(part.rows[part.shown :], part.numbers))
            elif isinstance(part, Paragraphs) and len(part.lines) > part.shown:
                more[part.id] = str(macros.items(part.lines[part.shown :]))
    return more
