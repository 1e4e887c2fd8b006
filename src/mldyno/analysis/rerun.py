"""The commands that measure some cases once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mldyno.analysis.outcomes import Outcome
from mldyno.axes import AXES, Axis
from mldyno.records import Case

MOST_VALUES = 8  # of an axis that still fit on a line


def rerun_commands(outcomes: Sequence[Outcome]) -> list[str]:
    """The suite that they come from, or a command for each workload."""
    by_workload: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_workload.setdefault(outcome.case.workload, []).append(outcome)
    return list(dict.fromkeys(map(rerun_command, by_workload.values())))


def rerun_command(outcomes: Sequence[Outcome]) -> str:
    """The suite that they come from, or the workloads and axes that have all of them among their products."""
    suites = {outcome.records[0].run.suite for outcome in outcomes}
    if len(suites) == 1 and None not in suites:
        suite = str(suites.pop())
        return "mldyno quick" if suite == "quick" else f"mldyno run {suite}"
    return command_for([outcome.case for outcome in outcomes])


def command_for(cases: Sequence[Case], elsewhere: bool = False) -> str:
    """The command that measures these cases among others; what it would do anyway is not said.

    Elsewhere than where they come from, an accelerator has another name, so that all devices are asked for.
    """
    if all(case.framework == "command" and case.mode is None for case in cases):
        return f"mldyno run -- {cases[0].workload.replace(':', '/')}"  # your command
    workloads = list(dict.fromkeys(case.workload for case in cases))
    words = ["mldyno run", *(workloads if len(workloads) <= MOST_VALUES else [*workloads[:MOST_VALUES], "…"])]
    for axis in AXES[1:]:
        if elsewhere and axis.name == "device":
            words += ["--device all"] if any(case.device != "cpu" for case in cases) else []
        else:
            words += _option(axis, dict.fromkeys(getattr(case, axis.name) for case in cases))
    return " ".join(words)


def _option(axis: Axis, values: dict[Any, None]) -> list[str]:
    stated = [value for value in values if value is not None]
    stated.sort(key=lambda value: value if isinstance(value, int) else 0)
    if not stated or set(stated) == set(axis.planned) or len(stated) > MOST_VALUES:
        return []
    return [f"--{axis.name} {','.join(map(axis.show, stated))}"]
