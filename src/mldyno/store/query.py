"""Which records are meant: a filter such as `mlp/train/cpu` or `device=mps/batch=16`, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mldyno.errors import UsageError, unknown
from mldyno.records import AXES, AXIS, DEVICE_KINDS, MODES, PLACEMENTS, PRECISIONS, Case, Record, axis_named

COLUMNS = ("machine", "run", "status", "provenance")


@dataclass(frozen=True)
class Query:
    """Records whose axes and columns have these values; `heads` keeps the newest run of each case."""

    equal: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    heads: bool = True
    provenances: tuple[str, ...] = ("measured", "imported", "published")

    def fits(self, record: Record) -> bool:
        """Whether a record is meant, whatever store or file it comes from."""
        if record.provenance not in self.provenances:
            return False
        if self.ids and not any(record.id.startswith(prefix) for prefix in self.ids):
            return False
        return all(column_of(record, name) == value for name, value in self.equal.items())

    def fits_case(self, case: Case) -> bool:
        """Whether a case has the axes that are meant, whatever record it is of."""
        return all(getattr(case, name) == value for name, value in self.equal.items() if name not in COLUMNS)


def column_of(record: Record, name: str) -> Any:
    """The value of an axis or of machine, run, status, provenance."""
    if name == "machine":
        return record.machine.name
    if name == "run":
        return record.run.id
    if name in ("status", "provenance"):
        return getattr(record, name)
    return getattr(record.case, name)


def parse_filter(text: str, workloads: list[str], frameworks: list[str]) -> dict[str, Any]:
    """The axes and values that a filter pins: `axis=value` terms and bare values, between slashes."""
    pinned: dict[str, Any] = {}
    for term in filter(None, text.split("/")):
        name, equals, value = term.partition("=")
        if equals:
            name = axis_named(name.strip(), COLUMNS)
            pinned[name] = AXIS[name].parse(value) if name in AXIS else value.strip()
        else:
            name, read = _bare(term.strip(), workloads, frameworks)
            pinned[name] = read
    if not pinned:
        raise UsageError(f"'{text}' names nothing; write a filter such as mlp/train or device=cpu.")
    return pinned


def _bare(term: str, workloads: list[str], frameworks: list[str]) -> tuple[str, Any]:
    word = AXIS["mode"].words.get(term, term)
    base = word.partition("@")[0]
    if base in workloads:
        return "workload", base
    for name, known in (
        ("mode", MODES),
        ("precision", PRECISIONS),
        ("placement", PLACEMENTS),
        ("framework", frameworks),
    ):
        if word in known and not (name == "framework" and word in workloads):
            return name, word
    if word.partition(":")[0] in DEVICE_KINDS:
        return "device", AXIS["device"].parse(word)
    for letter, name in (("b", "batch"), ("s", "seq"), ("r", "ranks"), ("t", "threads")):
        if word[:1] == letter and word[1:].isdecimal():
            return name, AXIS[name].parse(word[1:])
    if word == "compile":
        return "compile", True
    raise unknown("workload, case or axis value", term, [*workloads, *MODES, *PRECISIONS, *PLACEMENTS, *frameworks,
                  *DEVICE_KINDS, *(f"{axis.name}=…" for axis in AXES)])  # fmt: skip
