"""Models of the user's own in TensorFlow, JAX and MLX: what these have in common, beside the file of each.

Inputs are an array, a tuple (the model gets its parts one by one) or a dictionary (by their names), where the model
takes them so; else it gets them as they are. A model may give an array, several, or its own loss. Where no loss is
given, it is the cross-entropy for whole targets and the squared error for others; where no optimiser is given, it is
AdamW at 1e-3. Arrays of all these frameworks, and of NumPy, have a shape and a type; more is not asked of them here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mldyno import trees
from mldyno.workloads import Batch
from mldyno.workloads._own import Parts, array_of
from mldyno.workloads._own_calls import NO_LOSS, example_here, joined, loss_inputs, several_losses
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


def losses_in(output: Any) -> dict[trees.Path, Any]:
    """What among outputs may be the model's own loss, by the way to it: by its name, as the first, or alone."""
    ways = {way: leaf for way, leaf in trees.paths(output) if is_loss(leaf)}
    likely = [way for way in ways if way[-1:] == ("loss",)] or [way for way in ways if way == (0,)]
    return {way: ways[way] for way in (likely if len(likely) == 1 else ways)}


def loss_in(output: Any) -> Any:
    """The loss that a model gives itself; None where there is none, or several could be it."""
    ways = losses_in(output)
    return next(iter(ways.values())) if len(ways) == 1 else None


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
        sizes = tuple(output.shape[:-1] if whole else output.shape)  # None where a graph of TensorFlow leaves it open
        same = all(size in (None, wanted) for size, wanted in zip(sizes, targets.shape, strict=False))
        if len(sizes) != len(targets.shape) or not same:
            kind = "whole targets" if whole else "targets"
            shapes = f"{kind} of shape {tuple(targets.shape)} for outputs of {tuple(output.shape)}"
            raise NotUnderstood(f"there is no usual loss of {shapes}; give one: model, inputs, targets, loss")
        return usual(output, targets, whole)

    return loss


def describe(
    title: str, framework: str, parts: Parts, infer: Callable[[Any], Any], loss: Loss, output: Any = None
) -> dict[str, Any]:
    """Output, modes and items of a model, from a forward pass of its inputs, and one look at its loss.

    `output` is what it gives for the inputs, where that is known.
    """
    inputs, targets = parts.inputs, parts.targets
    output = infer(inputs) if output is None else output
    if not any(is_array(leaf) for leaf in trees.leaves(output)):
        raise NotUnderstood(
            f"{title}: the model gives a {type(output).__name__}, in which there is no array; {example_here(framework)}"
        )
    known: dict[str, Any] = {"output": "tensor" if is_array(output) else "tree"}
    if parts.loss is None and (targets is None or known["output"] == "tree"):
        both = joined(parts.model, inputs, targets)
        given = output if both is inputs else infer(both)
        if loss_in(given) is not None:
            inputs, targets, output, known = both, None, given, {"output": "loss"}
            known["loss_inputs"] = loss_inputs(inputs, lambda fewer: loss_in(infer(fewer)) is None)
        elif targets is None:
            known["untrained"] = several_losses(ways) if (ways := losses_in(output)) else NO_LOSS
        else:
            several = f"{title}: the model gives several arrays"
            raise NotUnderstood(f"{several}; give a loss too: model, inputs, targets, loss")
    if "untrained" not in known:
        try:
            value = loss(output, targets)
        except NotUnderstood as error:
            raise NotUnderstood(f"{title}: {error}") from None
        if not hasattr(value, "dtype"):
            raise NotUnderstood(f"{title}: the loss gives a {type(value).__name__}, no array of {framework}")
    modes = ("infer",) if "untrained" in known else ("train", "infer")
    return {**known, "modes": modes, **items_of(parts.inputs)}


def items_of(inputs: Any) -> dict[str, Any]:
    """What a step works through, by the first array of its inputs."""
    first = next(leaf for leaf in trees.leaves(inputs) if is_array(leaf) or trees.is_sparse(leaf))
    shape = tuple(first.shape)
    item, items = "sample", shape[0] if shape else 1
    if len(shape) == TOKEN_DIMENSIONS and is_array(first) and not is_floating(first):
        item, items = "token", shape[0] * shape[1]
    elif len(shape) == IMAGE_DIMENSIONS:
        item = "image"
    return {"item": item, "items": max(1, int(items))}


def undivided(batch: Any) -> str:
    """What of a batch can't be divided into items, in words; nothing where all can."""
    others = (leaf for leaf in trees.leaves(batch) if not is_array(leaf) and not isinstance(leaf, trees.SETTINGS))
    return next((f"a {type(leaf).__name__}" for leaf in others), "")


def draws(batch: Batch, roll: Callable[[Any, int], Any]) -> tuple[Callable[[], Batch], str]:
    """What gives the batch, its items rolled by chance, so that no two steps find the same in a cache.

    A batch is rolled as a whole or not at all, since its parts belong together. Where one part can't be rolled, every
    step has a copy of the same batch; the reason is given too.
    """
    chance = random.Random(SEED)
    lengths = {int(leaf.shape[0]) for leaf in trees.leaves(batch) if is_array(leaf) and leaf.shape}
    unrolled = undivided(batch)
    if not unrolled and len(lengths) > 1:
        unrolled = f"arrays of {' and '.join(map(str, sorted(lengths)))} items"

    def draw() -> Batch:
        turn = 0 if unrolled else chance.randrange(max([1, *lengths]))
        inputs, targets = each_array(lambda array: roll(array, turn) if array.shape else array, batch)
        return inputs, targets

    return draw, unrolled


def resized(parts: Parts, items: int, batch: int, take: Callable[[Any, list[int]], Any]) -> tuple[Any, ...]:
    """What a function would give for another batch size: the items of the batch, as often as it takes."""
    if batch != items and (part := undivided((parts.inputs, parts.targets))):
        raise NotUnderstood(f"there is {part} in its batch, which can't be made larger")
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
