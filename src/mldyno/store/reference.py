"""The published figures that ship with the product, as records of provenance `published`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from mldyno.records import Record
from mldyno.store import figures

FILE = Path(__file__).parent.parent / "data" / "published.csv"


@lru_cache(maxsize=1)
def published() -> tuple[Record, ...]:
    """All published figures, superseded ones too."""
    with FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(figures.read(lines, "published"))


def newest() -> list[Record]:
    """Of each case on each machine only the latest publication, as the store's heads are, unless withdrawn."""
    standing = [record for record in published() if not any(code == "superseded" for code, _ in figures.marks(record))]
    latest: dict[tuple[str, str], str] = {}
    for record in standing:
        key = (record.machine.name, record.case.id)
        latest[key] = max(latest.get(key, ""), record.created)
    return [r for r in standing if r.created == latest[r.machine.name, r.case.id]]


@dataclass
class Publication:
    """What was published of one machine."""

    sources: list[str] = field(default_factory=list)
    figures: int = 0
    marked: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The cases of figures that are superseded or suspect, by that word and the reason."""


def machines() -> dict[str, Publication]:
    """The published machines, in the order of publication."""
    publications: dict[str, Publication] = {}
    for record in published():
        publication = publications.setdefault(record.machine.name, Publication())
        source = record.run.suite or record.run.id
        publication.sources += [] if source in publication.sources else [source]
        publication.figures += 1
        for mark in figures.marks(record):
            publication.marked.setdefault(mark, []).append(record.case.id)
    return publications
