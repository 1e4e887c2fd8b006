"""Models of the user's own in MLX: a Module of mlx.nn, or a function of arrays, which can't be trained.

The optimiser is one of mlx.optimizers.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Recipe, _own_arrays
from mldyno.workloads._own import Parts, batch_for, notes_of
from mldyno.workloads._own_arrays import USUAL_RATE
from mldyno.workloads._own_calls import EXAMPLES, restored, taking_tree
from mldyno.workloads._own_code import NotUnderstood


def settings_restored(mlx: ModuleType) -> AbstractContextManager[list[str]]:
    """Set back what code changes for the whole process; gives the names of what it was, when all is done."""
    return restored({"default device": (mlx.core.default_device, mlx.core.set_default_device)})


def describe(mlx: ModuleType, parts: Parts, title: str) -> dict[str, Any]:
    """Output, modes and items of a model, from one forward pass."""
    inputs, targets = _batch(mlx, parts)
    is_module = isinstance(parts.model, mlx.nn.Module)
    if is_module:
        parts.model.eval()
    parts = Parts(parts.model, inputs, targets, parts.loss, parts.optimiser)

    def infer(inputs: Any) -> Any:
        return taking_tree(parts.model, inputs)(inputs)

    loss = _own_arrays.loss_of(parts.loss, _usual_loss(mlx))
    described = _own_arrays.describe(title, "mlx", parts, infer, loss)
    if "train" in described["modes"] and not is_module:
        kind = type(parts.model).__name__
        raise NotUnderstood(f"{title}: a {kind} is no mlx.nn.Module and can't be trained; {EXAMPLES['mlx']}")
    return described


def _batch(mlx: ModuleType, parts: Parts) -> Any:
    return _own_arrays.each_array(mlx.core.array, (parts.inputs, parts.targets))


def _network(mlx: ModuleType, model: Any, inputs: Any) -> Any:
    """A module, or a function, that takes its inputs as one tree."""
    function = taking_tree(model, inputs)
    if function is model or not isinstance(model, mlx.nn.Module):
        return function

    class OfTrees(mlx.nn.Module):  # type: ignore[name-defined,misc]
        """The user's model, called as its inputs are made."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def __call__(self, inputs: Any) -> Any:
            return function(inputs)

    return OfTrees()


def _usual_loss(mlx: ModuleType) -> Any:
    def loss(output: Any, targets: Any, whole: bool) -> Any:
        losses = mlx.nn.losses
        if whole:
            return losses.cross_entropy(output, targets, reduction="mean")
        return losses.mse_loss(output, targets, reduction="mean")

    return loss


def recipe(mlx: ModuleType, parts: Parts, source: Source, case: Case, restored: list[str]) -> Recipe:
    """What a step is made of."""
    batch = batch_for(parts, source, case.mode)(_batch(mlx, parts))
    draw, unrolled = _own_arrays.draws(batch, lambda array, turn: mlx.core.roll(array, turn, 0))
    return Recipe(
        network=_network(mlx, parts.model, batch[0]),
        draw=draw,
        loss=_own_arrays.loss_of(parts.loss, _usual_loss(mlx)),
        optimiser=lambda _: _own_arrays.optimiser_of(parts.optimiser, lambda: mlx.optimizers.AdamW(USUAL_RATE)),
        notes=notes_of(parts, source, case.mode, restored, unrolled),
    )


def resized(parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
    """What a function would give for another batch size."""
    mlx = sys.modules["mlx"]
    return _own_arrays.resized(parts, items, batch, lambda array, places: mlx.core.array(array)[mlx.core.array(places)])
