"""What goes into a shared collection: records that can be what they say, judged anew from their raw samples.

Shape, id, time and provenance are judged as on import. `_records` judges each record by itself, `_limits` by what any
device can do, `_across` by the others, of all files together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mldyno.analysis import grouped
from mldyno.analysis.scores import reference
from mldyno.records import Case, Record, seal
from mldyno.store.transfer import private_copy
from mldyno.submission import _across, _records

__all__ = ["fake", "faults", "of_key", "score_first"]

fake = _records.fake


def of_key(record: Record, key: str | None) -> Record:
    """Return the private copy of a record of this machine that it signs, under its present key: it had another once."""
    copy = replace(private_copy(record), proof="signed")
    if copy.machine.key == key:
        return copy
    return seal(replace(copy, machine=replace(copy.machine, key=key), facts={**copy.facts, "private": True}))


def score_first(records: Sequence[Record]) -> list[Record]:
    """The records in their order, those of the cases that make the score before the others."""
    return sorted(records, key=lambda record: _anywhere(record.case) not in reference().rates)


def _anywhere(case: Case) -> Case:
    """The case as the set of the score names it, whatever device it ran on."""
    return replace(case, framework="torch", device="cpu")


def faults(files: Sequence[Sequence[Record]]) -> list[list[str]]:
    """What speaks against taking the records of these files, held against each other: lines for each file."""
    everywhere = [record for records in files for record in records]
    plain = grouped((record for record in everywhere if record.case.precision == "fp32"), _records.place)
    highest = {place: max(map(_records.peak_of, group)) for place, group in plain.items()}
    across = iter(_across.faults(everywhere))
    return [
        [
            f"record {record.id[:10]} ({record.case.id}): {fault}"
            for record in records
            for fault in [*_records.faults(record, highest.get(_records.place(record), 0.0)), *next(across)]
        ]
        for records in files
    ]
