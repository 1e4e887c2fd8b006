"""Runs commands in this process, and hears by Python's audit hook what they start, connect to and load.

Import it only in a process that is made for it: a hook stays until its process ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from mldyno.cli import main
from mldyno.worker.client import SCRIPT

LONGEST_CPU_S = 5.0  # that a command may compute
LONGEST_WAIT_S = 120.0  # after which a command is held to hang, on however busy a machine
STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile",
          "os.system", "pty.spawn")  # fmt: skip
CONNECTS = ("socket.bind", "socket.connect", "socket.sendto", "urllib.Request", "http.client.connect",
            "sqlite3.enable_load_extension", "sqlite3.load_extension", "ctypes.dlopen",
            "pickle.find_class")  # fmt: skip
QUESTIONS = (  # that mldyno asks the system about this machine, on a Mac
    ("sysctl", "-n", "machdep.cpu.brand_string"),
    ("sysctl", "-n", "kern.hv_vmm_present"),
    ("pmset", "-g"),
)
OWN_LIBRARIES = ("", "None")  # the process itself, which psutil and ctypes ask


class TooLong(BaseException):
    """A command computes, or waits, longer than it may."""


class Prevented(OSError):
    """A worker is not started, since a file is only looked at."""


@dataclass
class Watch:
    """What is heard of one command; `folder` holds strange files, of which none may be run or loaded."""

    folder: str
    workers: bool
    """Whether mldyno may start workers of its own, as `--dry-run` does."""
    untouched: str
    """The folder that strange files name, from which nothing may be read; empty where they may name files."""
    faults: list[str]

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event that reading must not cause."""
        if event == "subprocess.Popen":
            words = tuple(map(str, arguments[1]))
            if words == (sys.executable, SCRIPT):
                if not self.workers:
                    raise Prevented(0, "not now")
            elif words not in QUESTIONS:
                self.faults.append(f"starts {words}")
        elif event in STARTS:
            if event not in ("os.fork", "os.posix_spawn") or not self.workers:
                self.faults.append(f"{event} {arguments}")
        elif event in CONNECTS:
            if event != "ctypes.dlopen" or str(arguments[0]) not in OWN_LIBRARIES:
                self.faults.append(f"{event} {arguments}")
        elif event == "exec":
            file = getattr(arguments[0], "co_filename", "")
            if str(file).startswith(self.folder):
                self.faults.append(f"runs code of {file}")
        elif event == "open" and self.untouched and self.untouched in str(arguments[0]):
            self.faults.append(f"opens {arguments[0]}")


_watches: list[Watch] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _watches:
        _watches[-1].hear(event, arguments)


sys.addaudithook(_hear)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


signal.signal(signal.SIGPROF, _too_long)
signal.signal(signal.SIGALRM, _too_long)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, LONGEST_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code, what it said, the CPU time in s that it took, and what is wrong with that."""

    code: int
    out: str
    err: str
    seconds: float
    faults: tuple[str, ...]


def run(
    words: tuple[str, ...], folder: Path, workers: bool = False, untouched: str = "", **environment: str
) -> Outcome:
    """Run a command of mldyno in this process, in a folder."""
    watch = Watch(str(folder), workers, untouched, [])
    out, err = io.StringIO(), io.StringIO()
    before = dict(os.environ)
    began, code = time.process_time(), -1
    with _in_folder(folder):
        _set(environment)
        _watches.append(watch)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _limited():
                main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        except TooLong:
            watch.faults.append("takes too long")
        except Exception as error:
            watch.faults.append(f"raises {error!r}")
        finally:
            _watches.pop()
            _set(before, only=True)
    seconds = time.process_time() - began
    if seconds > LONGEST_CPU_S and "takes too long" not in watch.faults:
        watch.faults.append(f"takes {seconds:.1f} s")
    said = err.getvalue()
    if "something went wrong inside" in said or "Traceback" in said + out.getvalue():
        watch.faults.append(f"says {said.strip()[-300:]}")
    if code not in (0, 1, 2, 3) and not watch.faults:
        watch.faults.append(f"ends with {code}")
    return Outcome(code, out.getvalue(), said, seconds, tuple(watch.faults))


def _set(environment: Mapping[str, str], only: bool = False) -> None:
    for name in set(os.environ) - set(environment) if only else ():
        del os.environ[name]
    os.environ.update(environment)


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
