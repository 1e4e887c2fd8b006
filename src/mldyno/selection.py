"""Which records a word means: a file, an id, a run, a machine, a filter; and what is said where there are none.

Rule: rehearsals, whose times are made up, never stand beside what was measured; `without_rehearsals` decides.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from mldyno import machine as machines
from mldyno import plan as plans
from mldyno import plugins, suites
from mldyno.axes import FAKE, TRACKED
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.records import Record
from mldyno.sources import family, is_target
from mldyno.store import Query, Store, transfer
from mldyno.store.machine_names import identity_of, the_one_meant, told_apart, with_names
from mldyno.store.query import parse_filter

THIS_MACHINE = "this-machine"
IDS_AT_ONCE = 200  # that one question to the store may name
LEFT_OUT = f"rehearsals (framework {FAKE}) are left out; name it to see them: {FAKE}, or mlp/{FAKE}"
Tell = Callable[[str], None]  # hears a line, such as what is left out, or about to be shared
Selected = tuple[list[Record], dict[str, Any]]  # the records that a word means, and what it pins


def opened(store: Store | str | None) -> Store:
    """The store that is meant."""
    return store if isinstance(store, Store) else Store(store)


def _is_records(text: str) -> bool:
    """Whether it is a file of records; one of the user's own code means what was measured of it."""
    return os.path.isfile(text) and not is_target(text)


def _is_id(text: str) -> bool:
    return len(text) >= 6 and all(letter in "0123456789abcdef" for letter in text)


def _command_name(text: str) -> str:
    """The workload of a command as it was typed, slashes, secrets and all."""
    try:
        return plans.name_of(shlex.split(text))
    except ValueError:  # a quote that is not closed
        return text


def pinned_by(text: str, store: Store) -> dict[str, Any]:
    """The axes and columns that a filter, a machine's name, a run or an imported file's name pins."""
    stored = [name for known in store.workloads() for name in (known, family(known))]
    if text == THIS_MACHINE:
        return {"machine": store.name_of(machines.describe())}
    for typed in (text, _command_name(text), *([os.path.basename(text)] if is_target(text) else [])):
        if typed in stored:
            return {"workload": typed}
    if not text.isprintable():
        raise UsageError(f"'{text}' can't be the name of anything; `mldyno history` lists what there is.")
    workloads = list(dict.fromkeys([*plugins.names("workloads"), *stored]))
    try:
        frameworks = [*plugins.names("frameworks"), TRACKED]
        pinned = parse_filter(text, {"workloads": workloads, "frameworks": frameworks})
        if "machine" in pinned:
            pinned["machine"] = the_one_meant(pinned["machine"], store.machines()) or pinned["machine"]
        return pinned
    except UsageError as error:
        for column in ("run", "imported_from"):
            if store.holds(column, text):
                return {column: text}
        names = store.machines()
        machine = the_one_meant(text, names)
        if machine is not None:
            return {"machine": machine}
        if "=" in text or "/" in text or text in workloads:
            raise
        raise unknown("workload, machine, case or file", text, [*workloads, THIS_MACHINE, *names]) from error


def without_rehearsals(query: Query, read: Callable[[Query], list[Record]], tell: Tell | None) -> list[Record]:
    """What is read for a query but rehearsals; they are there where they are named, or where nothing was measured."""
    if query.ids or "framework" in query.equal:
        return read(query)
    real = read(replace(query, rehearsed=False))
    if all(record.provenance == "published" for record in real):
        return read(query)
    if tell is not None and read(replace(query, equal={**query.equal, "framework": FAKE})):
        tell(LEFT_OUT)
    return real


def select(text: str | None, store: Store, since: str = "", tell: Tell | None = None) -> Selected:
    """The records that a word means (a file, an id, a machine, a filter; all, without one), made since then, and what
    it pins.
    """
    if text is None:
        return without_rehearsals(Query(since=since), store.select, tell), {}
    if _is_records(text):
        records = list(transfer.read(text))
        named = list(with_names(records, told_apart({*map(identity_of, records)})))
        query = Query(since=since)
        return without_rehearsals(query, lambda query: [*filter(query.fits, named)], tell), {"file": text}
    if _is_id(text):
        records = store.select(Query(ids=(text,), heads=False, since=since))
        if not records:
            raise MldynoError(f"no record's id begins with {text}; `mldyno history` lists ids.")
        return records, {"id": text}
    pinned = pinned_by(text, store)
    return without_rehearsals(Query(pinned, since=since), store.select, tell), pinned


