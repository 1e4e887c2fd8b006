"""Finds the members of a plugin kind: every file in `frameworks/`, `workloads/`, `meters/` and `sensors/`.

A member is imported only when it is asked for. Names use dashes where files use underscores. Other packages add
workloads and frameworks by entry points, in the groups `mldyno.workloads` and `mldyno.frameworks`: each names a
`Workload` or a `Framework`. What is built in can't be replaced. Workloads of the user's own are known by their sources.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import sources
from mldyno.errors import MldynoError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mldyno.frameworks import Framework
    from mldyno.meters import Meter
    from mldyno.sensors import Found, Surroundings
    from mldyno.workloads import Workload


ADDED_KINDS = ("workloads", "frameworks")  # that other packages may add to


def names(kind: str) -> list[str]:
    """The names of all members of a kind, sorted, without importing any."""
    return sorted({*built_in(kind), *added(kind)})


@cache
def built_in(kind: str) -> tuple[str, ...]:
    """The names of those that are files of this package."""
    folder = os.path.join(os.path.dirname(__file__), kind)
    files = (name[:-3] for name in os.listdir(folder) if name.endswith(".py"))
    return tuple(name.replace("_", "-") for name in files if not name.startswith("_"))


@cache
def added(kind: str) -> dict[str, EntryPoint]:
    """Those that other packages add, by their names."""
    if kind not in ADDED_KINDS or not _anything_added():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"mldyno.{kind}") if point.name not in built_in(kind)}


@cache
def _anything_added() -> bool:
    """Whether any package has entry points of ours: to ask for these properly takes a tenth of a second."""
    for folder in sys.path:
        with suppress(OSError):
            for package in os.listdir(folder or "."):
                if package.endswith((".dist-info", ".egg-info")):
                    with (
                        suppress(OSError, UnicodeDecodeError),
                        open(os.path.join(folder, package, "entry_points.txt"), encoding="utf-8") as points,
                    ):
                        if "[mldyno." in points.read():
                            return True
    return False


def origin(kind: str, name: str) -> str:
    """The package that a member comes from, with its version; empty for what is built in."""
    point = added(kind).get(name)
    return "" if point is None or point.dist is None else f"{point.dist.name} {point.dist.version}"


def about(kind: str, name: str) -> tuple[str, str]:
    """What a member is, and the package it requires: lines of its file's docstring, read without importing it.

    Of what another package adds, what that package says of itself.
    """
    title = requires = ""
    if point := added(kind).get(name):
        return (point.dist.metadata["Summary"] or "" if point.dist else ""), ""
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
    if not is_known(kind, name):
        raise unknown(kind.rstrip("s"), name, names(kind))


def is_known(kind: str, name: str) -> bool:
    """Whether the kind has a member of that name; a workload may be of the user's own."""
    return name in names(kind) or (kind == "workloads" and sources.known(name) is not None)


def _load(kind: str, name: str) -> ModuleType:
    check(kind, name)
    return import_module(f"mldyno.{kind}.{name.replace('-', '_')}")


def _member(kind: str, name: str, constant: str) -> Any:
    """What a file holds by that name, or what another package's entry point names."""
    if name not in added(kind):
        return getattr(_load(kind, name), constant)
    try:
        member = added(kind)[name].load()
    except Exception as error:
        package = origin(kind, name)
        raise MldynoError(
            f"{name}, from the package {package}, can't be loaded: {error}; update or remove it."
        ) from None
    return getattr(member, constant, member)


def workload(name: str) -> Workload:
    """The workload of that name; one of the user's own by the word for it, too."""
    source = sources.known(name)
    if source is not None:
        return _load_own().workload_of(source)  # type: ignore[no-any-return]
    member: Workload = _member("workloads", name, "WORKLOAD")
    return member


def _load_own() -> Any:
    return import_module("mldyno.workloads._own")


def framework(name: str) -> Framework:
    """The framework of that name; its own package is imported only by `start`."""
    member: Framework = _member("frameworks", name, "FRAMEWORK")
    return member


def meters() -> list[Meter]:
    """One fresh meter of every kind."""
    return [_load("meters", name).METER() for name in names("meters")]


def sensors(around: Surroundings) -> dict[str, Found]:
    """What tells energy or power here, by the name of the file that finds it."""
    from mldyno.sensors import search

    return {name: search(name, _load("sensors", name).find, around) for name in names("sensors")}
