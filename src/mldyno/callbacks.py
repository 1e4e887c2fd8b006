"""Callbacks that track loops which another package runs.

from mldyno.callbacks import TransformersTracker
Trainer(..., callbacks=[TransformersTracker()])

They take the settings of `mldyno.track`, except the loader. A package is imported when its callback is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mldyno.tracking.tracker import Tracker, track

if TYPE_CHECKING:
    KerasTracker: type[Any]
    LightningTracker: type[Any]
    TransformersTracker: type[Any]


def _calls(method: str) -> Callable[..., None]:
    """Return a callback that calls a method of the tracker, once there is one."""

    def callback(self: _Callbacks, *args: Any, **context: Any) -> None:
        if self.tracker is not None:
            getattr(self.tracker, method)()

    return callback


class _Callbacks:
    """Base class of all callbacks; nothing counts before a training begins."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings
        self.tracker: Tracker | None = None

    def begin(self, **known: Any) -> None:
        """Begin; the user's settings override what the package knows."""
        self.tracker = track(**{**known, **self.settings})

    fetched, step, pause, finish = map(_calls, ("fetched", "step", "pause", "finish"))


def _keras() -> type[Any]:
    keras: Any = import_module("keras")

    class KerasTracker(_Callbacks, keras.callbacks.Callback):  # type: ignore[misc]
        """A step is what `steps_per_execution` says: one batch. Keras shows no batch to a callback: pass `items=`."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.begin()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """On PyTorch the batch is there; TensorFlow and JAX fetch it within the step, where it is invisible."""
            if self.tracker is not None:
                self.tracker.fetched(waited=keras.backend.backend() == "torch")

        on_train_batch_end = _Callbacks.step
        on_test_begin = _Callbacks.pause
        on_epoch_end = _Callbacks.pause  # what other callbacks do then, such as saving or logging, is no step
        on_train_end = _Callbacks.finish

    return KerasTracker


def _lightning() -> type[Any]:
    older = "pytorch_lightning"  # the same package by its first name, whose Trainer has other callbacks
    package: Any = import_module(older if older in sys.modules and "lightning" not in sys.modules
                                 else "lightning.pytorch")  # fmt: skip

    class LightningTracker(_Callbacks, package.Callback):  # type: ignore[misc]
        """A step is one batch."""

        def on_train_start(self, trainer: Any, module: Any) -> None:
            """Begin here: the validation before it is no part of the training."""
            self.begin()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            if self.tracker is not None:
                self.tracker.step(batch)

        on_train_batch_start = _Callbacks.fetched
        on_validation_start = on_train_epoch_end = on_save_checkpoint = _Callbacks.pause
        on_train_end = _Callbacks.finish

    return LightningTracker


def _transformers() -> type[Any]:
    package: Any = import_module("transformers")

    class TransformersTracker(_Callbacks, package.TrainerCallback):  # type: ignore[misc]
        """A step is one update of the weights, with all the batches that it gathers."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            self.begin(items=args.train_batch_size * args.gradient_accumulation_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            """End a step; the Trainer has decided whether it evaluates or saves next."""
            self.step()
            if control.should_evaluate or control.should_save:
                self.pause()

        on_step_begin = _Callbacks.fetched  # all batches of the step are there
        on_epoch_end = _Callbacks.pause  # the start of the loader in the next epoch is no step
        on_train_end = _Callbacks.finish

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
