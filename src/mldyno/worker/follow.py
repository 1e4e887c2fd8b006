"""Processes that answer no commands: a rank that follows the leader, and a training from end to end."""

from __future__ import annotations

import os
import sys

from mldyno import messages, plugins, rendezvous, sources
from mldyno.datasets import prepare
from mldyno.messages import OpenCase, TrainEndToEnd
from mldyno.worker.checks import check_ranks, check_tree, failure
from mldyno.worker.ranks import obey
from mldyno.worker.session import open_case


def follow(framework_name: str) -> None:
    """Carry out the leader's orders until it ends. An error is written to standard error, and ends this process."""
    framework = plugins.framework(framework_name)
    try:
        framework.start()
        team = framework.team()
        command, _ = messages.decode_command(team.share(""))
        assert isinstance(command, OpenCase)
        if command.source is not None:
            sources.register(command.source)
        obey(open_case(command.case, command.data, team=team).program, team)
        check_tree(command.case)
        sys.stderr.write(f"\n{rendezvous.DONE}\n")
        _end_at_once(0)
    except BaseException as error:
        _end_with(framework_name, error)


def train(wish: TrainEndToEnd) -> int:
    """Train a case for some epochs, each of which ends with a test; return the exit code, 1 where nothing was learned.

    The data set is fetched first, where it is missing.
    """
    try:
        return _train(wish)
    except Exception as error:
        if wish.case.in_ranks:
            _end_with(wish.case.framework, error)
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
        _end_at_once(0)
    return 0


def _end_with(framework_name: str, error: BaseException) -> None:
    """Write what ended this rank where the parent looks for it, and end."""
    sys.stderr.write(rendezvous.failure_line(os.environ.get("RANK", ""), *failure(framework_name, error)))
    _end_at_once(1)


def _end_at_once(code: int) -> None:
    """End without cleaning up: threads of gloo may outlive their group, and abort an interpreter that cleans up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
