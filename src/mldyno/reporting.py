"""Writes reports of records: a page, pictures, a card. What is written is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mldyno.analysis.outcomes import outcomes
from mldyno.records import Record
from mldyno.store import transfer

if TYPE_CHECKING:
    from mldyno.views.report.subject import Subject


def write_page(records: Sequence[Record], path: str) -> str:
    """One page that works offline, with the records in it; gives its path."""
    from mldyno.views.report.page import page

    text = page(_subject(records), [record.text for record in records])
    with transfer.atomic_file(path) as out:
        out.write(text.encode())
    return path


def write_pictures(records: Sequence[Record], folder: str, form: str) -> list[str]:
    """Every chart of the page as a file, PNG or SVG; gives their paths."""
    from mldyno.views.report.pictures import charts_of, drawn
    from mldyno.views.report.sections import sections_of

    place = transfer.folder(folder)
    paths = []
    for name, spec in charts_of(sections_of(_subject(records))):
        paths.append(os.path.join(place, f"{name}.{form}"))
        with transfer.atomic_file(paths[-1]) as out:
            out.write(drawn(spec, form))
    return paths


def write_card(records: Sequence[Record], path: str) -> str:
    """One picture to post, PNG: the machine, what was found, and the command to do it again."""
    from mldyno.views.report.card import card

    drawn = card(_subject(records))
    with transfer.atomic_file(path) as out:
        out.write(drawn)
    return path


def _subject(records: Sequence[Record]) -> Subject:
    from datetime import datetime, timezone

    from mldyno import __version__
    from mldyno.store import reference
    from mldyno.views.report.subject import Subject

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Subject(outcomes(records), outcomes(reference.newest()), now, __version__)
