"""Models of the user's own in TensorFlow, JAX and MLX: what these have in common, beside the file of each.

Inputs are an array, a tuple (the model gets its parts one by one) or a dictionary (by their names), where the model
takes them so; else it gets them as they are. A model may give an array, several, or its own loss. Where no loss is
given, it is the cross-entropy for whole targets and the squared error for others; where no optimiser is given, it is
AdamW at 1e-3. Arrays of all these frameworks, and of NumPy, have a shape and a type; more is not asked of them here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from mldyno import trees
from mldyno.workloads import Batch
from mldyno.workloads._own import Parts, array_of
from mldyno.workloads._own_calls import example_here
from mldyno.workloads._own_code import NotUnderstood

SEED = 20240229
USUAL_RATE = 1e-3  # of AdamW, where no optimiser is given: PyTorch's and Keras's own
IMAGE_DIMENSIONS, TOKEN_DIMENSIONS = 4, 2

Loss = Callable[[Any, Any], Any]


def is_array(leaf: Any) -> bool:
    """Whether it is an array of any framework."""
    return array_of(leaf) is not None


def is_floating(array: Any) -> bool:
    """Whether an array has floating-point numbers; all frameworks name these types alike."""
    return "float" in str(array.dtype)


def each_array(change: Callable[[Any], Any], tree: Any) -> Any:
    """A tree with every array in it changed."""
    return trees.mapped(lambda leaf: change(leaf) if is_array(leaf) else leaf, tree)


def is_loss(value: Any) -> bool:
    """Whether it is a single floating-point number in an array."""
    return hasattr(value, "dtype") and len(value.shape) == 0 and is_floating(value)


def loss_in(output: Any) -> Any:
    """The loss that a model gives itself: alone, by that name, or as the first of its outputs; else None."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple | list) and len(output) > 1:
        output = output[0]
    return output if is_loss(output) else None


def loss_of(given: Any, usual: Callable[[Any, Any, bool], Any]) -> Loss:
    """The user's loss of an output and its targets, else the model's own, else the framework's usual one."""
    if given is not None:
        return lambda output, targets: given(output) if targets is None else given(output, targets)

    def loss(output: Any, targets: Any) -> Any:
        if targets is None:
            return loss_in(output)
        if not hasattr(targets, "dtype"):
            kind = type(targets).__name__
            raise NotUnderstood(f"a {kind} of targets has no usual loss; give one: model, inputs, targets, loss")
        whole = not is_floating(targets)
        if whole and tuple(targets.shape) == (*output.shape[:-1], 1):  # as data sets of Keras have them
            targets = targets[..., 0]
        fits = tuple(targets.shape) == tuple(output.shape[:-1] if whole else output.shape)
        if not fits:
            kind = "whole targets" if whole else "targets"
            shapes = f"{kind} of shape {tuple(targets.shape)} for outputs of {tuple(output.shape)}"
            raise NotUnderstood(f"there is no usual loss of {shapes}; give one: model, inputs, targets, loss")
        return usual(output, targets, whole)

    return loss


def describe(title: str, framework: str, parts: Parts, infer: Callable[[], Any], loss: Loss) -> dict[str, Any]:
    """Output, modes and items of a model, from one forward pass, and one look at its loss."""
    output = infer()
    own_loss = loss_in(output) if parts.targets is None and parts.loss is None else None
    kind = "loss" if own_loss is not None else "tensor" if is_array(output) else "tree"
    if not any(is_array(leaf) for leaf in trees.leaves(output)):
        raise NotUnderstood(
            f"{title}: the model gives a {type(output).__name__}, in which there is no array; {example_here(framework)}"
        )
    trains = own_loss is not None or parts.targets is not None or parts.loss is not None
    if kind == "tree" and parts.targets is not None and parts.loss is None:
        raise NotUnderstood(f"{title}: the model gives several arrays; give a loss too: model, inputs, targets, loss")
    try:
        value = loss(output, parts.targets) if trains else output
    except NotUnderstood as error:
        raise NotUnderstood(f"{title}: {error}") from None
    if trains and not hasattr(value, "dtype"):
        raise NotUnderstood(f"{title}: the loss gives a {type(value).__name__}, no array of {framework}")
    return {"output": kind, "modes": ("train", "infer") if trains else ("infer",), **items_of(parts.inputs)}


def items_of(inputs: Any) -> dict[str, Any]:
    """What a step works through, by the first array of its inputs."""
    first = next(leaf for leaf in trees.leaves(inputs) if is_array(leaf))
    shape = tuple(first.shape)
    item, items = "sample", shape[0] if shape else 1
    if len(shape) == TOKEN_DIMENSIONS and not is_floating(first):
        item, items = "token", shape[0] * shape[1]
    elif len(shape) == IMAGE_DIMENSIONS:
        item = "image"
    return {"item": item, "items": max(1, int(items))}


def draws(batch: Batch, roll: Callable[[Any, int], Any]) -> Callable[[], Batch]:
    """What gives the batch, its items turned by chance, so that no two steps find the same in a cache."""
    chance = random.Random(SEED)
    items = next((leaf.shape[0] for leaf in trees.leaves(batch) if is_array(leaf) and leaf.shape), 0)

    def draw() -> Batch:
        turn = chance.randrange(max(1, items))

        def turned(array: Any) -> Any:
            return roll(array, turn) if array.shape and array.shape[0] == items else array

        inputs, targets = each_array(turned, batch)
        return inputs, targets

    return draw


def resized(parts: Parts, items: int, batch: int, take: Callable[[Any, list[int]], Any]) -> tuple[Any, ...]:
    """What a function would give for another batch size: the items of the batch, as often as it takes."""
    places = [place % items for place in range(batch)]

    def repeated(array: Any) -> Any:
        return take(array, places) if batch != items and array.shape and array.shape[0] == items else array

    inputs, targets = each_array(repeated, (parts.inputs, parts.targets))
    return tuple(part for part in (parts.model, inputs, targets, parts.loss, parts.optimiser) if part is not None)


def optimiser_of(given: Any, usual: Callable[[], Any]) -> Any:
    """The user's optimiser: as it is, or as their function gives it; else the usual one."""
    if given is None:
        return usual()
    return given() if callable(given) else given


def notes_of(restored: list[str]) -> dict[str, str]:
    """Facts for the record."""
    return {"restored_settings": ", ".join(restored)} if restored else {}
