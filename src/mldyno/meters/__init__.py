"""Meters: what is observed besides time, one file each, each holding one `METER` class.

A meter is started when a case is open and warm, and says then whether it applies to that case on that
device. If it does, it gives its series when the case is closed. In between it sees windows: stretches of
measuring of some 20 ms. Its readings lie between blocks, never within one, and windows are made long enough
that all of it takes under 1 % of the time.
"""

from __future__ import annotations

from typing import Protocol

from mldyno.records import Case, Device, Series


class Meter(Protocol):
    """Observes one thing while a case is measured."""

    def start(self, case: Case, device: Device) -> bool:
        """Begin to observe; False where this case on this device has nothing for it, which leaves it out."""

    def begin_window(self) -> None:
        """A stretch of measuring begins, after a pause."""

    def end_window(self) -> None:
        """A window has ended; the next one may begin at once."""

    def stop(self) -> list[Series]:
        """End, and give what was seen, in SI base units."""
