"""Models of the user's own in TensorFlow: of Keras, a tf.Module, or a function of tensors.

A compiled model of Keras brings its loss and its optimiser. A loss of Keras, or of tf.nn, takes the targets first, all
others the output. What a function trains are the variables that it reads.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Recipe, _own_arrays
from mldyno.workloads._own import Parts, batch_for, notes_of
from mldyno.workloads._own_arrays import USUAL_RATE
from mldyno.workloads._own_calls import EXAMPLES, has_parameter, restored, taking_tree
from mldyno.workloads._own_code import NotUnderstood

TARGETS_FIRST = ("keras.", "tensorflow.")  # modules whose losses are of targets and outputs, in that order


def settings_restored(tf: ModuleType) -> AbstractContextManager[list[str]]:
    """Set back what code changes for the whole process; gives the names of what it was, when all is done."""
    config, keras, tf32 = tf.config, tf.keras.config, tf.config.experimental
    settings = {
        "dtype policy": (lambda: keras.dtype_policy().name, keras.set_dtype_policy),
        "default dtype": (keras.floatx, keras.set_floatx),
        "eager functions": (config.functions_run_eagerly, config.run_functions_eagerly),
        "TF32": (tf32.tensor_float_32_execution_enabled, tf32.enable_tensor_float_32_execution),
    }
    return restored(settings)


class Network:
    """The user's model, which takes its inputs as one tree; and the variables that it trains."""

    def __init__(self, tf: ModuleType, parts: Parts, inputs: Any) -> None:
        self.model, self.function = parts.model, taking_tree(parts.model, inputs)
        callee = getattr(parts.model, "call", None) or parts.model
        self.takes_training = has_parameter(callee, "training")
        with tf.GradientTape() as tape:
            self.first_output = self(inputs, training=False)  # which also makes the variables of many models
        watched = tape.watched_variables()
        self.trainable_variables = list(getattr(parts.model, "trainable_variables", watched))

    def __call__(self, inputs: Any, training: bool) -> Any:
        return self.function(inputs, **({"training": training} if self.takes_training else {}))

    @property
    def losses(self) -> list[Any]:
        """What layers add to the loss, such as their regularisation."""
        return list(getattr(self.model, "losses", []))


def describe(tf: ModuleType, parts: Parts, title: str) -> dict[str, Any]:
    """Output, modes and items of a model, from one forward pass."""
    parts = _of_compiled(tf, parts)
    inputs, targets = _batch(tf, parts)
    parts = Parts(parts.model, inputs, targets, parts.loss, parts.optimiser)
    network = Network(tf, parts, inputs)

    def infer(inputs: Any) -> Any:
        return Network(tf, parts, inputs).first_output

    described = _own_arrays.describe(title, "tensorflow", parts, infer, _loss(tf, parts), network.first_output)
    if "train" in described["modes"] and not network.trainable_variables:
        raise NotUnderstood(f"{title}: the model reads no tf.Variable, nothing to train; {EXAMPLES['tensorflow']}")
    return described


def _of_compiled(tf: ModuleType, parts: Parts) -> Parts:
    """With the loss and the optimiser that a compiled model of Keras has, where none is given."""
    model = parts.model
    if not getattr(model, "compiled", False) or parts.targets is None:
        return parts
    loss = parts.loss
    if loss is None and getattr(model, "loss", None) is not None:

        def loss(output: Any, targets: Any) -> Any:
            """As `fit` has it, but for what layers add, which every step adds itself."""
            total = model.compute_loss(y=targets, y_pred=output)
            return total - tf.add_n(model.losses) if model.losses else total

    return Parts(model, parts.inputs, parts.targets, loss, parts.optimiser or model.optimizer)


def _batch(tf: ModuleType, parts: Parts) -> Any:
    return _own_arrays.each_array(_tensor(tf), (parts.inputs, parts.targets))


def _tensor(tf: ModuleType) -> Any:
    def tensor(array: Any) -> Any:
        made = tf.convert_to_tensor(array)
        return tf.cast(made, tf.float32) if made.dtype.is_floating else made

    return tensor


def _loss(tf: ModuleType, parts: Parts) -> Any:
    given = parts.loss
    if given is not None and _takes_targets_first(tf, given):
        return lambda output, targets: tf.reduce_mean(given(targets, output))
    return _own_arrays.loss_of(given, _usual_loss(tf))


def _takes_targets_first(tf: ModuleType, loss: Any) -> bool:
    is_theirs = inspect.isfunction(loss) and (loss.__module__ or "").startswith(TARGETS_FIRST)
    return is_theirs or isinstance(loss, tf.keras.losses.Loss)


def _usual_loss(tf: ModuleType) -> Any:
    def loss(output: Any, targets: Any, whole: bool) -> Any:
        if whole:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output))
        return tf.reduce_mean(tf.square(output - targets))

    return loss


def recipe(tf: ModuleType, parts: Parts, source: Source, case: Case, restored: list[str]) -> Recipe:
    """What a step is made of."""
    parts = _of_compiled(tf, parts)
    inputs, targets = batch_for(parts, source, case.mode)(_batch(tf, parts))
    network = Network(tf, parts, inputs)
    del network.first_output
    draw, unrolled = _own_arrays.draws((inputs, targets), lambda array, turn: tf.roll(array, turn, 0))
    return Recipe(
        network=network,
        draw=draw,
        loss=_loss(tf, parts),
        optimiser=lambda _: _optimiser(tf, parts),
        notes=notes_of(parts, source, case.mode, restored, unrolled),
    )


def _optimiser(tf: ModuleType, parts: Parts) -> Any:
    """The user's, made anew: one that has met the variables of a model serves no other."""
    given = _own_arrays.optimiser_of(parts.optimiser, lambda: tf.keras.optimizers.AdamW(USUAL_RATE))
    return type(given).from_config(given.get_config())


def resized(parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
    """What a function would give for another batch size."""
    return _own_arrays.resized(parts, items, batch, sys.modules["tensorflow"].gather)
