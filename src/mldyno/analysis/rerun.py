"""The commands that measure some outcomes once more."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.analysis.outcomes import Outcome
from mldyno.records import AXES

USUAL = {"framework": {"torch"}, "device": {"cpu"}, "precision": {"fp32"}, "placement": {"device"}, "ranks": {1},
         "compile": {False}, "mode": {"train", "infer"}}  # fmt: skip
MANY = 8  # values of an axis that still fit on a line


def rerun_commands(outcomes: Sequence[Outcome]) -> list[str]:
    """The suite that they come from, or a command for each workload."""
    works: dict[str, list[Outcome]] = {}
    for one in outcomes:
        works.setdefault(one.case.workload, []).append(one)
    return list(dict.fromkeys(rerun_command(several) for several in works.values()))


def rerun_command(outcomes: Sequence[Outcome]) -> str:
    """The suite that they come from, or the workloads and axes that have all of them among their products."""
    suites = {one.records[0].run.suite for one in outcomes}
    if len(suites) == 1 and None not in suites:
        suite = str(suites.pop())
        return "mldyno quick" if suite == "quick" else f"mldyno run {suite}"
    if all(one.case.framework == "command" and one.case.mode is None for one in outcomes):
        return f"mldyno run -- {outcomes[0].case.workload.replace(':', '/')}"  # a command of the user's
    workloads = list(dict.fromkeys(one.case.workload for one in outcomes))
    words = ["mldyno run", *(workloads if len(workloads) <= MANY else [*workloads[:MANY], "…"])]
    for axis in AXES[1:]:
        values = list(dict.fromkeys(getattr(one.case, axis.name) for one in outcomes))
        stated = [value for value in values if value is not None]
        stated.sort(key=lambda value: value if isinstance(value, int) else 0)
        if stated and set(stated) != USUAL.get(axis.name) and len(stated) <= MANY:
            told = ("yes" if value is True else "no" if value is False else str(value) for value in stated)
            words.append(f"--{axis.name} {','.join(told)}")
    return " ".join(words)
