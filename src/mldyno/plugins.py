"""Finds the members of a plugin kind: every file in `frameworks/`, `workloads/`, `meters/` and `sensors/`.

A member is imported only when it is asked for. Names use dashes where files use underscores.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from mldyno.errors import unknown

if TYPE_CHECKING:
    from mldyno.frameworks import Framework
    from mldyno.meters import Meter
    from mldyno.sensors import Found, Surroundings
    from mldyno.workloads import Workload


def names(kind: str) -> list[str]:
    """The names of all members of a kind, sorted, without importing any."""
    folder = os.path.join(os.path.dirname(__file__), kind)
    files = (name[:-3] for name in os.listdir(folder) if name.endswith(".py"))
    return sorted(name.replace("_", "-") for name in files if not name.startswith("_"))


def about(kind: str, name: str) -> tuple[str, str]:
    """What a member is, and the package it requires: lines of its file's docstring, read without importing it."""
    title = requires = ""
    with open(os.path.join(os.path.dirname(__file__), kind, f"{name.replace('-', '_')}.py"), encoding="utf-8") as lines:
        for line in lines:
            title = title or line.strip().strip('"').rstrip(".")
            if line.startswith("Requires: "):
                requires = line.removeprefix("Requires: ").strip().strip('"')
            if line.startswith("from __future__"):
                break
    return title, requires


def installed(framework: str) -> bool:
    """Whether the package that a framework needs is there for this Python, without importing it."""
    from importlib.util import find_spec

    needs = about("frameworks", framework)[1]
    return not needs or find_spec(needs) is not None


def check(kind: str, name: str) -> None:
    """Raise unless the kind has a member of that name."""
    if name not in names(kind):
        raise unknown(kind.rstrip("s"), name, names(kind))


def _load(kind: str, name: str) -> ModuleType:
    check(kind, name)
    return import_module(f"mldyno.{kind}.{name.replace('-', '_')}")


def workload(name: str) -> Workload:
    """The workload of that name."""
    member: Workload = _load("workloads", name).WORKLOAD
    return member


def framework(name: str) -> Framework:
    """The framework of that name; its own package is imported only by `start`."""
    member: Framework = _load("frameworks", name).FRAMEWORK
    return member


def meters() -> list[Meter]:
    """One fresh meter of every kind."""
    return [_load("meters", name).METER() for name in names("meters")]


def sensors(around: Surroundings) -> dict[str, Found]:
    """What tells energy or power here, by the name of the file that finds it."""
    return {name: _load("sensors", name).find(around) for name in names("sensors")}
