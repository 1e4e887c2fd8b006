"""Keras, tracked: model.fit(..., callbacks=[KerasTracker()])."""

from __future__ import annotations

from typing import Any

import keras

from mldyno.callbacks import Training


class KerasTracker(keras.callbacks.Callback):  # type: ignore[misc]
    """A step is what `steps_per_execution` says: one batch. Keras shows no batch to a callback, so pass `items=`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.training = Training(settings)

    def on_train_begin(self, logs: Any = None) -> None:
        self.training.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """On PyTorch the batch is there; TensorFlow and JAX fetch it within the step, where it is invisible."""
        self.training.fetched(waited=keras.backend.backend() == "torch")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.training.step()

    def on_test_begin(self, logs: Any = None) -> None:
        self.training.pause()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Other callbacks save or log after an epoch."""
        self.training.pause()

    def on_train_end(self, logs: Any = None) -> None:
        self.training.end()
