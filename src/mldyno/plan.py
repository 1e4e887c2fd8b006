"""Suites and flags become a Plan: every case, expanded before anything runs. Pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mldyno import plugins, suites
from mldyno.errors import UsageError, unknown
from mldyno.records import AXIS, BIGGEST, Case
from mldyno.units import parse_duration, parse_fraction

_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "framework": ("torch",), "device": ("cpu",), "mode": ("train", "infer"), "precision": ("fp32",),
    "batch": (None,), "seq": (None,), "placement": ("device",), "workers": (1,), "compile": (False,),
    "threads": (None,),
}  # fmt: skip

DATA = ("auto", "real", "synthetic")


@dataclass(frozen=True)
class Plan:
    """The cases with how well and how long each is measured; times in s."""

    cases: tuple[Case, ...]
    suite: str | None = None
    target: float = 0.02
    budget: float = 20.0
    repeats: int = 3
    steps: int | None = None
    timeout: float = 900.0
    data: str = "auto"
    """Where placement `loader` takes its data set from: real, synthetic, or real where it can be had."""
    command: tuple[str, ...] = ()
    """The words of a command that is timed as a whole."""
    by: str | None = None
    """An axis along which cases are compared in any case; those that do the same work always are."""

    @property
    def key(self) -> str:
        """The same for the same plan: how an unfinished run is found again."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def text(self) -> str:
        """The plan as JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def from_text(text: str) -> Plan:
    """The plan that `text` gave."""
    content = json.loads(text)
    command = tuple(content.get("command", ()))
    return Plan(**{**content, "cases": tuple(Case(**case) for case in content["cases"]), "command": command})


def for_command(words: Sequence[str], settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan that times a command of the user's, whole: every run is a process of its own already."""
    case = Case(
        name_of(shlex.join(words)), framework="command", mode=None, precision=None, placement=None, workers=None
    )
    given = {key: value for key, value in (settings or {}).items() if value is not None}
    return _checked(Plan((case,), command=tuple(words), **{"repeats": 1, **given}))


def name_of(command: str) -> str:
    """A command as the workload of a case: with a colon where paths have a slash, which ids need."""
    return command.replace("/", ":")


def expand(
    targets: Sequence[str], axes: Mapping[str, Sequence[str]], settings: Mapping[str, Any] | None = None
) -> Plan:
    """The plan for workloads and suites on the axes given; a flag overrides what a suite says."""
    if not targets:
        raise UsageError("name what to run: a workload or a suite, for example: mldyno run mlp")
    chosen = {name: tuple(AXIS[name].parse(v) for v in values) for name, values in axes.items() if values}
    cases: list[Case] = []
    kept: dict[str, Any] = {}
    suite = None
    for target in targets:
        if target in suites.names() or target.endswith(".toml"):
            content = suites.read(target)
            suite = Path(target).stem
            kept |= _suite_settings(content, suite)
            for table in content["cases"]:
                cases += _cases({**_table_axes(table, suite), **chosen})
        elif target in plugins.names("workloads"):
            cases += _cases({"workload": (target,), **chosen})
        else:
            raise unknown("workload or suite", target, [*plugins.names("workloads"), *suites.names()])
    given = {key: value for key, value in (settings or {}).items() if value is not None}
    return _checked(Plan(tuple(dict.fromkeys(cases)), suite=suite, **{**kept, **given}))


def _checked(plan: Plan) -> Plan:
    """The plan, if its settings make sense."""
    if plan.data not in DATA:
        raise unknown("data", plan.data, DATA)
    if not 0 < plan.repeats <= 1000:
        raise UsageError("--repeats must lie between 1 and 1000.")
    if plan.steps is not None and not 0 < plan.steps < BIGGEST:
        raise UsageError("--steps must be a whole number over 0.")
    return plan


def _table_axes(table: Mapping[str, Any], suite: str) -> dict[str, tuple[Any, ...]]:
    """The axes of one [[cases]] table of a suite."""
    axes: dict[str, tuple[Any, ...]] = {}
    for key, value in table.items():
        if key not in AXIS:
            raise unknown(f"key in [[cases]] of suite {suite}", key, [*AXIS])
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str | int) for one in values):
            raise UsageError(f"suite {suite}: {key} must be a value or a list of values.")
        axes[AXIS[key].name] = tuple(
            one if isinstance(one, bool) and key == "compile" else AXIS[key].parse(str(one)) for one in values
        )
    if "workload" not in axes:
        raise UsageError(f"suite {suite}: a [[cases]] table needs a workload.")
    return axes


def _suite_settings(content: Mapping[str, Any], suite: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, read in (("budget", parse_duration), ("target", parse_fraction)):
        if key in content:
            found[key] = read(str(content[key]))
    if "repeats" in content:
        if type(content["repeats"]) is not int:
            raise UsageError(f"suite {suite}: repeats must be a whole number.")
        found["repeats"] = content["repeats"]
    return found


def _cases(axes: Mapping[str, Iterable[Any]]) -> list[Case]:
    """All combinations of the axes' values, with the workload's own sizes where none are given."""
    values = {**_DEFAULTS, **axes}
    found = []
    for combination in itertools.product(*values.values()):
        case = Case(**dict(zip(values, combination, strict=True)))
        workload = plugins.workload(case.workload)
        if "framework" not in axes and case.framework not in workload.frameworks:
            case = replace(case, framework=workload.frameworks[0])
        plugins.check("frameworks", case.framework)
        if case.mode not in workload.modes:
            if "mode" in axes:
                raise UsageError(f"{workload.name} runs in mode {', '.join(workload.modes)} only.")
            continue
        found.append(
            replace(
                case,
                version=workload.version,
                batch=case.batch or workload.batch,
                seq=(case.seq or workload.seq) if workload.seq else None,
            )
        )
    return found
