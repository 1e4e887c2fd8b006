"""Loops that another package runs, tracked by its own callbacks: one file for each package.

from mldyno.callbacks import TransformersTracker
Trainer(..., callbacks=[TransformersTracker()])

They take the settings of `mldyno.track`, but for the loader. A package is imported when its callback is named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
