"""One training of another package, as all callbacks see it: it begins, fetches, steps, does something else, ends."""

from __future__ import annotations

from typing import Any

from mldyno.tracking.tracker import Tracker, track


class Training:
    """Forwards a package's callbacks to a tracker; nothing counts before a training begins."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.tracker: Tracker | None = None

    def begin(self, **known: Any) -> None:
        """Begin; the user's settings override what the package knows."""
        self.tracker = track(**{**known, **self.settings})

    def fetched(self, waited: bool = True) -> None:
        """Begin the next step; the time since the last one was spent on its batch, where that is visible."""
        if self.tracker is not None:
            self.tracker.fetched(waited)

    def step(self, batch: Any = None) -> None:
        if self.tracker is not None:
            self.tracker.step(batch)

    def pause(self) -> None:
        """Exclude what follows: validation, saving, the end of an epoch."""
        if self.tracker is not None:
            self.tracker.pause()

    def end(self) -> None:
        if self.tracker is not None:
            self.tracker.finish()
