"""What framework `command` runs: the user's own command, or a workload's training end to end, as a process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from mldyno import messages, plugins
from mldyno.frameworks import Unsupported
from mldyno.messages import DataSource, TrainEndToEnd
from mldyno.records import Case
from mldyno.worker import start
from mldyno.workloads import Workload

COLD = "cold"  # folder, beside the data sets, that an end-to-end run finds empty at its first time


def workload_of(case: Case, command: Sequence[str]) -> Workload:
    """The workload that a case names; a command is one by itself, whose step is a run of it."""
    if not command:
        return plugins.workload(case.workload)
    name = case.workload
    return Workload(name, name, version=1, item="run", batch=1, params=0, flops=lambda case: 0.0, build={})


def build(
    workload: Workload, case: Case, data: DataSource | None, command: Sequence[str]
) -> Callable[[], list[str]] | None:
    """What gives the words of the command; None where there is none for the workload."""
    if command:
        return lambda: list(command)
    end_to_end = workload.end_to_end
    if end_to_end is None:
        return None
    if data is None:
        raise Unsupported(f"{workload.name} reads a data set: it has placement loader only")
    folder = os.path.join(data.folder, COLD, workload.name)
    shutil.rmtree(folder, ignore_errors=True)
    trained = replace(case, workload=end_to_end.workload, framework="torch")
    line = messages.encode(TrainEndToEnd(trained, end_to_end.epochs, replace(data, folder=folder)), 0).decode()
    launched = start.launch_words(trained.ranks or 1, trained.nodes) if trained.in_ranks else []
    return lambda: [sys.executable, start.__file__, *launched, start.END_TO_END, line]
