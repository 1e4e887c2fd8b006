"""Commands that measure cases again, safe to paste into a shell: made of checked values only, and quoted.

A record may come from a stranger. A command line from another machine is displayed as theirs, never offered to paste.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from mldyno import plugins, suites
from mldyno.analysis import grouped
from mldyno.analysis.outcomes import Outcome
from mldyno.axes import AXES, Axis
from mldyno.errors import MldynoError
from mldyno.records import Case

MOST_VALUES = 8  # of an axis that still fit on a line


def measured_here(outcome: Outcome) -> bool:
    """Return whether it was measured here, so that its command is the user's own."""
    return outcome.records[0].provenance == "measured" and not outcome.records[0].imported_from


def rerun_commands(outcomes: Sequence[Outcome]) -> list[str]:
    """Return for each run the suite that was measured, or a command for each workload, or the user's own commands."""
    groups = grouped(
        outcomes, lambda each: (each.records[0].run.id, "" if each.case.own_command else each.case.workload)
    )
    return [command for command in dict.fromkeys(map(rerun_command, groups.values())) if command]


def rerun_command(outcomes: Sequence[Outcome]) -> str:
    """Return the suite that they come from, or the workloads and axes that have all of them among their products."""
    if commands := [outcome for outcome in outcomes if outcome.case.own_command]:
        words = [word for line in dict.fromkeys(map(_own_words, commands)) if line for word in ("--", *line)]
        return shlex.join(["mldyno", "run", *words]) if words else ""
    names = {outcome.records[0].run.suite for outcome in outcomes}
    if len(names) == 1 and (suite := names.pop()) in suites.names():
        return "mldyno quick" if suite == "quick" else f"mldyno run {suite}"
    return command_for([outcome.case for outcome in outcomes])


def their_commands(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the command lines from other machines, for display; of older ones the names, with colons for slashes."""
    theirs = [outcome for outcome in outcomes if outcome.case.own_command and not measured_here(outcome)]
    records = {outcome.case.workload: outcome.records[0] for outcome in theirs}
    return [record.fact("command") or name for name, record in records.items() if not record.fact("private")]


def _own_words(outcome: Outcome) -> tuple[str, ...]:
    """Return the command that the user timed; nothing where its words are unknown, as in older records with a colon."""
    name, record = outcome.case.workload, outcome.records[0]
    line = record.fact("command")
    if not measured_here(outcome) or record.fact("private") or (line is None and ":" in name):
        return ()
    try:
        words = tuple(shlex.split(line or name))
    except ValueError:  # a quote that is not closed was never a command of ours
        return ()
    return () if "--" in words else words  # which parts commands by now


def command_for(cases: Sequence[Case], elsewhere: bool = False) -> str:
    """Return the command that measures these cases, perhaps with others; empty where a case has unknown values."""
    workloads = list(dict.fromkeys(case.workload for case in cases))
    if not set(workloads) <= set(plugins.names("workloads")):
        return ""
    words = ["mldyno", "run", *workloads[:MOST_VALUES], *(["…"] if len(workloads) > MOST_VALUES else [])]
    try:
        for axis in AXES[1:]:
            if elsewhere and axis.name == "device":
                words += ["--device", "all"] if any(case.device != "cpu" for case in cases) else []
            else:
                words += _option(axis, dict.fromkeys(getattr(case, axis.name) for case in cases))
    except MldynoError:
        return ""
    return " ".join(words)


def _option(axis: Axis, values: dict[Any, None]) -> list[str]:
    """Return the option that gives an axis these values, each parsed as if it was typed."""
    stated = [axis.parse(axis.show(value)) for value in values if value is not None]
    if axis.plugins and not set(stated) <= set(plugins.names(axis.plugins)):
        raise MldynoError(f"unknown {axis.plugins}")
    stated.sort(key=lambda value: value if isinstance(value, int) else 0)
    if not stated or set(stated) == set(axis.planned) or len(stated) > MOST_VALUES:
        return []
    return [axis.options[0], ",".join(map(axis.show, stated))]
