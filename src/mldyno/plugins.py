"""Find plugins: frameworks, workloads, engines, meters and sensors, each kind in the folder of its name.

A plugin is imported only when it is used. A name has dashes where the file's name has underscores. A file with a
`WORKLOAD`, a `FRAMEWORK` or an `ENGINE` is one plugin with the file's name; the first line of its docstring is its
title. A file with `WORKLOADS` or `FRAMEWORKS` has several, and its docstring has a line `name: title` for each.
`Requires: torch`, on a separate line or at the end of one, names the package that a framework needs. Other packages add
plugins by entry points in the groups `mldyno.workloads`, `mldyno.frameworks` and `mldyno.engines`; each names a
`Workload`, a `Framework` or a class of `Engine`. They can't replace a built-in plugin. A user's own workloads are known
by their sources.
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

    from mldyno.engines import Engine
    from mldyno.frameworks import Framework
    from mldyno.hardware import Found, Meter, Surroundings
    from mldyno.workloads import Workload


CONSTANTS = {"workloads": "WORKLOAD", "frameworks": "FRAMEWORK", "engines": "ENGINE"}  # kinds with entry points
HOLDS = re.compile(r"^(WORKLOAD|FRAMEWORK|ENGINE)(?P<plural>S?)( =|:)", re.MULTILINE)
ENTRY = re.compile(r"([a-z][a-z0-9-]*): (.+)")
REQUIRES = "Requires: "


def names(kind: str) -> list[str]:
    """Return the names of all plugins of a kind, sorted, without importing any."""
    return sorted({*built_in(kind), *added(kind)})


class Plugin(NamedTuple):
    """A plugin's module, and the title and required package from its docstring."""

    module: str
    title: str
    requires: str


@cache
def built_in(kind: str) -> dict[str, Plugin]:
    """Return the plugins of this package by name, without importing any."""
    folder = os.path.join(os.path.dirname(__file__), kind)
    plugins: dict[str, Plugin] = {}
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file, "__init__.py") if "." not in file else os.path.join(folder, file)
        if file.startswith("_") or not path.endswith(".py"):
            continue
        with suppress(OSError), open(path, encoding="utf-8") as lines:
            plugins |= _plugins_in(kind, file.removesuffix(".py"), lines.read())
    return plugins


def _plugins_in(kind: str, module: str, text: str) -> dict[str, Plugin]:
    lines = text.partition('"""')[2].partition('"""')[0].splitlines()
    holds = HOLDS.search(text)
    if holds is None and kind in CONSTANTS:
        return {}
    if holds and holds["plural"]:
        entries = [match.groups() for line in lines if (match := ENTRY.match(line))]
        parts = {name: line.partition(REQUIRES) for name, line in entries}
        return {name: Plugin(module, title.strip().rstrip("."), package) for name, (title, _, package) in parts.items()}
    requires = next((line.removeprefix(REQUIRES) for line in lines if line.startswith(REQUIRES)), "")
    return {module.replace("_", "-"): Plugin(module, lines[0].rstrip(".") if lines else "", requires)}


@cache
def added(kind: str) -> dict[str, EntryPoint]:
    """Return the plugins of other packages by name."""
    if kind not in CONSTANTS or not _anything_added():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"mldyno.{kind}") if point.name not in built_in(kind)}


@cache
def _anything_added() -> bool:
    """Return whether any package has entry points for mldyno; `importlib.metadata` takes a tenth of a second for it."""
    for folder in sys.path:
        with suppress(OSError):
            for package in os.listdir(folder or "."):
                if package.endswith((".dist-info", ".egg-info")):
                    with suppress(OSError), open(os.path.join(folder, package, "entry_points.txt"), "rb") as points:
                        if b"[mldyno." in points.read():
                            return True
    return False


def origin(kind: str, name: str) -> str:
    """Return the package of a plugin and its version; empty if it is built in."""
    point = added(kind).get(name)
    return "" if point is None or point.dist is None else f"{point.dist.name} {point.dist.version}"


def about(kind: str, name: str) -> tuple[str, str]:
    """Return the title of a plugin and the package that it requires, without importing it.

    The title of another package's plugin is the summary of the package.
    """
    if point := added(kind).get(name):
        return (point.dist.metadata["Summary"] or "" if point.dist else ""), ""
    _, title, requires = built_in(kind)[name]
    return title, requires


def installed(framework: str) -> bool:
    """Return whether the package of a framework is installed for this Python, without importing it."""
    from importlib.util import find_spec

    needs = about("frameworks", framework)[1]
    return not needs or find_spec(needs) is not None


def check(kind: str, name: str) -> None:
    """Raise an error unless the kind has a plugin of that name."""
    if not is_known(kind, name):
        raise unknown(kind.rstrip("s"), name, names(kind))


def is_known(kind: str, name: str) -> bool:
    """Return whether the kind has a plugin of that name, or the name is that of a user's own workload."""
    from mldyno import sources

    return name in names(kind) or (kind == "workloads" and sources.known(name) is not None)


def _plugin(kind: str, name: str) -> Any:
    """Import a plugin from its file, or from the entry point of another package."""
    constant = CONSTANTS[kind]
    if name not in added(kind):
        check(kind, name)
        module = import_module(f"mldyno.{kind}.{built_in(kind)[name].module}")
        plugins = getattr(module, f"{constant}S", None)
        return getattr(module, constant) if plugins is None else plugins[name]
    try:
        loaded = added(kind)[name].load()
    except Exception as error:
        package = origin(kind, name)
        raise MldynoError(
            f"{name}, from the package {package}, can't be loaded: {error}; update or remove it."
        ) from None
    return getattr(loaded, constant, loaded)


def workload(name: str) -> Workload:
    """Return a workload; also one of the user's own."""
    from mldyno import sources  # a list of names does not need it

    source = sources.known(name)
    if source is not None:
        from mldyno.workloads.user_models import workload_of

        return workload_of(source)
    plugin: Workload = _plugin("workloads", name)
    return plugin


def framework(name: str) -> Framework:
    """Return a framework; only its `start` imports its package."""
    plugin: Framework = _plugin("frameworks", name)
    return plugin


def engine(name: str) -> type[Engine]:
    """Return an engine, of which each run makes one."""
    plugin: type[Engine] = _plugin("engines", name)
    return plugin


def start_framework(name: str) -> ModuleType:
    """Import the package of a framework and return it."""
    framework(name).start()
    return sys.modules[name]


def _hardware() -> list[ModuleType]:
    """Import every file of meters and sensors."""
    return [import_module(f"mldyno.hardware.{plugin.module}") for plugin in built_in("hardware").values()]


def meters() -> list[Meter]:
    """Return a new meter of every kind."""
    return [meter() for module in _hardware() for meter in getattr(module, "METERS", ())]


def sensors(around: Surroundings) -> dict[str, Found]:
    """Return the sensors of energy and power on this machine, by name."""
    from mldyno.hardware import search

    finders = {name: find for module in _hardware() for name, find in getattr(module, "SENSORS", {}).items()}
    return {name: search(name, finders[name], around) for name in sorted(finders)}
