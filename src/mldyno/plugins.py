"""Find the members of a plugin kind: frameworks, workloads, meters and sensors, in the folder of that name.

A member is imported only when it is asked for. Names use dashes where files use underscores. A file that holds a
`WORKLOAD` or a `FRAMEWORK` is one member, named by the file; the first line of its docstring is its title. A file that
holds `WORKLOADS` or `FRAMEWORKS` has several, and its docstring has a line `name: title` for each. A line, or the end
of one, that says `Requires: torch` names the package that a framework needs. Other packages add workloads and
frameworks by entry points, in the groups `mldyno.workloads` and `mldyno.frameworks`: each names a `Workload` or a
`Framework`. What is built in can't be replaced. Workloads of the user's own are known by their sources.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mldyno.errors import MldynoError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mldyno.frameworks import Framework
    from mldyno.hardware import Found, Meter, Surroundings
    from mldyno.workloads import Workload


CONSTANTS = {"workloads": "WORKLOAD", "frameworks": "FRAMEWORK"}  # of the kinds that other packages may add to
HOLDS = re.compile(r"^(WORKLOAD|FRAMEWORK)(?P<plural>S?)( =|:)", re.MULTILINE)
ENTRY = re.compile(r"([a-z][a-z0-9-]*): (.+)")
REQUIRES = "Requires: "


def names(kind: str) -> list[str]:
    """Return the names of all members of a kind, sorted, without importing any."""
    return sorted({*built_in(kind), *added(kind)})


def built_in(kind: str) -> tuple[str, ...]:
    """Return the names of those that are part of this package."""
    return tuple(_built_in(kind))


class Member(NamedTuple):
    """Where a member is, and what its file's docstring says of it."""

    module: str
    title: str
    requires: str


@cache
def _built_in(kind: str) -> dict[str, Member]:
    """Read the members of this package from their files, without importing any."""
    folder = os.path.join(os.path.dirname(__file__), kind)
    members: dict[str, Member] = {}
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file, "__init__.py") if "." not in file else os.path.join(folder, file)
        if file.startswith("_") or not path.endswith(".py"):
            continue
        with suppress(OSError), open(path, encoding="utf-8") as lines:
            members |= _members_in(kind, file.removesuffix(".py"), lines.read())
    return members


def _members_in(kind: str, module: str, text: str) -> dict[str, Member]:
    lines = text.partition('"""')[2].partition('"""')[0].splitlines()
    holds = HOLDS.search(text)
    if holds is None and kind in CONSTANTS:
        return {}
    if holds and holds["plural"]:
        entries = [match.groups() for line in lines if (match := ENTRY.match(line))]
        return {name: Member(module, *_title_and_package(line)) for name, line in entries}
    requires = next((line.removeprefix(REQUIRES) for line in lines if line.startswith(REQUIRES)), "")
    return {module.replace("_", "-"): Member(module, lines[0].rstrip(".") if lines else "", requires)}


def _title_and_package(line: str) -> tuple[str, str]:
    title, _, requires = line.partition(REQUIRES)
    return title.strip().rstrip("."), requires


@cache
def added(kind: str) -> dict[str, EntryPoint]:
    """Return those that other packages add, by their names."""
    if kind not in CONSTANTS or not _anything_added():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"mldyno.{kind}") if point.name not in built_in(kind)}


@cache
def _anything_added() -> bool:
    """Return whether any package has entry points of ours: `importlib.metadata` takes a tenth of a second for it."""
    for folder in sys.path:
        with suppress(OSError):
            for package in os.listdir(folder or "."):
                if package.endswith((".dist-info", ".egg-info")) and _names_ours(f"{folder}/{package}"):
                    return True
    return False


def _names_ours(package: str) -> bool:
    """Return whether a package's entry points name a group of ours; read without a text stream, for speed."""
    try:
        points = os.open(f"{package}/entry_points.txt", os.O_RDONLY)
    except OSError:
        return False
    try:
        return b"[mldyno." in os.read(points, 1 << 20)
    finally:
        os.close(points)


def origin(kind: str, name: str) -> str:
    """Return the package that a member comes from, with its version; empty for what is built in."""
    point = added(kind).get(name)
    return "" if point is None or point.dist is None else f"{point.dist.name} {point.dist.version}"


def about(kind: str, name: str) -> tuple[str, str]:
    """Return the title of a member and the package that it requires, without importing it.

    The title of what another package adds is that package's summary.
    """
    if point := added(kind).get(name):
        return (point.dist.metadata["Summary"] or "" if point.dist else ""), ""
    member = _built_in(kind)[name]
    return member.title, member.requires


def installed(framework: str) -> bool:
    """Return whether the package that a framework needs is installed for this Python, without importing it."""
    from importlib.util import find_spec

    needs = about("frameworks", framework)[1]
    return not needs or find_spec(needs) is not None


def check(kind: str, name: str) -> None:
    """Raise unless the kind has a member of that name."""
    if not is_known(kind, name):
        raise unknown(kind.rstrip("s"), name, names(kind))


def is_known(kind: str, name: str) -> bool:
    """Return whether the kind has a member of that name; a workload may be of the user's own."""
    from mldyno import sources

    return name in names(kind) or (kind == "workloads" and sources.known(name) is not None)


def _load(kind: str, name: str) -> ModuleType:
    check(kind, name)
    return import_module(f"mldyno.{kind}.{_built_in(kind)[name].module}")


def _member(kind: str, name: str) -> Any:
    """Return what a file holds by that name, or what another package's entry point names."""
    constant = CONSTANTS[kind]
    if name not in added(kind):
        module = _load(kind, name)
        members = getattr(module, f"{constant}S", None)
        return getattr(module, constant) if members is None else members[name]
    try:
        member = added(kind)[name].load()
    except Exception as error:
        package = origin(kind, name)
        raise MldynoError(
            f"{name}, from the package {package}, can't be loaded: {error}; update or remove it."
        ) from None
    return getattr(member, constant, member)


def workload(name: str) -> Workload:
    """Return the workload of that name; one of the user's own by the word for it, too."""
    from mldyno import sources  # which a list of names does not need

    source = sources.known(name)
    if source is not None:
        from mldyno.workloads.user_models import workload_of

        return workload_of(source)
    member: Workload = _member("workloads", name)
    return member


def framework(name: str) -> Framework:
    """Return the framework of that name; its own package is imported only by `start`."""
    member: Framework = _member("frameworks", name)
    return member


def start_framework(name: str) -> ModuleType:
    """Import the package of a framework, and return it."""
    framework(name).start()
    return sys.modules[name]


def _hardware() -> list[ModuleType]:
    """Import every file that may hold meters and sensors."""
    return [_load("hardware", name) for name in names("hardware")]


def meters() -> list[Meter]:
    """Return one fresh meter of every kind."""
    return [meter() for module in _hardware() for meter in getattr(module, "METERS", ())]


def sensors(around: Surroundings) -> dict[str, Found]:
    """Return the sensors of energy and power found here, by the name of what finds each."""
    from mldyno.hardware import search

    finders = {name: find for module in _hardware() for name, find in getattr(module, "SENSORS", {}).items()}
    return {name: search(name, finders[name], around) for name in sorted(finders)}
