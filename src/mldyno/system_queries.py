"""What the system says through its tools and its files: one way to ask, within limits of time and length.

Nothing here raises. A tool that is missing, not allowed, fails, hangs or does not stop talking says
nothing, and costs no more than its time. Standard library only: the worker asks too.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TOOL_TIMEOUT_S = 5.0  # for a tool to answer
LONGEST_ANSWER_B = 4 << 20  # of a tool, or a file: the longest that is asked for has some KiB
KILL_TIMEOUT_S = 1.0  # for a tool that was killed to be gone; one that hangs in its driver is left behind
RUSAGE_VERSION, RUSAGE_BYTES, PHYS_FOOTPRINT = 2, 1024, 72  # of macOS: its place behind a UUID and seven numbers
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a tool said, without the space around it, and its exit code; None where it did not come to its end."""

    said: str = ""
    code: int | None = None


def ask(*command: str, timeout_s: float | None = None) -> str:
    """What a tool says that ends well; empty where it does not. It has `timeout_s` to do so."""
    answer = hear(*command, timeout_s=timeout_s)
    return answer.said if answer.code == 0 else ""


def hear(*command: str, timeout_s: float | None = None) -> Answer:
    """What a tool says on its standard output, whether it ends well or not."""
    if shutil.which(command[0]) is None:
        return Answer()
    ends = time.monotonic() + (TOOL_TIMEOUT_S if timeout_s is None else timeout_s)
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            said = _heard(process, ends)
            if said is not None:
                code = process.wait(max(0.0, ends - time.monotonic()))
                return Answer(said.decode(errors="replace").strip(), code)
        finally:
            _end(process)
    return Answer()


def _heard(process: subprocess.Popen[bytes], ends: float) -> bytes | None:
    """All that a process says, if it comes to an end before that time; None otherwise."""
    assert process.stdout is not None
    said = bytearray()
    with selectors.DefaultSelector() as pipe:
        pipe.register(process.stdout, selectors.EVENT_READ)
        while pipe.select(max(0.0, ends - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return bytes(said)
            said += chunk
            if len(said) > LONGEST_ANSWER_B:
                return None
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """See that a process is gone; without a word where it can't be killed."""
    assert process.stdout is not None
    with suppress(OSError, subprocess.SubprocessError):
        if process.poll() is None:
            process.kill()
            process.wait(KILL_TIMEOUT_S)
    process.stdout.close()


def read(path: Path | str) -> str:
    """A file of the system's, without the space around it; empty where it is missing or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST_ANSWER_B).strip()
    except (OSError, ValueError):
        return ""


def kernel_number(name: str) -> int | None:
    """A number that macOS's kernel keeps under a name, read at once; None elsewhere, and where it keeps none."""
    if sys.platform != "darwin":
        return None
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
            return value.value
    return None


def footprint(pid: int) -> int | None:
    """Memory in B that macOS charges a process for, compressed and given to the GPU included; None elsewhere."""
    if sys.platform != "darwin":
        return None
    usage = (ctypes.c_uint8 * RUSAGE_BYTES)()
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).proc_pid_rusage(pid, RUSAGE_VERSION, ctypes.byref(usage)) == 0:
            return int.from_bytes(bytes(usage[PHYS_FOOTPRINT : PHYS_FOOTPRINT + 8]), sys.byteorder)
    return None


def attempt(find: Callable[[], T], otherwise: T) -> T:
    """What a function finds; something else where it fails in whatever way."""
    try:
        return find()
    except Exception:
        return otherwise
