"""A node that joins the jobs of another: it starts ranks again and again, while the first node has jobs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping

from mldyno import plugins, rendezvous
from mldyno.axes import Case
from mldyno.errors import MldynoError
from mldyno.rendezvous import INTERFACE, JOB, LOOK_EVERY_S, RANK_DONE, RANKED, Rendezvous
from mldyno.units import show_seconds
from mldyno.worker.client import SCRIPT
from mldyno.worker.process_tree import ProcessTree, new_mark
from mldyno.worker.start import launch_words

Tell = Callable[[str], None]


def meet(meeting: Rendezvous) -> None:
    """Point launchers that are started from now on to the rendezvous, by the interface that leads to it."""
    import psutil

    if meeting.first:
        rendezvous.listen_at(meeting).close()  # an address that is not ours is refused now
    own = rendezvous.own_address(meeting)
    names = [name for name, addresses in psutil.net_if_addrs().items() if own in [each.address for each in addresses]]
    os.environ |= meeting.environment | ({INTERFACE: names[0]} if names and INTERFACE not in os.environ else {})


def join(meeting: Rendezvous, case: Case, wait: float, python: str, tell: Tell) -> int:
    """Take part in job after job with the ranks of a case, until none begins for `wait` s; return how many there were.

    `case` has the ranks of all nodes, and the number of nodes. Raises where this node may not join, or no job began.
    """
    meet(meeting)
    framework, ranks = plugins.framework(case.framework), case.ranks or 1
    command = [python, SCRIPT, *launch_words(ranks, case.nodes)]
    environment = {**os.environ, **framework.environment(case), RANKED: case.framework, JOB: new_mark()}
    jobs, until, waiting = 0, time.monotonic() + wait, False
    while (left := until - time.monotonic()) > 0:
        place = rendezvous.enter(meeting, ranks, case.nodes, left)
        if place is None:
            if not waiting:
                tell(f"waiting for {meeting.address}")
            waiting = True
            time.sleep(LOOK_EVERY_S)
            continue
        output = _take_part(command, environment | place)
        jobs, until = jobs + 1, time.monotonic() + wait
        failure = rendezvous.failure_in(output.splitlines())
        outcome = "ended early" if failure is None else f"rank {failure.rank}: {failure.reason}"
        tell(f"job {jobs}: {'done' if RANK_DONE in output else outcome}")
    if not jobs:
        waited = show_seconds(wait)
        raise MldynoError(f"no job began at {meeting.address} within {waited}; is `mldyno run --nodes` running there?")
    return jobs


def _take_part(command: list[str], environment: Mapping[str, str]) -> str:
    """Run ranks until they end; return what they and their launcher wrote."""
    with tempfile.TemporaryFile("w+", errors="replace") as words:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=words, start_new_session=True)  # fmt: skip
        tree = ProcessTree(process.pid, environment[JOB])
        try:
            while process.poll() is None:
                tree.resident()  # notes what there is
                time.sleep(LOOK_EVERY_S)
        finally:
            tree.kill()
            process.wait()
        words.seek(0)
        return words.read()
