"""What the system's own tools say, within limits of time and length.

A tool that is missing, not allowed, fails, hangs or does not stop talking says nothing, and costs no
more than its time. Standard library only: the worker asks too.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from contextlib import suppress

PATIENCE = 5.0  # s for a tool to answer
MOST = 4 << 20  # B that an answer may have: the longest that is asked for has some KiB
PARTING = 1.0  # s for a tool that was killed to be gone; one that hangs in its driver is left behind


def ask(*command: str, patience: float | None = None) -> str:
    """What a tool prints, without the space around it; it has `patience` s to do so."""
    if shutil.which(command[0]) is None:
        return ""
    ends = time.monotonic() + (PATIENCE if patience is None else patience)
    said = None
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            said = _heard(process, ends)
        finally:
            _end(process)
    return "" if said is None else said.decode(errors="replace").strip()


def _heard(process: subprocess.Popen[bytes], ends: float) -> bytes | None:
    """All that a process says, if it ends well before that time; None otherwise."""
    assert process.stdout is not None
    said = bytearray()
    with selectors.DefaultSelector() as pipe:
        pipe.register(process.stdout, selectors.EVENT_READ)
        while pipe.select(max(0.0, ends - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return bytes(said) if process.wait(max(0.0, ends - time.monotonic())) == 0 else None
            said += piece
            if len(said) > MOST:
                return None
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """See that a process is gone; without a word where it can't be killed."""
    assert process.stdout is not None
    with suppress(OSError, subprocess.SubprocessError):
        if process.poll() is None:
            process.kill()
            process.wait(PARTING)
    process.stdout.close()
