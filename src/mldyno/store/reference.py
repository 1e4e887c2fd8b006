"""The published figures that ship with the product, as records of provenance `published`."""

from __future__ import annotations

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
    """Of each case on each machine only the latest publication, as the store's heads are."""
    latest = {(record.machine.name, record.case.id): "" for record in published()}
    for record in published():
        key = (record.machine.name, record.case.id)
        latest[key] = max(latest[key], record.created)
    return [r for r in published() if r.created == latest[r.machine.name, r.case.id]]
