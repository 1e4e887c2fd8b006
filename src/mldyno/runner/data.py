"""The data sets that a plan's cases read from disk: where they lie, and that they are there before it begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mldyno import datasets, plugins
from mldyno.plan import Plan
from mldyno.records import Case

Source = dict[str, str]


def folder() -> Path:
    """Where data sets are kept: MLDYNO_DATA, or the user's cache folder."""
    named = os.environ.get("MLDYNO_DATA")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("mldyno")) / "data"


def name_of(case: Case) -> str | None:
    """The data set that a case reads; None where it reads none."""
    if case.placement != "loader" or case.framework not in plugins.names("frameworks"):
        return None
    if plugins.framework(case.framework).clock is not None:  # the fake framework reads nothing
        return None
    return plugins.workload(case.workload).data


def prepare(plan: Plan, progress: Callable[[str, int, int | None], None]) -> dict[str, Source]:
    """Fetch or make what the plan needs; gives for each data set its name, source and folder."""
    found: dict[str, Source] = {}
    for name in dict.fromkeys(name_of(case) for case in plan.cases):
        if name is not None:
            source = datasets.prepare(name, plan.data, folder(), progress)
            found[name] = {"name": name, "source": source, "folder": str(folder())}
    return found


def of(case: Case, sources: dict[str, Source]) -> Source | None:
    """What a worker needs to read the case's data set."""
    name = name_of(case)
    return None if name is None else sources[name]
