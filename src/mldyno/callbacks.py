"""Callbacks that track loops which another package runs.

from mldyno.callbacks import TransformersTracker
Trainer(..., callbacks=[TransformersTracker()])

They take the settings of `mldyno.track`, except the loader. A package is imported when its callback is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mldyno.tracking.tracker import Tracker, track

if TYPE_CHECKING:
    KerasTracker: type[Any]
    LightningTracker: type[Any]
    TransformersTracker: type[Any]


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


def _keras() -> type[Any]:
    keras: Any = import_module("keras")

    class KerasTracker(keras.callbacks.Callback):  # type: ignore[misc]
        """A step is what `steps_per_execution` says: one batch. Keras shows no batch to a callback: pass `items=`."""

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
            """Exclude what other callbacks do after an epoch, such as saving or logging."""
            self.training.pause()

        def on_train_end(self, logs: Any = None) -> None:
            self.training.end()

    return KerasTracker


def _lightning() -> type[Any]:
    older = "pytorch_lightning"  # the same package by its first name, whose Trainer has other callbacks
    package: Any = import_module(older if older in sys.modules and "lightning" not in sys.modules
                                 else "lightning.pytorch")  # fmt: skip

    class LightningTracker(package.Callback):  # type: ignore[misc]
        """A step is one batch."""

        def __init__(self, **settings: Any) -> None:
            self.training = Training(settings)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            """Begin here: the validation before it is no part of the training."""
            self.training.begin()

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            self.training.fetched()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            self.training.step(batch)

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            self.training.pause()

        on_train_epoch_end = on_validation_start

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            self.training.pause()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.training.end()

    return LightningTracker


def _transformers() -> type[Any]:
    package: Any = import_module("transformers")

    class TransformersTracker(package.TrainerCallback):  # type: ignore[misc]
        """A step is one update of the weights, with all the batches that it gathers."""

        def __init__(self, **settings: Any) -> None:
            self.training = Training(settings)

        def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            self.training.begin(items=args.train_batch_size * args.gradient_accumulation_steps)

        def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            """Begin a step: all of its batches are there."""
            self.training.fetched()

        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            """End a step; the Trainer has decided whether it evaluates or saves next."""
            self.training.step()
            if control.should_evaluate or control.should_save:
                self.training.pause()

        def on_epoch_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            """Exclude the start of the loader in the next epoch."""
            self.training.pause()

        def on_train_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            self.training.end()

    return TransformersTracker


_MAKERS = {"KerasTracker": _keras, "LightningTracker": _lightning, "TransformersTracker": _transformers}


def __getattr__(name: str) -> Any:
    if name not in _MAKERS:
        raise AttributeError(f"module 'mldyno.callbacks' has no attribute {name!r}")
    tracker = globals()[name] = _MAKERS[name]()
    tracker.__qualname__ = name  # as if it were defined at the top, so that it can be pickled
    return tracker


def __dir__() -> list[str]:
    return sorted({*globals(), *_MAKERS})
