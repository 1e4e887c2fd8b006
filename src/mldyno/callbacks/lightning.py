"""Lightning, tracked: Trainer(callbacks=[LightningTracker()])."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from mldyno.callbacks import Training

OLDER = "pytorch_lightning"  # the same package by its first name, whose Trainer has other callbacks
_package: Any = import_module(OLDER if OLDER in sys.modules and "lightning" not in sys.modules else "lightning.pytorch")


class LightningTracker(_package.Callback):  # type: ignore[misc]
    """A step is one batch."""

    def __init__(self, **settings: Any) -> None:
        self.training = Training(settings)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """What was validated before is no part of it."""
        self.training.begin()

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        self.training.fetched()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.training.step(batch)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self.training.pause()

    on_train_epoch_end = on_validation_start
    """Nor is what lies between two epochs."""

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        self.training.pause()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self.training.end()
