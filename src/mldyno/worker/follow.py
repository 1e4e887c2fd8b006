"""A rank other than the first: does what rank 0 passes on to it, and reads and tells nothing itself."""

from __future__ import annotations

import json
import os
import sys

from mldyno import messages, plugins
from mldyno.frameworks import Program, Steps, Team
from mldyno.messages import OpenCase
from mldyno.meters.memory import peak_resident
from mldyno.timing import clock
from mldyno.worker.checks import failure
from mldyno.worker.ranks import BESIDE, END, ORDERS, PEAK, RUN, RUN_PHASE
from mldyno.worker.session import open_case
from mldyno.worker.start import FAILED


def follow(framework_name: str) -> None:
    """Do what rank 0 passes on, until it ends; an error is said on standard error, and ends this process."""
    framework = plugins.framework(framework_name)
    try:
        framework.start()
        team = framework.team()
        command, _ = messages.decode_command(team.share(""))
        assert isinstance(command, OpenCase)
        _obey(open_case(command.case, command.data, team=team).program, team)
    except BaseException as error:
        status, reason = failure(framework_name, error)
        sys.stderr.write(f"\n{FAILED}{json.dumps([os.environ.get('RANK', ''), status, reason])}\n")
        sys.stderr.flush()
        os._exit(1)


def _obey(program: Program, team: Team) -> None:
    beside, phases = [*program.beside.values()], [*program.phases]
    while True:
        order, argument = team.pass_on(0, 0)
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
        elif order >= BESIDE:
            done = beside[order - BESIDE]
            done.run(argument)
        else:
            getattr(program, ORDERS[order])()
        done.synchronize()
        team.gather((clock.now() - began) / 1e9)
