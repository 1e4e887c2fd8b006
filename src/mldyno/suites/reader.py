"""Read suite files: each with all that it includes, and every key, type and value checked.

Rule: a suite depends on files only, and reading it starts no process, unless it is trusted: then it may name
interpreters by their paths. Workloads, and the devices that `all` and `gpu` mean, are resolved when it is expanded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mldyno import interpreters, sources
from mldyno.axes import AXIS, INTERPRETER_NAME, LARGEST_WHOLE, NAMES, Case
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.files import check_regular
from mldyno.settings import IN_SUITES, SETTINGS
from mldyno.suites import FOLDER, RENAMED, is_suite, names

ALL = "all"  # every workload of the catalogue, or every device that the framework finds
LONGEST_SUITE_B = 1 << 20  # those that ship have some hundred
MOST_ENTRIES = 1000  # files, tables and values of a suite, with all that it includes
DEEPEST_INCLUDE = 20
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Reference:
    """The reference of a score: a frozen set of cases, and their rates on the machine whose score is 100."""

    version: int
    machine: str
    rates: Mapping[Case, float]  # steps a second


@dataclass(frozen=True)
class Suite:
    """A suite file, checked."""

    file: str
    settings: dict[str, Any]
    included: tuple[Suite, ...]  # suites whose cases come first; their settings do not count
    cases: tuple[Values, ...]  # axes whose values multiply, one set for each table
    excluded: tuple[Values, ...]  # sets of axes; a case that has a value of each axis of a set is dropped
    score: Reference | None = None

    @cached_property
    def entries(self) -> int:
        """Count its files, tables and values, those of a suite as often as it is included."""
        tables = (*self.cases, *self.excluded)
        values = sum(len(axis) for axes in tables for axis in axes.values())
        return 1 + len(tables) + values + sum(suite.entries for suite in self.included)


def read(target: str, trust: bool = False) -> Suite:
    """Read a shipped suite by its name, or any by the path of its file; `trust` lets it name interpreters by paths."""
    return _read(_file(target, Path(), "suite"), (), trust)


def _file(word: str, folder: Path, kind: str) -> Path:
    """Return the file of a suite; a path is relative to a folder."""
    if not is_suite(word):
        raise unknown(kind, word, names())
    return folder / word if word.endswith(".toml") else Path(FOLDER, f"{RENAMED.get(word, word)}.toml")


def value_of(axis: str, text: str) -> Any:
    """Read a value of an axis; a device may also be `all`."""
    return text if AXIS[axis].name == "device" and text == ALL else AXIS[axis].parse(text)


def _read(path: Path, above: tuple[Path, ...], trust: bool) -> Suite:
    content = _content(path)
    place = path.resolve()
    if place in above:
        circle = [*above[above.index(place) :], place]
        raise UsageError(f"suite {path.name} includes itself: {' -> '.join(file.name for file in circle)}.")
    if len(above) > DEEPEST_INCLUDE:
        raise UsageError(f"suite {path.name} is included over {DEEPEST_INCLUDE} deep; include it further up.")
    try:
        typed = {key: str(value) if isinstance(value, float) else value for key, value in content.items()}
        settings = {key: SETTINGS[key].parse(value) for key, value in typed.items() if key in IN_SUITES}
        included = content.get("include", [])
        if not isinstance(included, list) or not all(isinstance(word, str) and word for word in included):
            raise UsageError('include must be a list of suites, such as ["quick", "other.toml"].')
        files = [_file(word, path.parent, "suite to include") for word in included]  # a user's, relative to this one
        interpreter = partial(_interpreter, folder=path.parent, trust=trust)
        cases = [_located(_axes(table, "[[cases]]", interpreter), path.parent) for table in _tables(content, "cases")]
        excluded = [_axes(table, "[[exclude]]", interpreter) for table in _tables(content, "exclude")]
        _check_tables(bool(files), cases, excluded)
        score = _reference(content["score"]) if "score" in content else None
    except UsageError as error:
        raise UsageError(f"suite {path.name}: {error}") from None
    suite = _checked(Suite(path.name, settings, (), tuple(cases), tuple(excluded), score))
    for file in files:
        suite = _checked(replace(suite, included=(*suite.included, _read(file, (*above, place), trust))))
    return suite


def _checked(suite: Suite) -> Suite:
    """Raise if a suite is too large; checked after each include, since two includes a file soon are millions."""
    if suite.entries > MOST_ENTRIES:
        raise UsageError(f"suite {suite.file} has over {MOST_ENTRIES:,} files, tables and values in all; shorten it.")
    return suite


def _content(path: Path) -> dict[str, Any]:
    """Return the file's keys and values; raise where a key is unknown."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    try:
        check_regular(path)
        with path.open("rb") as source:
            text = source.read(LONGEST_SUITE_B + 1)
        if len(text) > LONGEST_SUITE_B:
            raise MldynoError(f"{path}: a file of over {LONGEST_SUITE_B >> 20} MiB is not a suite.")
        content = tomllib.loads(text.decode())
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MldynoError(f"{path}: not TOML: {error}.") from None
    except RecursionError:
        raise MldynoError(f"{path}: its values are nested too deeply.") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise MldynoError(f"{path}: a number in it has too many digits.") from None
    for key in content:
        if key not in KEYS:
            raise unknown(f"key in suite {path.name}", key, KEYS)
    return content


