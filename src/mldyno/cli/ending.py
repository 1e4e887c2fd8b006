"""SIGTERM, and SIGHUP of a terminal that is gone, end a command as Ctrl-C does: what is temporary is removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Signalled(KeyboardInterrupt):
    """A signal has ended the command; its name is the message."""


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the system and a shell both send SIGHUP: the end is not to be cut short
    raise Signalled(signal.Signals(number).name)


@contextmanager
def tidy_end() -> Iterator[None]:
    """Signals that would end this process at once raise meanwhile; those that are ignored, as under nohup, stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    met = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in met:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in met:
            if signal.getsignal(number) is _raise:
                signal.signal(number, signal.SIG_DFL)
