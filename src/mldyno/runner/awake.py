"""Keeps the machine awake while a run lasts: one that goes to sleep in between spoils what it measures.

A tool of the system does it, for as long as this process lives, however that ends. Where there is none, or it may not,
the run goes on without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SYSTEMD = "/run/systemd/system"  # is there where systemd runs the system
END_TIMEOUT_S = 1.0


def _command() -> list[str]:
    """What keeps this system awake until this process is gone; nothing where no tool does."""
    own = str(os.getpid())
    if sys.platform == "darwin":
        return ["caffeinate", "-i", "-m", "-w", own]
    if sys.platform == "linux" and os.path.isdir(SYSTEMD):
        inhibit = ["systemd-inhibit", "--what=sleep:idle", "--who=mldyno", "--why=a measurement runs", "--mode=block"]
        return [*inhibit, "tail", "-f", f"--pid={own}", "/dev/null"]
    return []


@contextmanager
def awake() -> Iterator[None]:
    """The machine stays awake meanwhile, where that can be asked for."""
    command, helper = _command(), None
    if command and shutil.which(command[0]):
        with suppress(OSError):
            quiet = subprocess.DEVNULL
            helper = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield
    finally:
        if helper is not None:
            with suppress(OSError, subprocess.SubprocessError):
                helper.terminate()
                helper.wait(END_TIMEOUT_S)
