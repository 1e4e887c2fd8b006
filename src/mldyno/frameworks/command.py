"""Whole processes: a command of yours, or a published training, from its start to its end.

A step is one run of the command. The first one is apart, as with every case: it finds nothing cached.
"""

from __future__ import annotations

import platform
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from mldyno.frameworks import Kernel, Trial, Unsupported

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case, Device, Fact

TAIL = 4096  # B of a command's last words that are looked at


class CommandFailed(Exception):
    """The command ended with an exit code other than 0."""


class CommandProgram:
    """A command, run over and over."""

    params: int | None = None
    phases: Mapping[str, int] = {}

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.facts: dict[str, Any] = {"end_to_end": True}

    def run(self, steps: int) -> None:
        """Run the command so many times, one after the other; what it prints goes nowhere."""
        for _ in range(steps):
            with tempfile.TemporaryFile() as said:
                code = subprocess.call(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
                if code:
                    raise CommandFailed(f"{_ending(code)}{_last_line(said)}")

    def synchronize(self) -> None:
        """A process that has ended is done."""

    def run_phase(self, name: str) -> None:
        """A command has no phases that could be seen."""

    def counts(self) -> dict[str, int]:
        """What a command does is its own affair."""
        return {}

    def device_time(self, steps: int) -> float | None:
        """A command has no events."""

    def steady_counters(self) -> tuple[int, ...]:
        """Nothing that is known to change."""
        return ()

    def first_losses(self) -> Mapping[str, float] | None:
        """A command proves what it does by its exit code."""

    def losses(self) -> Mapping[str, float] | None:
        """The same."""

    def check_step(self) -> None:
        """Nothing to learn."""

    def precision_flaw(self) -> str:
        """Its own affair."""
        return ""

    def disagreement(self) -> tuple[float, float] | None:
        """Nothing to compare."""

    def device_peak(self) -> int | None:
        """Which device a command uses is its own affair."""

    def seen_device(self) -> str:
        """Where the process runs."""
        return "cpu"


def _ending(code: int) -> str:
    return f"the command was ended by signal {-code}" if code < 0 else f"the command ended with exit code {code}"


def _last_line(said: BinaryIO) -> str:
    said.seek(max(0, said.seek(0, 2) - TAIL))
    lines = said.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


class Command:
    """Commands as a framework."""

    name = "command"
    clock: Callable[[], int] | None = None
    features: Mapping[str, float] = {}
    fallback: Mapping[str, str] = {}

    def start(self) -> None:
        """Nothing to import."""

    def versions(self) -> dict[str, str]:
        """The system that runs it."""
        return {platform.system(): platform.release()}

    def threads(self) -> int | None:
        """Its own affair."""

    def limit_threads(self, threads: int) -> None:
        """Its own affair; most frameworks obey OMP_NUM_THREADS."""

    def devices(self) -> list[Device]:
        """The machine's processor, on which every process starts."""
        from mldyno.records import Device

        return [Device("cpu", "command")]

    def support(self) -> dict[str, Fact]:
        """Its own affair."""
        return {}

    def examine(self, feature: str, device: str) -> Trial:
        """A command has no features."""
        raise Unsupported("a command has no features of its own")

    def open(self, case: Case, build: Callable[..., Any] | None, data: Opened | None = None) -> CommandProgram:
        """Take the words of the command."""
        if build is None:
            raise Unsupported(f"{case.workload} has no whole run; time a command of yours: mldyno run -- COMMAND")
        if case.device != "cpu":
            raise Unsupported(f"a command chooses its device itself: '{case.device}' can't be asked of it")
        if case.precision not in (None, "fp32") or case.compile:
            raise Unsupported("a command chooses precision and compiler itself: neither can be asked of it")
        if (case.ranks or 1) != 1:
            raise Unsupported("more than one worker can't be measured yet")
        return CommandProgram(build())

    def forecast_memory(self, case: Case, build: Callable[..., Any] | None) -> int | None:
        """Nobody knows what a command will take."""

    layouts: tuple[str, ...] = ("nn",)

    def product(self, case: Case, size: int, layout: str | None = None) -> Kernel:
        """A command has none."""
        raise Unsupported("a command has no matrix products of its own")

    def allocate(self, case: Case, size: int) -> object:
        """A command holds what it holds."""
        raise Unsupported("a command has no memory of its own to be held")

    def move(self, case: Case, size: int, from_host: bool) -> Kernel:
        """A command has none."""
        raise Unsupported("a command has no copies of its own")

    def explain(self, error: BaseException) -> tuple[str, str]:
        """A command that fails has said why."""
        if isinstance(error, Unsupported):
            return "unsupported", str(error)
        if isinstance(error, MemoryError):
            return "oom", str(error)
        if isinstance(error, CommandFailed):
            return "failed", str(error)
        if isinstance(error, FileNotFoundError | PermissionError):
            return "failed", f"the command can't be started: {error.strerror}: {error.filename}"
        return "failed", f"{type(error).__name__}: {error}"


FRAMEWORK = Command()
