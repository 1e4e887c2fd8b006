"""Write reports of records: one page with charts, tables, sentences and the records themselves; pictures; a card.

`subject` is what a report is about, `summary` its first screen; `speeds`, `scaling` and `details` hold its sections as
plain data (`parts`); `page` puts them into one file, and `pictures` draws charts and the card as PNG or SVG. What is
written is complete, or not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mldyno.analysis.outcomes import outcomes
from mldyno.files import make_folder
from mldyno.records import Record
from mldyno.temporary import atomic_file

if TYPE_CHECKING:
    from mldyno.views.report.parts import Chart
    from mldyno.views.report.subject import Subject


def write_page(records: Sequence[Record], path: str, context: Sequence[Record] = ()) -> str:
    """Write one page that works offline, with the records in it, compared with those of `context`; return its path."""
    from mldyno.views.report.page import page

    return _write(path, page(_subject(records, context), [record.text for record in records]).encode())


def charts(records: Sequence[Record]) -> list[Chart]:
    """Return the charts of the page, without those of single samples."""
    from mldyno.views.report.pictures import charts_of

    return [chart for chart in charts_of(_subject(records)) if not chart.id.startswith("trace-")]


def write_pictures(records: Sequence[Record], folder: str, form: str) -> list[str]:
    """Write every chart of the page to a file, PNG or SVG; return their paths."""
    from mldyno.views.report.pictures import charts_of, drawn

    place, every = make_folder(folder), charts_of(_subject(records))
    return [_write(os.path.join(place, f"{chart.id}.{form}"), drawn(chart, form)) for chart in every]


def write_card(records: Sequence[Record], path: str) -> str:
    """Write one picture to post, PNG: the machine, its scores, and the league of machines; return its path."""
    from mldyno.views.report.pictures import card_svg, png

    return _write(path, png(card_svg(_subject(records))))


def _write(path: str, content: bytes) -> str:
    with atomic_file(path) as out:
        out.write(content)
    return path


def machines_of(records: Sequence[Record]) -> list[str]:
    """Return the machine that a report of these records is about, then the other machines in it."""
    subject = _subject(records)
    return list(dict.fromkeys([subject.name, *(outcome.machine for outcome in subject.others)]))


def _subject(records: Sequence[Record], context: Sequence[Record] = ()) -> Subject:
    from mldyno import __version__
    from mldyno.store import figures
    from mldyno.views.report.subject import subject_of

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return subject_of(outcomes(records), outcomes([*context, *figures.newest()]), now, __version__)
