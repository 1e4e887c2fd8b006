"""The report as one file of HTML: nothing in it is fetched, and nothing from a record can become markup or code.

Text is escaped by the template, and in charts where they are drawn. What unfolds is packed. The page's own policy lets
nothing run, style or load but what is written here: one script and one style sheet, by their hashes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from mldyno.analysis.fleet import Group
from mldyno.records import Record
from mldyno.store import transfer
from mldyno.temporary import atomic_file
from mldyno.units import count
from mldyno.views.drawing import DATA, IN_PAGE, templates
from mldyno.views.records import FAKE_FRAMEWORK
from mldyno.views.report import details, nodes, scaling, speeds
from mldyno.views.report.parts import Bullets, Chart, Content, Grid, Section
from mldyno.views.report.subject import Subject, subject_of_records
from mldyno.views.report.summary import summary

FILES = DATA / "report"
SECTIONS: tuple[tuple[str, str, str, Callable[[Subject], Content]], ...] = (
    ("speeds", "How fast is it?", "How fast", speeds.how_fast),
    ("devices", "Is the GPU worth it?", "GPU", speeds.devices),
    ("ways", "Which precision, which framework?", "Precision and framework", speeds.ways),
    ("own", "How fast are your own commands and loops?", "Your own", speeds.own_work),
    ("limits", "What holds it back?", "Limits", details.limits),
    ("scaling", "How does speed depend on size?", "Sizes", scaling.scaling),
    ("ranks", "How well does it scale over ranks?", "Ranks", scaling.ranks),
    ("nodes", "Which node is slow?", "Nodes", nodes.which_is_slow),
    ("energy", "What does it take?", "Energy", details.energy),
    ("price", "What does it cost?", "Price", nodes.cost),
    ("sure", "How sure is this?", "How sure", details.sure),
    ("cases", "All cases", "All cases", details.cases),
    ("method", "How it was measured", "Method", details.method),
)
"""Id, title, short title and content of each section, in the order of the page."""


def write_page(
    records: Sequence[Record], path: str, context: Sequence[Record] = (), fleet: Sequence[Group] = ()
) -> str:
    """Write one page that works offline, with the records in it, compared with those of `context`; return its path."""
    content = page(subject_of_records(records, context, fleet), [record.text for record in records]).encode()
    with atomic_file(path) as out:
        out.write(content)
    return path


def sections_of(subject: Subject) -> list[Section]:
    """Return the sections that have something to say, with the parts that have."""
    sections = []
    for identity, title, short, content in SECTIONS:
        lead, parts = content(subject)
        if filled := [part for part in parts if part]:  # paragraphs and rows without content are false
            sections.append(Section(identity, title, short, lead, filled))
    return sections


def page(subject: Subject, texts: Sequence[str]) -> str:
    """Return the whole page, with the records, given as their texts, in it."""
    sections = sections_of(subject)
    packed = transfer.pack(texts)
    script, style = ((FILES / name).read_text(encoding="utf-8") for name in ("page.js", "style.css"))
    return str(page_template("page.html").render(
        subject=subject, summary=summary(subject), sections=sections, notice=FAKE_FRAMEWORK if subject.fake else "",
        script=script, style=style, policy=_content_security_policy(script=script, style=style), more=_more(sections),
        records=packed, tag=transfer.TAG, end=transfer.END, included=_included(packed.records, len(texts)),
    ))  # fmt: skip


def _included(packed: int, given: int) -> str:
    """Say how many of the records are in the page."""
    if packed >= given:
        return f"All {count(given, 'record')} with every raw sample are in this page."
    there = f"{packed:,} of {given:,} records are in this page with every raw sample"
    return f"{there}; the others did not fit. mldyno export writes all of them."


def page_template(name: str) -> Any:
    """Return a template of the report, in which charts can be drawn."""
    environment = templates("report")
    environment.globals["drawings"] = drawings
    return environment.get_template(name)


def drawings(chart: Chart) -> list[str]:
    """Draw a chart as SVG, once for each of its widths."""
    wide, *narrow = chart.drawing.widths
    drawn = [(chart.drawing, wide), *((chart.narrow or chart.drawing, width) for width in narrow)]
    return [drawing.draw(width, IN_PAGE).svg(chart.described) for drawing, width in drawn]


def _content_security_policy(**codes: str) -> str:
    hashes = {name: base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for name, code in codes.items()}
    allowed = "; ".join(f"{name}-src 'sha256-{text}'" for name, text in hashes.items())
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"


def _more(sections: Sequence[Section]) -> str:
    """Return the rows and sentences that unfold on demand, as markup: packed, so that they can't end their element."""
    macros = page_template("parts.html").module
    more = {}
    for part in (part for section in sections for part in section.single_parts):
        if isinstance(part, Grid) and len(part.rows) > part.shown:
            more[part.id] = str(macros.rows(part.rows[part.shown :], part.numbers))
        elif isinstance(part, Bullets) and len(part.lines) > part.shown:
            more[part.id] = str(macros.items(part.lines[part.shown :]))
    return base64.b64encode(gzip.compress(json.dumps(more, separators=(",", ":")).encode(), 6, mtime=0)).decode()
