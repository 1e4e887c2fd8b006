"""One training of another package, as all callbacks see it: it begins, fetches, steps, does something else, ends."""

from __future__ import annotations

from typing import Any

from mldyno.tracking.tracker import Tracker, track


class Training:
    """What a callback tells; nothing counts before a training begins, such as a first validation."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.tracker: Tracker | None = None

    def begin(self, **known: Any) -> None:
        """It begins; what the package knows of it stands where the user has said nothing."""
        self.tracker = track(**{**known, **self.settings})

    def fetched(self, waited: bool = True) -> None:
        """The next step can begin; the time since the last one was spent on its batch, as far as that is seen."""
        if self.tracker is not None:
            self.tracker.fetched(waited)

    def step(self, batch: Any = None) -> None:
        """A step has ended."""
        if self.tracker is not None:
            self.tracker.step(batch)

    def pause(self) -> None:
        """What follows is no step: it validates, or saves, or an epoch has ended."""
        if self.tracker is not None:
            self.tracker.pause()

    def end(self) -> None:
        """It has ended."""
        if self.tracker is not None:
            self.tracker.finish()
