"""Query the system's tools and files, within limits of time and length.

Nothing here raises. A tool that is missing, not allowed, fails, hangs or prints without end gives an empty answer, and
costs no more than its timeout. Standard library only: the worker uses it too.
"""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TOOL_TIMEOUT_S = 5.0  # for a tool to answer
# Of a tool, or a file: the longest that is asked for has some KiB. Linux refuses to read 4 MiB at once from /proc/sys.
LONGEST_ANSWER_B = 1 << 20
LOADER_CACHE = "/etc/ld.so.cache"  # of Linux: the paths of all libraries that its loader finds
APPLES_TOOLS = "/usr/bin"  # folder of macOS's compilers, make and git, which may be stubs
KILL_TIMEOUT_S = 1.0  # for a tool that was killed to be gone; one that hangs in its driver is left behind
RUSAGE_VERSION, RUSAGE_BYTES, PHYS_FOOTPRINT = 2, 1024, 72  # of macOS: its place behind a UUID and seven numbers
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """Output of a tool, stripped, and its exit code; None if it did not finish."""

    output: str = ""
    code: int | None = None


def ask(*command: str, timeout_s: float | None = None) -> str:
    """Return the output of a tool that exits with code 0 within `timeout_s`; else an empty text."""
    answer = run(*command, timeout_s=timeout_s)
    return answer.output if answer.code == 0 else ""


def run(*command: str, timeout_s: float | None = None) -> Answer:
    """Return the standard output and exit code of a tool."""
    if shutil.which(command[0]) is None:
        return Answer()
    ends = time.monotonic() + (TOOL_TIMEOUT_S if timeout_s is None else timeout_s)
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            output = _output(process, ends)
            if output is not None:
                code = process.wait(max(0.0, ends - time.monotonic()))
                return Answer(output.decode(errors="replace").strip(), code)
        finally:
            _end(process)
    return Answer()


def shared_library(name: str) -> str | None:
    """Return the file name of a shared library of Linux, which its loader finds; None where there is none.

    `ctypes.util.find_library` starts ldconfig, a compiler and a linker for that, and reading starts nothing.
    """
    pattern = re.compile(rb"(/[^\0]*/lib" + re.escape(name).encode() + rb"\.so[.0-9]*)\0")
    own = _elf_kind(sys.executable)
    paths = [os.fsdecode(path) for path in pattern.findall(_bytes(LOADER_CACHE))]
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        with suppress(OSError):
            paths += [os.path.join(folder, file) for file in sorted(os.listdir(folder))
                      if pattern.fullmatch(f"/x/{file}\0".encode(errors="replace"))]  # fmt: skip
    return next((os.path.basename(path) for path in paths if own and _elf_kind(path) == own), None)


def _elf_kind(path: str) -> tuple[bytes, bytes] | None:
    """Return the width and the processor that a program or a library is made for."""
    start = _bytes(path, 20)
    return (start[4:6], start[18:20]) if start[:4] == b"\x7fELF" and len(start) == 20 else None


def _bytes(path: str, most: int = LONGEST_ANSWER_B) -> bytes:
    with suppress(OSError):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read(most)
    return b""


def is_stub(tool: str) -> bool:
    """Return whether a developer's tool only opens a dialog: Apple's on a Mac without the command line tools."""
    apples = sys.platform == "darwin" and os.path.dirname(shutil.which(tool) or "") == APPLES_TOOLS
    return apples and run("xcode-select", "-p").code != 0


def _output(process: subprocess.Popen[bytes], ends: float) -> bytes | None:
    """Return all output of a process that ends in time; else None."""
    assert process.stdout is not None
    output = bytearray()
    with selectors.DefaultSelector() as pipe:
        pipe.register(process.stdout, selectors.EVENT_READ)
        while pipe.select(max(0.0, ends - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > LONGEST_ANSWER_B:
                return None
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not waited for, with all that it has started; ignore one that can't be killed."""
    assert process.stdout is not None
    with suppress(OSError, subprocess.SubprocessError):
        if process.returncode is None:  # so its number is still that of its session
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(KILL_TIMEOUT_S)
    process.stdout.close()


def read(path: Path | str) -> str:
    """Return a file of the system, stripped; an empty text if it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST_ANSWER_B).strip()
    except (OSError, ValueError):
        return ""


def kernel_number(name: str) -> int | None:
    """Return a number of macOS's kernel by its name; None elsewhere, and for unknown names."""
    if sys.platform != "darwin":
        return None
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
            return value.value
    return None


def footprint(pid: int) -> int | None:
    """Return the memory in B that macOS charges a process for, with compressed and GPU memory; None elsewhere."""
    if sys.platform != "darwin":
        return None
    usage = (ctypes.c_uint8 * RUSAGE_BYTES)()
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None).proc_pid_rusage(pid, RUSAGE_VERSION, ctypes.byref(usage)) == 0:
            return int.from_bytes(bytes(usage[PHYS_FOOTPRINT : PHYS_FOOTPRINT + 8]), sys.byteorder)
    return None


def usage(field: str, children: bool = False) -> int | None:
    """Return a field of `getrusage` for this process, or for its ended children; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    return int(getattr(resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF), field))


def attempt(find: Callable[[], T], otherwise: T) -> T:
    """Return the result of a function, or `otherwise` if it raises anything."""
    try:
        return find()
    except Exception:
        return otherwise
