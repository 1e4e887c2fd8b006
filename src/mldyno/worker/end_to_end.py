"""A training end to end, as a process or as ranks: its data set is fetched if need be, an epoch ends with a test."""

from __future__ import annotations

import os
import sys

from mldyno import plugins
from mldyno.datasets import prepare
from mldyno.messages import TrainEndToEnd
from mldyno.worker.checks import check_ranks
from mldyno.worker.follow import end_at_once, end_with
from mldyno.worker.session import open_case


def train(wish: TrainEndToEnd) -> int:
    """Train a case for so many epochs; gives the exit code, 1 where nothing was learned."""
    try:
        return _train(wish)
    except Exception as error:
        if wish.case.in_ranks:
            end_with(wish.case.framework, error)
        raise


def _train(wish: TrainEndToEnd) -> int:
    data, case, framework = wish.data, wish.case, plugins.framework(wish.case.framework)
    os.environ |= framework.environment(case)
    prepare(data.name, data.source, data.folder, lambda what, done, total: None)
    framework.start()
    team = framework.team() if case.in_ranks else None
    program = open_case(case, data, team=team).program
    first = program.losses()
    for _ in range(wish.epochs):
        program.run_phase("epoch")
    last = program.losses()
    check_ranks(program, thorough=False)
    if not first or not last or not all(0 <= last[name] < value for name, value in first.items()):
        sys.stderr.write(f"nothing was learned: {first} at the start, {last} at the end\n")
        return 1
    program.end()
    if team is not None:
        team.leave()
        end_at_once(0)
    return 0
