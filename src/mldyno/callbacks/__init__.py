"""Loops that another package runs, tracked by its callbacks: one file for each package.

from mldyno.callbacks import TransformersTracker
Trainer(..., callbacks=[TransformersTracker()])

They take the settings of `mldyno.track`, but for the loader. A package is imported when its callback is named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mldyno.tracking.tracker import Tracker, track

__all__ = ["KerasTracker", "LightningTracker", "TransformersTracker"]

if TYPE_CHECKING:
    from mldyno.callbacks.keras import KerasTracker
    from mldyno.callbacks.lightning import LightningTracker
    from mldyno.callbacks.transformers import TransformersTracker
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'mldyno.callbacks' has no attribute {name!r}")
        return getattr(import_module(f"mldyno.callbacks.{name.removesuffix('Tracker').lower()}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
