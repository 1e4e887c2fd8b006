"""Which records are meant: a filter such as `mlp/train/cpu` or `device=mps/batch=16`, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

from mldyno.axes import AXES, AXIS, DEVICE_KINDS, Case, axis_named
from mldyno.errors import UsageError, unknown
from mldyno.records import Provenance, Record, Status
from mldyno.sources import family

CLOCK_SKEW = timedelta(days=1)  # by which the clocks of two machines may differ
COLUMNS = ("machine", "run", "status", "provenance", "imported_from")
_CLOSED = {"status": get_args(Status), "provenance": get_args(Provenance)}  # columns with a closed list of values


@dataclass(frozen=True)
class Query:
    """Records whose axes and columns have these values; `heads` keeps the newest run of each case."""

    equal: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    heads: bool = True
    provenances: tuple[str, ...] = ("measured", "imported", "published")
    since: str = ""
    """From when on they were made, as records write it; always, if empty."""
    until: str = ""
    """Up to when; always, if empty."""
    rehearsed: bool = True
    """Whether cases of the fake framework are meant too."""

    def fits(self, record: Record) -> bool:
        """Whether a record is meant, whatever store or file it comes from."""
        if record.provenance not in self.provenances or record.created < self.since:
            return False
        if self.until and record.created > self.until:
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


def latest() -> str:
    """Return the last moment that is not in the future, as records write it: a clock may be a day ahead."""
    return (datetime.now(timezone.utc) + CLOCK_SKEW).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    """Return the axes and values that a filter pins: `axis=value` terms and bare values, between slashes.

    All terms must hold: a filter that names two values of one axis is refused. `plugin_names` are the workloads and
    frameworks that there are.
    """
    pinned: dict[str, Any] = {}
    for term in filter(None, map(str.strip, text.split("/"))):
        name, value = _read_explicit(term, plugin_names) or _read_bare(term, plugin_names)
        if name in pinned and not _is(name, value, pinned[name]):
            if not _is(name, pinned[name], value):
                both = " and ".join(spelled({name: each}) for each in (pinned[name], value))
                raise UsageError(f"'{text}' matches nothing: no record has {both} at once; keep one of them.")
            value = pinned[name]
        pinned[name] = value
    if not pinned:
        raise nothing_named(text)
    return pinned


def nothing_named(text: str) -> UsageError:
    """Return the error for a filter without a value, which would else mean all records, or those that lack one."""
    return UsageError(f"'{text}' names nothing; write a filter such as mlp/train or device=cpu.")


def spelled(pinned: Mapping[str, Any]) -> str:
    """Return the filter that pins these values, every term with its axis."""
    return "/".join(f"{name}={AXIS[name].show(value) if name in AXIS else value}" for name, value in pinned.items())


def is_explicit(term: str) -> bool:
    """Whether a term names its axis, or one of COLUMNS."""
    name, equals, _ = term.partition("=")
    return bool(equals) and name.strip() in (*AXIS, *COLUMNS)


def axis_value(word: str, plugin_names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the axis that has this word among its values, with the value; workloads do not count."""
    for axis in AXES[1:]:
        try:
            value = axis.bare(word, plugin_names.get(axis.plugins, ()))
        except UsageError:  # it begins like a value of this axis, such as cpu:loop
            if workload_named(word, plugin_names) is None:
                raise
            continue
        if value is not None:
            return {axis.name: value}
    return {}


def workload_named(word: str, plugin_names: Mapping[str, Sequence[str]]) -> str | None:
    """Return the workload of this name; the version behind an @ need not be known."""
    names = plugin_names.get("workloads", ())
    return next((each for each in (word, word.partition("@")[0]) if each in names), None)


def _read_explicit(term: str, plugin_names: Mapping[str, Sequence[str]]) -> tuple[str, Any] | None:
    """Read an `axis=value` term; a workload may have an equals sign in its name."""
    if "=" not in term or (not is_explicit(term) and workload_named(term, plugin_names) is not None):
        return None
    word, _, value = term.partition("=")
    name, value = axis_named(word.strip(), COLUMNS), value.strip()
    if not value:
        raise UsageError(f"'{term}' lacks a value; write one behind the equals sign.")
    if name == "workload":
        return name, workload_named(value, plugin_names) or value
    if name in _CLOSED and value not in _CLOSED[name]:
        raise unknown(name, value, _CLOSED[name])
    return name, AXIS[name].parse(value) if name in AXIS else value


def _read_bare(term: str, plugin_names: Mapping[str, Sequence[str]]) -> tuple[str, Any]:
    """Read a bare word: the value of an axis, else a workload."""
    for item in axis_value(term, plugin_names).items():
        return item
    workload = workload_named(term, plugin_names)
    if workload is not None:
        return "workload", workload
    words = [word for axis in AXES for word in (*axis.values, *plugin_names.get(axis.plugins, ()))]
    raise unknown("workload, case or axis value", term, [*words, *DEVICE_KINDS, *(f"{axis.name}=…" for axis in AXES)])
