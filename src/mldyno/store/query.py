"""Which records are meant: a filter such as `mlp/train/cpu` or `device=mps/batch=16`, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.axes import AXES, AXIS, DEVICE_KINDS, Case, axis_named
from mldyno.errors import UsageError, unknown
from mldyno.records import Record
from mldyno.sources import family

COLUMNS = ("machine", "run", "status", "provenance", "imported_from")


@dataclass(frozen=True)
class Query:
    """Records whose axes and columns have these values; `heads` keeps the newest run of each case."""

    equal: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    heads: bool = True
    provenances: tuple[str, ...] = ("measured", "imported", "published")
    since: str = ""
    """From when on they were made, as records write it; always, if empty."""
    rehearsed: bool = True
    """Whether cases of the fake framework are meant too."""

    def fits(self, record: Record) -> bool:
        """Whether a record is meant, whatever store or file it comes from."""
        if record.provenance not in self.provenances or record.created < self.since:
            return False
        if record.case.rehearsed and not self.rehearsed:
            return False
        if self.ids and not any(record.id.startswith(start) for start in self.ids):
            return False
        return all(_is(name, column_of(record, name), value) for name, value in self.equal.items())

    def fits_case(self, case: Case) -> bool:
        """Whether a case has the axes that are meant, whatever record it is of."""
        if case.rehearsed and not self.rehearsed:
            return False
        return all(_is(name, getattr(case, name), value) for name, value in self.equal.items() if name not in COLUMNS)


def _is(name: str, actual: Any, meant: Any) -> bool:
    """Whether a value is the one that is meant; of a workload of the user's own, all versions may be."""
    return actual == meant or (name == "workload" and family(actual) == meant)


def column_of(record: Record, name: str) -> Any:
    """The value of an axis or of one of COLUMNS."""
    if name == "machine":
        return record.shown_machine
    if name == "run":
        return record.run.id
    return getattr(record if name in COLUMNS else record.case, name)


def parse_filter(text: str, plugin_names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The axes and values that a filter pins: `axis=value` terms and bare values, between slashes.

    `plugin_names` are the workloads and frameworks that there are.
    """
    pinned: dict[str, Any] = {}
    for term in filter(None, text.split("/")):
        name, equals, value = term.partition("=")
        if equals:
            name = axis_named(name.strip(), COLUMNS)
            pinned[name] = AXIS[name].parse(value) if name in AXIS else value.strip()
        else:
            pinned |= _bare(term.strip(), plugin_names)
    if not pinned:
        raise UsageError(f"'{text}' names nothing; write a filter such as mlp/train or device=cpu.")
    return pinned


def _bare(term: str, plugin_names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The axis that a bare word means, with its value; of a workload that ships the version is not looked at."""
    for axis in AXES:
        for word in dict.fromkeys((term, term.partition("@")[0]) if axis.name == "workload" else (term,)):
            value = axis.bare(word, plugin_names.get(axis.plugins, ()))
            if value is not None:
                return {axis.name: value}
    words = [word for axis in AXES for word in (*axis.values, *plugin_names.get(axis.plugins, ()))]
    raise unknown("workload, case or axis value", term, [*words, *DEVICE_KINDS, *(f"{axis.name}=…" for axis in AXES)])
