"""A rank that follows the leader: does what is passed on to it, and reads and tells nothing itself."""

from __future__ import annotations

import os
import sys

from mldyno import messages, plugins, rendezvous, sources
from mldyno.frameworks import Program, Steps, Team
from mldyno.messages import OpenCase
from mldyno.meters.memory import peak_resident
from mldyno.timing import clock
from mldyno.worker.checks import check_tree, failure
from mldyno.worker.ranks import ABLATIONS, END, ORDERS, PEAK, RANK_FLAW, RUN, RUN_PHASE
from mldyno.worker.session import open_case


def follow(framework_name: str) -> None:
    """Do what the leader passes on, until it ends; an error is said on standard error, and ends this process."""
    framework = plugins.framework(framework_name)
    try:
        framework.start()
        team = framework.team()
        command, _ = messages.decode_command(team.share(""))
        assert isinstance(command, OpenCase)
        if command.source is not None:
            sources.register(command.source)
        _obey(open_case(command.case, command.data, team=team).program, team)
        check_tree(command.case)
        sys.stderr.write(f"\n{rendezvous.DONE}\n")
        end_at_once(0)
    except BaseException as error:
        end_with(framework_name, error)


def end_with(framework_name: str, error: BaseException) -> None:
    """Say what ended this rank where the parent looks for it, and end at once."""
    sys.stderr.write(rendezvous.failure_line(os.environ.get("RANK", ""), *failure(framework_name, error)))
    end_at_once(1)


def end_at_once(code: int) -> None:
    """End a rank: threads of gloo may outlive the group, and abort an interpreter that takes its time to end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _obey(program: Program, team: Team) -> None:
    ablations, phases = [*program.ablations.values()], [*program.phases]
    while True:
        order, argument = team.broadcast(0, 0)
        began = clock.now()
        done: Steps = program
        if order == END:
            program.end()
            team.leave()
            return
        if order == PEAK:
            team.gather(float(peak_resident() or 0))
            continue
        if order == RUN:
            program.run(argument)
        elif order == RUN_PHASE:
            program.run_phase(phases[argument])
        elif order == RANK_FLAW:
            program.rank_flaw(bool(argument))
        elif order >= ABLATIONS:
            done = ablations[order - ABLATIONS]
            done.run(argument)
        else:
            getattr(program, ORDERS[order])()
        done.synchronize()
        team.gather((clock.now() - began) / 1e9)
