"""The report as one file of HTML: nothing in it is fetched, and nothing from a record can become markup or code.

Text is escaped by the template. Data for scripts is JSON without `<`, or packed. The page's own policy lets run
only the two scripts that are written here, by their hashes, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mldyno.printable import printable
from mldyno.store import embedded
from mldyno.units import count
from mldyno.views.charts import IN_PAGE
from mldyno.views.report.parts import Chart, Grid, Paragraphs, Section, Traces
from mldyno.views.report.sections import sections_of
from mldyno.views.report.subject import Subject

FILES = Path(__file__).parent.parent.parent / "data" / "report"
DRAWING = "window.embed = vegaEmbed;"


def page(subject: Subject, texts: Sequence[str]) -> str:
    """The whole page, with the records, given as their texts, in it."""
    sections = sections_of(subject)
    packed = embedded.pack(texts)
    scripts = [drawing_code(), (FILES / "page.js").read_text(encoding="utf-8")]
    text: str = templates().get_template("page.html").render(
        subject=subject, sections=sections, title=_title(subject),
        style=(FILES / "style.css").read_text(encoding="utf-8"),
        policy=_policy(scripts), scripts=scripts, charts=_packed(_drawings(sections)),
        traces=_packed([part.traces for part in _parts(sections, Traces)]), more=_packed(_more(sections)),
        records=packed, tag=embedded.TAG, end=embedded.END,
        included=_included(packed.records, len(texts)),
    )  # fmt: skip
    return text


def _title(subject: Subject) -> str:
    names = [machine.name for machine in subject.machines]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other machines"


def _included(packed: int, there: int) -> str:
    """How many of the records are in the page."""
    if packed >= there:
        return f"All {count(there, 'record')} with every raw sample are in this page."
    return (
        f"{packed:,} of {there:,} records are in this page with every raw sample; the others did not fit. "
        "mldyno export writes all of them."
    )


@cache
def drawing_code() -> str:
    """Vega, Vega-Lite and Vega-Embed for the page, as they come with vl-convert."""
    import vl_convert

    code: str = vl_convert.javascript_bundle(DRAWING)
    if "</script" in code or "<!--" in code:
        raise AssertionError("unreachable: the code of the charts would end its element")
    return f"(() => {{{code}\n}})();"


def templates() -> Any:
    """The templates, which make printable and escape whatever is put into them."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FILES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_shown,
    )  # fmt: skip


def _shown(value: Any) -> Any:
    """Text as it can stand in HTML and XML; markup is ours."""
    return printable(value) if type(value) is str else value


def _policy(scripts: Sequence[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in scripts)
    # Vega turns expressions of charts into functions, hence unsafe-eval; they are ours, never a record's.
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _packed(content: Any) -> str:
    """Data for the page's script: packed, so that it takes little room and can't end the element it stands in."""
    return base64.b64encode(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def _parts(sections: Sequence[Section], kind: type) -> list[Any]:
    return [part for section in sections for part in section.parts if isinstance(part, kind)]


def _drawings(sections: Sequence[Section]) -> dict[str, Any]:
    """The charts by name, those of samples by their unit, and the settings that all of them share."""
    specs = {part.id: part.spec for part in _parts(sections, Chart)}
    for part in _parts(sections, Traces):
        specs |= part.specs
    return {"config": IN_PAGE.config(), "specs": specs}


def _more(sections: Sequence[Section]) -> dict[str, str]:
    """What unfolds when it is asked for, as markup: rows and sentences beyond the first ones."""
    macros = templates().get_template("parts.html").module
    more = {part.id: str(macros.rows(part.rows[part.shown :], part.numbers))
            for part in _parts(sections, Grid) if len(part.rows) > part.shown}  # fmt: skip
    more |= {part.id: str(macros.items(part.lines[part.shown :]))
             for part in _parts(sections, Paragraphs) if len(part.lines) > part.shown}  # fmt: skip
    return more
