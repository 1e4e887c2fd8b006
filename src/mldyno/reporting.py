"""Writes reports of records: a page, pictures, a card. What is written is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mldyno.analysis.outcomes import outcomes
from mldyno.files import make_folder
from mldyno.records import Record
from mldyno.temporary import atomic_file

if TYPE_CHECKING:
    from mldyno.views.report.parts import Chart
    from mldyno.views.report.subject import Subject
    from mldyno.views.site.collection import Whose

Progress = Callable[[int, int], None]  # hears how many of how many things are done


def write_page(records: Sequence[Record], path: str, beside: Sequence[Record] = ()) -> str:
    """One page that works offline, with the records in it, and other machines beside them; gives its path."""
    from mldyno.views.report.page import page

    text = page(_subject(records, beside), [record.text for record in records])
    with atomic_file(path) as out:
        out.write(text.encode())
    return path


def charts(records: Sequence[Record]) -> list[Chart]:
    """The charts of the page, without those of single samples."""
    from mldyno.views.report.pictures import charts_of

    return [chart for chart in charts_of(_subject(records)) if not chart.id.startswith("trace-")]


def write_pictures(records: Sequence[Record], folder: str, form: str) -> list[str]:
    """Every chart of the page as a file, PNG or SVG; gives their paths."""
    from mldyno.views.report.pictures import charts_of, drawn

    place = make_folder(folder)
    paths = []
    for chart in charts_of(_subject(records)):
        paths.append(os.path.join(place, f"{chart.id}.{form}"))
        with atomic_file(paths[-1]) as out:
            out.write(drawn(chart, form))
    return paths


def write_card(records: Sequence[Record], path: str) -> str:
    """One picture to post, PNG: the machine, its scores, and the league of machines."""
    from mldyno.views.report.card import card

    drawn = card(_subject(records))
    with atomic_file(path) as out:
        out.write(drawn)
    return path


def write_site(records: Sequence[Record], files: Mapping[Whose, str], folder: str, progress: Progress) -> None:
    """A static site of records, published ones among them, into an empty folder; `files` are those of each machine."""
    from mldyno import __version__
    from mldyno.views.site.collection import collected
    from mldyno.views.site.pages import pages

    done, left = 0, 2 * len(files)  # each machine is worked out, and written

    def count_one() -> None:
        nonlocal done, left
        done, left = done + 1, left - 1
        progress(done, done + left)

    collection = collected(records, files, count_one)
    left += len(collection.rankings)
    for name in ("files", "machines", "work"):
        os.mkdir(os.path.join(folder, name))
    for path, text in pages(collection, __version__, count_one):
        with open(os.path.join(folder, path), "w", encoding="utf-8", newline="\n") as out:
            out.write(text)


def machines_of(records: Sequence[Record]) -> tuple[str, list[str]]:
    """The machine that a report of these records is about, and those that stand beside it."""
    subject = _subject(records)
    return subject.name, list(dict.fromkeys(outcome.machine for outcome in subject.others))


def _subject(records: Sequence[Record], beside: Sequence[Record] = ()) -> Subject:
    from datetime import datetime, timezone

    from mldyno import __version__
    from mldyno.store import figures
    from mldyno.views.report.subject import subject_of

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return subject_of(outcomes(records), outcomes([*beside, *figures.newest()]), now, __version__)
