"""Hugging Face's Trainer, tracked: Trainer(..., callbacks=[TransformersTracker()])."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from mldyno.callbacks import Training


class TransformersTracker(TrainerCallback):  # type: ignore[misc]
    """A step is one update of the weights, with all the batches that it gathers."""

    def __init__(self, **settings: Any) -> None:
        self.training = Training(settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.training.begin(items=args.train_batch_size * args.gradient_accumulation_steps)

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """All batches of a step are there."""
        self.training.fetched()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """By now it is decided whether the Trainer evaluates or saves before it goes on."""
        self.training.step()
        if control.should_evaluate or control.should_save:
            self.training.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """The next epoch begins with starting the loader."""
        self.training.pause()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.training.end()