def _tables(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    tables = content.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{key} must be tables; begin each with a line [[{key}]].")
    return tables


def _axes(table: Mapping[str, Any], kind: str, interpreter: Callable[[str], str] = lambda text: text) -> Values:
    """Return the axes of one table with their values; `interpreter` gives the name of the one that a text means."""
    axes: dict[str, tuple[Any, ...]] = {}
    for key, value in table.items():
        if key not in AXIS:
            raise unknown(f"key in {kind}", key, NAMES)
        axis = AXIS[key].name
        if axis in axes:
            raise UsageError(f"{key} means {axis}, which a {kind} table has already.")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(entry, str | int) for entry in values):
            raise UsageError(f"{key} must be a value or a list of values.")
        if any(isinstance(entry, int) and abs(entry) >= LARGEST_WHOLE for entry in values):
            raise UsageError(f"{key} has a whole number beyond 2^53; write a smaller one.")
        texts = map(str, values)
        axes[axis] = tuple(value_of(axis, interpreter(text) if axis == "python" else text) for text in texts)
    return axes


def _interpreter(text: str, folder: Path, trust: bool) -> str:
    """Return the name of an interpreter that a suite names; start what lies at a path only if the suite is trusted."""
    if not INTERPRETER_NAME.fullmatch(text) and not trust:
        raise UsageError(f"it runs the interpreter {text}; allow it with --trust, if you trust both.")
    return interpreters.name_of(os.path.join(folder, text) if os.sep in text else text)


def _located(axes: Values, folder: Path) -> Values:
    """Make the user's files relative to the working folder; a suite names them relative to its own."""
    words = axes.get("workload", ())
    here = (str(folder / word) if sources.is_target(word) and ".py" in word else word for word in words)
    return {**axes, **({"workload": tuple(here)} if words else {})}


def own_targets(suite: Suite) -> dict[str, str]:
    """Return the user's targets that a suite or an included one names, each with the file that names it."""
    named = {word: suite.file for axes in suite.cases for word in axes["workload"] if sources.is_target(word)}
    return {**{word: file for other in suite.included for word, file in own_targets(other).items()}, **named}


def _check_tables(includes: bool, cases: Sequence[Values], excluded: Sequence[Values]) -> None:
    """Raise unless there is something to run, and each exclude names what it drops."""
    if not cases and not includes:
        raise UsageError("it needs at least one [[cases]] table, or an include.")
    if not all("workload" in axes for axes in cases):
        raise UsageError("a [[cases]] table needs a workload.")
    for axes in excluded:
        if not axes:
            raise UsageError("an [[exclude]] table needs at least one axis.")
        if ALL in (*axes.get("workload", ()), *axes.get("device", ())):
            raise UsageError(f"[[exclude]] drops what it names; leave the axis out instead of '{ALL}'.")


def _reference(content: Any) -> Reference:
    """Read the table of a score: version, machine, and rates, each of which names one case."""
    known = isinstance(content, dict) and set(content) == {"version", "machine", "rates"}
    entries: Any = content["rates"] if known and isinstance(content["rates"], list) else [None]
    if not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("score must be a table of version, machine and rates, which are tables of axes and a rate.")
    rates: dict[Case, float] = {}
    for entry in entries:
        axes = _axes({name: value for name, value in entry.items() if name != "rate"}, "score")
        _check_tables(False, [axes], [])
        rate = entry.get("rate")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
            raise UsageError("the rate of a score must be a number over 0.")
        rates[Case(**{name: values[0] for name, values in axes.items()})] = float(rate)
    if type(content["version"]) is not int:
        raise UsageError("version must be a whole number.")
    return Reference(content["version"], str(content["machine"]), rates)


KEYS = (*IN_SUITES, "include", "cases", "exclude", "score")
