"""Models of the user's own in JAX: a function with its parameters, `(apply, params)`, or a function of inputs alone.

`apply(params, inputs)` is a pure function; `params` any tree of arrays, such as Flax's. A function without parameters
can't be trained. The optimiser is one of optax.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Recipe, _own_arrays
from mldyno.workloads._own import Parts
from mldyno.workloads._own_arrays import USUAL_RATE, is_floating
from mldyno.workloads._own_calls import EXAMPLES, is_function_with_parameters, restored, taking_tree
from mldyno.workloads._own_code import NotUnderstood

SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_device", "jax_disable_jit", "jax_debug_nans")


def settings_restored(jax: ModuleType) -> AbstractContextManager[list[str]]:
    """Set back what code changes for the whole process; gives the names of what it was, when all is done."""
    return restored({
        name: (partial(getattr, jax.config, name), partial(jax.config.update, name)) for name in SETTINGS
    })  # fmt: skip


def describe(jax: ModuleType, parts: Parts, title: str) -> dict[str, Any]:
    """Output, modes and items of a model, from one forward pass."""
    apply, params = _network(parts)
    loss = _own_arrays.loss_of(parts.loss, _usual_loss(jax))
    described = _own_arrays.describe(title, "jax", parts, lambda: apply(params, parts.inputs), loss)
    if "train" in described["modes"]:
        if not (leaves := jax.tree.leaves(params)):
            raise NotUnderstood(f"{title}: a function without its parameters can't be trained; {EXAMPLES['jax']}")
        whole = [leaf for leaf in leaves if not is_floating(jax.numpy.asarray(leaf))]
        if whole:
            kind = jax.numpy.asarray(whole[0]).dtype
            raise NotUnderstood(f"{title}: {kind} among its parameters can't be trained; leave it to the function")
    return described


def _network(parts: Parts) -> tuple[Any, Any]:
    """A function of parameters and of inputs as one tree, and its parameters."""
    if is_function_with_parameters(parts.model):
        apply, params = parts.model
        return taking_tree(apply, parts.inputs, params), params
    function = taking_tree(parts.model, parts.inputs)
    return (lambda _, inputs: function(inputs)), {}


def _usual_loss(jax: ModuleType) -> Any:
    def loss(output: Any, targets: Any, whole: bool) -> Any:
        if not whole:
            return jax.numpy.square(output - targets).mean()
        scores = jax.nn.log_softmax(output)
        return -jax.numpy.take_along_axis(scores, targets[..., None], axis=-1).mean()

    return loss


def _usual_optimiser() -> Any:
    return sys.modules["optax"].adamw(USUAL_RATE)  # which the framework has started


def recipe(jax: ModuleType, parts: Parts, source: Source, case: Case, restored: list[str]) -> Recipe:
    """What a step is made of."""
    return Recipe(
        network=_network(parts),
        draw=_own_arrays.draws((parts.inputs, parts.targets), lambda array, turn: jax.numpy.roll(array, turn, 0)),
        loss=_own_arrays.loss_of(parts.loss, _usual_loss(jax)),
        optimiser=lambda _: _own_arrays.optimiser_of(parts.optimiser, _usual_optimiser),
        notes=_own_arrays.notes_of(restored),
    )


def resized(parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
    """What a function would give for another batch size."""
    jax = sys.modules["jax"]
    return _own_arrays.resized(
        parts, items, batch, lambda array, places: jax.numpy.asarray(array)[jax.numpy.asarray(places)]
    )
