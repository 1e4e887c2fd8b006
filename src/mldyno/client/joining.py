"""A node that joins the jobs of another: it starts ranks again and again, as long as the first node has jobs."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping

from mldyno import plugins
from mldyno.axes import Case
from mldyno.client.worker_process import SCRIPT, ProcessTree
from mldyno.rendezvous import DONE, INTERFACE, JOB, RANKED, Rendezvous, failure_in, own_address

LOOK_EVERY_S = 0.2
Tell = Callable[[str], None]


def meet(meeting: Rendezvous) -> None:
    """Let launchers that are started from now on go there, by the interface that leads to it."""
    import psutil

    own = own_address(meeting)
    names = [name for name, addresses in psutil.net_if_addrs().items() if own in [each.address for each in addresses]]
    os.environ |= meeting.environment | ({INTERFACE: names[0]} if names and INTERFACE not in os.environ else {})


def join(meeting: Rendezvous, case: Case, wait: float, python: str, tell: Tell) -> int:
    """Take part in job after job, with the ranks of a case, until none begins for `wait` s; gives how many there were.

    `case` has the ranks of all nodes, and how many nodes there are.
    """
    meet(meeting)
    framework = plugins.framework(case.framework)
    command = [python, *framework.launcher(case), SCRIPT]
    environment = {**os.environ, **framework.environment(case), RANKED: case.framework, JOB: secrets.token_hex(8)}
    jobs, until = 0, time.monotonic() + wait
    tell(f"waiting for {meeting.address}")
    while time.monotonic() < until:
        begun, said = _take_part(command, environment, until)
        if not begun:
            time.sleep(LOOK_EVERY_S)
            continue
        jobs, until = jobs + 1, time.monotonic() + wait
        failure = failure_in(said.splitlines())
        words = (
            "done" if DONE in said else "ended early" if failure is None else f"rank {failure.rank}: {failure.reason}"
        )
        tell(f"job {jobs}: {words}")
    return jobs


def _take_part(command: list[str], environment: Mapping[str, str], until: float) -> tuple[bool, str]:
    """Whether ranks were started before that time, and what they and their launcher said until they ended."""
    with tempfile.TemporaryFile("w+", errors="replace") as words:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=words, start_new_session=True)  # fmt: skip
        tree, begun = ProcessTree(process.pid, environment[JOB]), False
        try:
            while process.poll() is None and (begun or time.monotonic() < until):
                begun = begun or tree.has_children()
                time.sleep(LOOK_EVERY_S)
        finally:
            tree.kill()
            process.wait()
        words.seek(0)
        return begun, words.read()
