"""Whole processes: your command, or a published training, from start to end.

A step is one run of the command. As in every case the first step is separate: it finds empty caches.
"""

from __future__ import annotations

import platform
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from mldyno.frameworks import Framework, Program, Unsupported
from mldyno.masking import masked
from mldyno.records import Case, Device
from mldyno.rendezvous import failure_in

if TYPE_CHECKING:
    from mldyno.datasets import Opened

STDERR_TAIL_B = 16384  # the end of standard error that is searched for the reason of a failure
LONGEST_REASON = 300  # characters


class CommandFailed(Exception):
    """The command ended with an exit code other than 0."""


class CommandProgram(Program):
    """A command, run over and over."""

    facts: Mapping[str, Any] = {"end_to_end": True}

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def run(self, steps: int) -> None:
        """Run the command that many times in sequence; discard its output."""
        for _ in range(steps):
            with tempfile.TemporaryFile() as stderr:
                code = subprocess.call(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
                if code:
                    ending = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
                    raise CommandFailed(f"the command {ending}{_last_line(stderr)}")

    def synchronize(self) -> None:
        """Do nothing: the processes have ended."""

    def losses(self) -> Mapping[str, float] | None:
        """Return nothing: the exit code shows that a command did its work."""

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Compare nothing."""

    def actual_device(self) -> str:
        """Return the CPU, on which the process starts."""
        return "cpu"


def _last_line(stderr: BinaryIO) -> str:
    stderr.seek(max(0, stderr.seek(0, 2) - STDERR_TAIL_B))
    lines = stderr.read().decode(errors="replace").strip().splitlines()
    failure = failure_in(lines)
    if failure is not None:
        return f": rank {failure.rank}: {masked(failure.reason) or f'ended by signal {failure.signal}'}"
    return f": {masked(lines[-1][:LONGEST_REASON])}" if lines else ""


class Command(Framework):
    """Commands in the role of a framework."""

    def start(self) -> None:
        """Import nothing."""

    def versions(self) -> dict[str, str]:
        return {platform.system(): platform.release()}

    def limit_threads(self, threads: int) -> None:
        """Do nothing: most frameworks in a command obey OMP_NUM_THREADS."""

    def devices(self) -> list[Device]:
        """Return the CPU, on which every process starts."""
        return [Device("cpu", "command")]

    def check(self, case: Case, build: Callable[..., Any] | None, data: Opened | None) -> None:
        """Refuse settings that a command chooses itself."""
        if build is None:
            raise Unsupported(f"{case.workload} has no end-to-end run; time your command: mldyno run -- COMMAND")
        if case.device != "cpu":
            raise Unsupported(f"a command chooses its device itself: '{case.device}' can't be asked of it")
        if case.precision not in (None, "fp32") or case.compile:
            raise Unsupported("a command chooses precision and compiler itself: neither can be asked of it")
        if case.nodes > 1:
            raise Unsupported("a whole training runs on one machine")

    def build_program(self, case: Case, build: Callable[..., Any], data: Opened | None) -> CommandProgram:
        return CommandProgram(build())

    def explain(self, error: BaseException) -> tuple[str, str]:
        if isinstance(error, CommandFailed):
            return "failed", str(error)
        if isinstance(error, FileNotFoundError | PermissionError):
            return "failed", f"the command can't be started: {error.strerror}: {error.filename}"
        return super().explain(error)


FRAMEWORK = Command()
