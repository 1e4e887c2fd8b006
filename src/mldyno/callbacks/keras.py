"""Keras, tracked: model.fit(..., callbacks=[KerasTracker()])."""

from __future__ import annotations

from typing import Any

import keras

from mldyno.callbacks._training import Training


class KerasTracker(keras.callbacks.Callback):  # type: ignore[misc]
    """A step is what `steps_per_execution` says: one batch. Keras shows no batch to a callback, so say `items=`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.training = Training(settings)

    def on_train_begin(self, logs: Any = None) -> None:
        """Nothing is known of it but what the user says."""
        self.training.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """On PyTorch the batch is there; TensorFlow and JAX fetch it within the step, where nobody sees it."""
        self.training.fetched(waited=keras.backend.backend() == "torch")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step has ended."""
        self.training.step()

    def on_test_begin(self, logs: Any = None) -> None:
        """Validation is no step."""
        self.training.pause()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Nor is what others save or log after an epoch."""
        self.training.pause()

    def on_train_end(self, logs: Any = None) -> None:
        """The line is said here."""
        self.training.end()
