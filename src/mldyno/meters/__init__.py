"""Meters: what is observed besides time, one file each, each holding one `METER` class.

A meter is started when a case is open and warm, and says then whether it applies to that case on that
device. If it does, it gives its series when the case is closed. In between it sees windows: stretches of
measuring of some 20 ms. Its readings lie between blocks, never within one, and windows are made long enough
that all of it takes under 1 % of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mldyno.records import Case, Device, Series

SHORTEST_WINDOW = 20_000_000  # ns
METERS_SHARE = 0.01  # of the time, that reading the meters may take


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


class Windows:
    """Tells the meters when a window begins and ends; `ended` is called at each end."""

    def __init__(self, meters: Sequence[Meter], clock: Callable[[], int], ended: Callable[[], None]) -> None:
        self.meters, self.clock, self.ended = meters, clock, ended
        self.length = SHORTEST_WINDOW
        self.due = 0

    def begin(self) -> None:
        """A turn begins."""
        for meter in self.meters:
            meter.begin_window()
        self.due = self.clock() + self.length

    def look(self, now: int) -> None:
        """Between two blocks: end the window if it is time."""
        if now >= self.due:
            self.end()

    def end(self) -> None:
        """End the window, and begin the next; one that costs more than its share makes the next ones longer."""
        began = self.clock()
        for meter in self.meters:
            meter.end_window()
        self.ended()
        now = self.clock()
        self.length = max(SHORTEST_WINDOW, round((now - began) / METERS_SHARE))
        self.due = now + self.length