def select_each(texts: Sequence[str | None], store: Store, since: str, tell: Tell | None) -> list[Selected]:
    """What each word means; that rehearsals are left out is told once."""
    lines: list[str] = []
    selected = [select(text, store, since, lines.append) for text in texts]
    if tell is not None and lines:
        tell(lines[0])
    return selected


def runs_of(text: str, store: Store, since: str = "", tell: Tell | None = None) -> list[Record]:
    """All runs of what a word means: those of this machine, unless the word says whose."""
    if _is_records(text) or _is_id(text):
        return select(text, store, since, tell)[0]
    pinned = pinned_by(text, store)
    if "imported_from" not in pinned:
        pinned = {"machine": store.name_of(machines.describe()), **pinned}
    return without_rehearsals(Query(pinned, heads=False, since=since), store.select, tell)


def stored(text: str, store: Store) -> list[Record]:
    """All records of the store that a word means, however old; of a file, those that are in the store."""
    if _is_records(text):
        ids = [record.id for record in transfer.read(text)]
        parts = [tuple(ids[place : place + IDS_AT_ONCE]) for place in range(0, len(ids), IDS_AT_ONCE)]
        return [record for part in parts for record in store.stream(Query(ids=part, heads=False))]
    if not _is_id(text):
        return list(store.stream(Query(pinned_by(text, store), heads=False)))
    records = list(store.stream(Query(ids=(text,), heads=False)))
    if len(records) > 1:
        raise UsageError(f"{len(records)} ids begin with {text}; write more of the one you mean.")
    return records


def of_several(selected: Sequence[Selected]) -> list[Record]:
    """The records of several targets, each once; where two files name their machines alike, with the file's name."""
    files: dict[str, set[str]] = {}
    for records, pinned in selected:
        for record in records:
            files.setdefault(record.shown_machine, set()).add(str(pinned.get("file", "")))
    alike = {name for name, where in files.items() if len(where) > 1}
    unique: dict[tuple[str, str], Record] = {}
    for side in selected:
        for record in _with_file_name(side, alike):
            unique.setdefault((record.id, record.shown_machine), record)
    return list(unique.values())


def of_two(left: Selected, right: Selected) -> tuple[list[Record], list[Record]]:
    """The records of two sides; where both have machines of one name but of other keys, with the file's name."""
    keys: list[dict[str, set[str | None]]] = [{}, {}]
    for known, (records, _) in zip(keys, (left, right), strict=True):
        for record in records:
            known.setdefault(record.shown_machine, set()).add(record.machine.key)
    alike = {name for name in keys[0].keys() & keys[1].keys() if not keys[0][name] & keys[1][name]}
    return _with_file_name(left, alike), _with_file_name(right, alike)


def _with_file_name(selected: Selected, names: Collection[str]) -> list[Record]:
    """The records of a target; machines of these names with the name of the file, if it is one."""
    records, pinned = selected
    if "file" not in pinned:
        return records
    file = os.path.basename(pinned["file"])
    return [replace(record, machine=replace(record.machine, name=f"{record.machine.name} ({file})"))
            if record.shown_machine in names else record for record in records]  # fmt: skip


def nothing_for(targets: Sequence[str], since: str = "") -> MldynoError:
    """That there is nothing to show, and what to run: only a workload or a suite can be run by its name."""
    runnable = [*plugins.names("workloads"), *suites.names()]
    named = [target for target in targets if target in runnable]
    how = f"mldyno run {' '.join(named)}" if named else "mldyno run"
    what = f" for '{' '.join(targets)}'" if targets else ""
    what += f" since {since.replace('T', ' ')} UTC" if since else " yet"
    return MldynoError(f"nothing recorded{what}; measure it with `{how}`, or look what there is: mldyno history")


def nothing_to_remove(text: str, store: Store) -> MldynoError:
    """That nothing stored is meant; what ships with mldyno can't be removed."""
    if not _is_records(text) and not _is_id(text) and store.select(Query(pinned_by(text, store))):
        return MldynoError(f"'{text}' means published figures only, which ship with mldyno and can't be removed.")
    return MldynoError(f"nothing stored for '{text}'; `mldyno history` lists what there is.")
