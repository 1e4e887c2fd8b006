"""Ctrl-C and SIGTERM as a flag that is looked at where it is safe: never within a write to the store."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from mldyno.errors import NOT_ALL_OK, MldynoError


class Interrupted(MldynoError):
    """The user ended the run; all that was measured is in the store."""

    exit_code = NOT_ALL_OK


class Interrupts:
    """While active, the first signal asks for a tidy end; the second has its usual effect."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in self.SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._name = signal.Signals(number).name
        signal.signal(number, self._before[number])

    def check(self) -> None:
        """Raise where a signal has come."""
        if self._name is not None:
            raise Interrupted(f"ended by {self._name}")
