"""The first process of a lab: it reaps what ends, and ends the lab with whoever started it, even by kill -9.

python guard.py FOLDER OWNER    OWNER: the descriptor of a pidfd; standard input: ends when the lab is to end

It is process 1 of a namespace of processes, so that the kernel ends every other process of the lab with it. Standard
library only; it is started by its path.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Wait for the end of standard input or of the owner; then end all processes, and remove the lab's folder."""
    folder, owner = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the tests; the lab ends with them
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(owner, select.POLLIN)
    poll.poll()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
