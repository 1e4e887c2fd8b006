"""Which records a word means: a file, an id, a machine, a filter; and what is said where there are none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mldyno import machine as machines
from mldyno import plan as plans
from mldyno import plugins, suites
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.records import Record
from mldyno.store import Query, Store, transfer
from mldyno.store.machine_names import the_one_meant
from mldyno.store.query import parse_filter

THIS_MACHINE = "this-machine"


def opened(store: Store | str | None) -> Store:
    """The store that is meant."""
    return store if isinstance(store, Store) else Store(store)


def _is_id(text: str) -> bool:
    return len(text) >= 6 and all(letter in "0123456789abcdef" for letter in text)


def _command_name(text: str) -> str:
    """The workload of a command as it was typed, slashes, secrets and all."""
    try:
        return plans.name_of(shlex.split(text))
    except ValueError:  # a quote that is not closed
        return text


def pinned_by(text: str, store: Store) -> dict[str, Any]:
    """The axes and columns that a filter, or a machine's name, pins."""
    stored = store.workloads()
    if text == THIS_MACHINE:
        return {"machine": machines.describe().name}
    for typed in (text, _command_name(text)):
        if typed in stored:
            return {"workload": typed}
    if not text.isprintable():
        raise UsageError(f"'{text}' can't be the name of anything; `mldyno history` lists what there is.")
    workloads = list(dict.fromkeys([*plugins.names("workloads"), *stored]))
    try:
        return parse_filter(text, {"workloads": workloads, "frameworks": plugins.names("frameworks")})
    except UsageError as error:
        names = store.machines()
        machine = the_one_meant(text, names)
        if machine is not None:
            return {"machine": machine}
        if "=" in text or "/" in text or text in workloads:
            raise
        raise unknown("workload, machine, case or file", text, [*workloads, THIS_MACHINE, *names]) from error


def select(text: str, store: Store, heads: bool = True) -> tuple[list[Record], dict[str, Any]]:
    """The records that a word means (a file, an id, a machine, a filter), and what it pins."""
    if os.path.isfile(text):
        return list(transfer.read(text)), {"file": text}
    if _is_id(text):
        records = store.select(Query(ids=(text,), heads=False))
        if not records:
            raise MldynoError(f"no record's id begins with {text}; `mldyno history` lists ids.")
        return records, {"id": text}
    pinned = pinned_by(text, store)
    return store.select(Query(pinned, heads=heads)), pinned


def of_several(selected: Sequence[tuple[list[Record], dict[str, Any]]]) -> list[Record]:
    """The records of several targets, each once; where two files name their machines alike, with the file's name."""
    files: dict[str, set[str]] = {}
    for records, pinned in selected:
        for record in records:
            files.setdefault(record.machine.name, set()).add(str(pinned.get("file", "")))
    unique: dict[tuple[str, str], Record] = {}
    for records, pinned in selected:
        for record in records:
            name, file = record.machine.name, str(pinned.get("file", ""))
            shown = f"{name} ({os.path.basename(file)})" if file and len(files[name]) > 1 else name
            unique.setdefault((record.id, shown), replace(record, machine=replace(record.machine, name=shown)))
    return list(unique.values())


def nothing_for(targets: Sequence[str]) -> MldynoError:
    """That there is nothing to show, and what to run: only a workload or a suite can be run by its name."""
    runnable = [*plugins.names("workloads"), *suites.names()]
    named = [target for target in targets if target in runnable]
    how = f"mldyno run {' '.join(named)}" if named else "mldyno run"
    what = f" for '{' '.join(targets)}'" if targets else ""
    return MldynoError(f"nothing recorded{what} yet; measure it with `{how}`, or look what there is: mldyno history")
