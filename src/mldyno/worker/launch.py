"""Start the ranks of a job on this machine, and end all of them when one fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from mldyno import rendezvous
from mldyno.errors import MldynoError
from mldyno.worker.start import adopt_orphans, die_with_parent


def launch(ranks: int, nodes: int, words: Sequence[str]) -> int:
    """Start this node's share of the ranks with these arguments, wait for them, and return the exit code."""
    die_with_parent()
    adopt_orphans()
    try:
        return _watch(*_start(ranks, nodes, words))
    except (MldynoError, OSError) as error:
        sys.stderr.write(rendezvous.failure_line("0", "failed", str(error)))
        return 1


def _start(ranks: int, nodes: int, words: Sequence[str]) -> tuple[list[subprocess.Popen[bytes]], int]:
    """Start the processes of this node's ranks; return them and the number of the first one.

    Their store listens on a socket that is bound here: on the loopback, or at the address where the nodes meet.
    """
    store, shared = os.environ.get(rendezvous.STORE), None
    if store is None:
        meeting = rendezvous.from_environment() if nodes > 1 else None
        shared = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        shared.bind((meeting.host if meeting else rendezvous.LOOPBACK_ADDRESS, 0))
        host, port = shared.getsockname()
        store = f"{host}:{port}"
        if meeting is not None:
            rendezvous.receive(meeting, ranks, nodes, port)
        shared.listen()
    local = ranks // nodes
    first = int(os.environ.get(rendezvous.NODE, "0")) * local
    started = []
    for place in range(local):
        environment = os.environ | {
            "RANK": str(first + place), "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(place), "LOCAL_WORLD_SIZE": str(local), rendezvous.STORE: store,
        }  # fmt: skip
        inherited = []
        if shared is not None and place == 0:
            inherited = [shared.fileno()]
            environment[rendezvous.STORE_SOCKET] = str(shared.fileno())
        started.append(subprocess.Popen([sys.executable, *words], env=environment, pass_fds=inherited))
    if shared is not None:
        shared.close()
    return started, first


def _watch(processes: list[subprocess.Popen[bytes]], first: int) -> int:
    """Wait until all ranks have ended well, or one has failed: then kill the rest, and report which one it was."""
    ranks = {process.pid: rank for rank, process in enumerate(processes, first)}
    while ranks:
        pid, status = os.wait()  # orphans come to this process too
        rank, code = ranks.pop(pid, None), os.waitstatus_to_exitcode(status)
        if rank is not None and code:
            for remaining in ranks:
                os.kill(remaining, signal.SIGKILL)
            sys.stderr.write(rendezvous.end_line(rank, code))
            return 1
    return 0
