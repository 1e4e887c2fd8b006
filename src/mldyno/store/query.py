"""Which records are meant, as one value; and what distinguishes the machines that they come from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from mldyno.axes import Case
from mldyno.keys import current_key
from mldyno.records import IMPORTED, Record
from mldyno.sources import family

CLOCK_SKEW = timedelta(days=1)  # by which the clocks of two machines may differ
COLUMNS = ("machine", "run", "status", "provenance", "imported_from")
FEWEST_DIGITS = 4  # of a key that distinguish two machines of one name
OF_FLEET = "fleet:"  # before the name of the host of a fleet that a record came from
SIGNED = "*"  # after a key whose owner signed what was imported


@dataclass(frozen=True)
class Query:
    """Records whose axes and columns have these values; with `heads`, only the newest run of each case."""

    equal: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    heads: bool = True
    provenances: tuple[str, ...] = ("measured", "imported", "published")
    since: str = ""  # the earliest date, as records write it; any, if empty
    until: str = ""  # the latest date; any, if empty
    simulated: bool = True  # whether simulated cases are included

    def fits(self, record: Record) -> bool:
        """Return whether a record is meant, whatever store or file it comes from."""
        if record.provenance not in self.provenances or record.created < self.since:
            return False
        if (self.until and record.created > self.until) or (self.ids and not record.id.startswith(self.ids)):
            return False
        columns = {"machine": record.shown_machine, "run": record.run.id, "status": record.status,
                   "provenance": record.provenance, "imported_from": record.imported_from}  # fmt: skip
        pinned = [(columns[name], name, value) for name, value in self.equal.items() if name in columns]
        return self.fits_case(record.case) and all(is_meant(name, actual, value) for actual, name, value in pinned)

    def fits_case(self, case: Case) -> bool:
        if case.simulated and not self.simulated:
            return False
        axes = [(name, value) for name, value in self.equal.items() if name not in COLUMNS]
        return all(is_meant(name, getattr(case, name), value) for name, value in axes)


def latest() -> str:
    """Return the last moment that is not in the future, as records write it: a clock may be a day ahead."""
    return (datetime.now(timezone.utc) + CLOCK_SKEW).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_meant(name: str, actual: Any, meant: Any) -> bool:
    """Return whether a value is the one that is meant; the name of a user's workload means all its versions."""
    return actual == meant or (name == "workload" and family(actual) == meant)


class Identity(NamedTuple):
    """The identity of a machine; unsigned imports count as another machine than records that the key's owner signed."""

    name: str
    key: str
    imported: bool


def distinct_names(machines: Collection[Identity]) -> dict[Identity, str]:
    """Return each machine's name, with the first digits of its key where several have that name."""
    rivals: dict[tuple[str, bool], set[str]] = {}
    for name, key, imported in machines:
        rivals.setdefault((name, imported), set()).update([key] if key or imported else [])
    names = {}
    for alike, known in rivals.items():
        own = {key: key if alike[1] or len(known) == 1 else current_key(key) for key in known}
        keys = set(own.values())
        bare, digits = {key.removesuffix(SIGNED) for key in keys}, FEWEST_DIGITS
        while len({key[:digits] for key in bare}) < len(bare):
            digits += 1
        for key in {*known, ""}:
            doubt = "?" if own.get(key, key) + SIGNED in keys else ""
            tag = f" [{own[key].removesuffix(SIGNED)[:digits]}{doubt}]" if key and len(keys) > 1 else ""
            names[Identity(alike[0], key, alike[1])] = alike[0] + tag
    return {machine: names[machine] for machine in machines}


def shown_name(machine: Identity, names: Mapping[Identity, str]) -> str:
    """Return the name of a machine in tables, from the names that distinguish machines."""
    return names.get(machine, machine.name) + (IMPORTED if machine.imported else "")


def identity_of(record: Record) -> Identity:
    """Return the machine of a record."""
    return Identity(record.machine.name, stored_key(record), bool(record.imported_from))


def stored_key(record: Record) -> str:
    """Return the key of a record's machine as a store keeps it."""
    return (record.machine.key or "") + (SIGNED if record.imported_from and record.proof == "signed" else "")


def written_name(record: Record) -> str:
    """Return the name of the machine as the record was written."""
    return str(json.loads(record.text)["machine"]["name"])


def with_names(records: Iterable[Record], names: Mapping[Identity, str]) -> Iterator[Record]:
    """Yield records whose machines have the names that distinguish them; texts and ids stay as they are."""
    for record in records:
        name = names.get(identity_of(record), record.machine.name)
        yield record if name == record.machine.name else replace(record, machine=replace(record.machine, name=name))
