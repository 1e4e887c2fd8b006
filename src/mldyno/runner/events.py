"""The listener of a run, interruption by the user, and a way to keep the machine awake."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from mldyno.errors import NOT_ALL_OK, MldynoError

if TYPE_CHECKING:
    from mldyno.plan import Plan
    from mldyno.records import Case, Pairing, Record
    from mldyno.runner.forecast import Forecast

HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # the terminal is gone, as where a connection is lost


class Listener:
    """Is notified during a run; overriding any method is optional, and changes nothing about the run."""

    def say(self, line: str) -> None:
        """Show a line to the user before the run begins."""

    def begin(self, plan: Plan, todo: Sequence[tuple[Case, int]], forecasts: Sequence[Forecast]) -> None:
        """Note that a run begins, with these cases and repeats to do, and what each case is expected to take."""

    def fetching(self, what: str, done: int, total: int | None) -> None:
        """Note that a data set is being fetched or made: `done` bytes of it are there."""

    def case_started(self, case: Case, repeat: int) -> None:
        """Note that a case is being set up."""

    def pairing_started(self, cases: Sequence[Case], repeat: int, pairing: Pairing) -> None:
        """Note that cases are being measured head-to-head."""

    def waiting(self, case: Case, reason: str) -> None:
        """Note that a case can't be measured now, for that reason, and is tried again later."""

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Note that a step takes `step` s now, with a relative half-width, after `elapsed` s of measuring."""

    def case_ended(self, record: Record) -> None:
        """Note that a record is in the store."""

    def case_settled(self, case: Case) -> None:
        """Note that a case needs no more processes."""

    def end(self) -> None:
        """Note that the run is over, however it ended."""


class Interrupted(MldynoError):
    """The user ended the run; every finished turn of measuring is in the store."""

    exit_code = NOT_ALL_OK


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP as a flag that is checked where it is safe: never within a write to the store.

    The first signal asks for a tidy end; the second has its usual effect. A lost connection sends SIGHUP more than
    once, from the system and from the shell: a further one does not hurry the end.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, *HANGUP)

    def __init__(self) -> None:
        self._name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            left_alone = (signal.SIG_IGN, None)  # by nohup; a handler that is not Python's can't be put back
            caught = [number for number in self.SIGNALS if signal.getsignal(number) not in left_alone]
            self._before = {number: signal.signal(number, self._note) for number in caught}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # further ones follow a SIGHUP
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._name = self._name or signal.Signals(number).name
        signal.signal(number, signal.SIG_IGN if number in HANGUP else self._before[number])

    def check(self) -> None:
        if self.came:
            raise Interrupted(f"ended by {self._name}")

    @property
    def came(self) -> bool:
        return self._name is not None

    def raise_again(self) -> None:
        """Raise the signal again, for the handler that was there before."""
        if self._name is not None:
            signal.raise_signal(signal.Signals[self._name])


SYSTEMD = "/run/systemd/system"  # exists where systemd runs the system
END_TIMEOUT_S = 1.0


@contextmanager
def awake() -> Iterator[None]:
    """Keep the machine awake until this process is gone, where the system has a tool for it."""
    command, helper = list[str](), None
    if sys.platform == "darwin":
        command = ["caffeinate", "-i", "-m", "-w", str(os.getpid())]
    elif sys.platform == "linux" and os.path.isdir(SYSTEMD):
        inhibit = ["systemd-inhibit", "--what=sleep:idle", "--who=mldyno", "--why=a measurement runs", "--mode=block"]
        command = [*inhibit, "tail", "-f", f"--pid={os.getpid()}", "/dev/null"]
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
