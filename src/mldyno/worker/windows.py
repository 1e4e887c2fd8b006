"""Windows: the meters' view of a turn, cut into stretches that are long enough to cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mldyno.meters import Meter
from mldyno.timing.clock import Clock

SHORTEST_NS = 20_000_000
METERS_SHARE = 0.01  # of the time, that reading the meters may take


class Windows:
    """Tells the meters when a window begins and ends; `ended` is called at each end."""

    def __init__(self, meters: Sequence[Meter], clock: Clock, ended: Callable[[], None]) -> None:
        self.meters, self.clock, self.ended = meters, clock, ended
        self.length = SHORTEST_NS
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
        self.length = max(SHORTEST_NS, round((now - began) / METERS_SHARE))
        self.due = now + self.length
