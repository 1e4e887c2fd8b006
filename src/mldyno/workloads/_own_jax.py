"""Models of the user's own in JAX: `(apply, params)`, a module of flax.nnx, or a function of inputs alone.

`apply(params, inputs)` is a pure function; `params` any tree of arrays, such as the variables of flax.linen. A module
of flax.nnx is split into what is trained and what else it holds (averages of batches, keys), which a step carries
along. A function without parameters can't be trained. The optimiser is one of optax.
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
from mldyno.workloads._own import Parts, batch_for, notes_of
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

    def infer(inputs: Any) -> Any:
        apply, params, rest = _network(parts.model, inputs, "infer")
        return apply(params, rest, inputs)[0]

    loss = _own_arrays.loss_of(parts.loss, _usual_loss(jax))
    described = _own_arrays.describe(title, "jax", parts, infer, loss)
    if "train" in described["modes"]:
        if not (leaves := jax.tree.leaves(_network(parts.model, parts.inputs, "train")[1])):
            raise NotUnderstood(f"{title}: a function without its parameters can't be trained; {EXAMPLES['jax']}")
        whole = [leaf for leaf in leaves if not is_floating(jax.numpy.asarray(leaf))]
        if whole:
            kind = jax.numpy.asarray(whole[0]).dtype
            raise NotUnderstood(f"{title}: {kind} among its parameters can't be trained; leave it to the function")
    return described


def _network(model: Any, inputs: Any, mode: str | None) -> tuple[Any, Any, Any]:
    """A function of parameters, of what else a model holds and of inputs as one tree; its parameters, and all else.

    It gives the output, and what the model holds after it.
    """
    if is_nnx(model):
        return _split(model, mode)
    params: Any = {}
    if is_function_with_parameters(model):
        params = model[1]
        function = taking_tree(model[0], inputs, params)
    else:
        alone = taking_tree(model, inputs)

        def function(_: Any, inputs: Any) -> Any:
            return alone(inputs)

    return (lambda params, rest, inputs: (function(params, inputs), rest)), params, ()


def is_nnx(model: Any) -> bool:
    """Whether it is a module of flax.nnx."""
    return any(kind.__module__.startswith("flax.nnx") and kind.__name__ == "Module" for kind in type(model).__mro__)


def _split(module: Any, mode: str | None) -> tuple[Any, Any, Any]:
    nnx = sys.modules["flax.nnx"]  # which the user's code has imported
    module.train() if mode == "train" else module.eval()
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def apply(params: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        anew = sys.modules["jax"].tree.map(lambda leaf: leaf, (params, rest))  # so that this trace may change them
        whole = nnx.merge(graph, *anew)
        output = taking_tree(whole, inputs)(inputs)
        return output, nnx.split(whole, nnx.Param, ...)[2]

    return apply, params, rest


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
    batch = batch_for(parts, source, case.mode)((parts.inputs, parts.targets))
    draw, unrolled = _own_arrays.draws(batch, lambda array, turn: jax.numpy.roll(array, turn, 0))
    return Recipe(
        network=_network(parts.model, batch[0], case.mode),
        draw=draw,
        loss=_own_arrays.loss_of(parts.loss, _usual_loss(jax)),
        optimiser=lambda _: _optimiser(parts),
        notes=notes_of(parts, source, case.mode, restored, unrolled),
    )


def _optimiser(parts: Parts) -> Any:
    """The user's; one of flax.nnx holds one of optax."""
    given = _own_arrays.optimiser_of(parts.optimiser, _usual_optimiser)
    return getattr(given, "tx", given)


def resized(parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
    """What a function would give for another batch size."""
    jax = sys.modules["jax"]
    return _own_arrays.resized(
        parts, items, batch, lambda array, places: jax.numpy.asarray(array)[jax.numpy.asarray(places)]
    )
