"""Models of the user's own in PyTorch: the parts that their function gives, as a recipe.

Inputs are a tensor, a tuple (the model gets its parts one by one) or a dictionary (by their names). A model may give a
tensor, several, or its own loss as Hugging Face's do. Where no loss is given, it is the cross-entropy for whole targets
and the squared error for others; where no optimiser is given, it is AdamW as PyTorch has it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Batch, Recipe
from mldyno.workloads._own import Parts
from mldyno.workloads._own_calls import EXAMPLES, restored
from mldyno.workloads._own_code import NotUnderstood

IMAGE_DIMENSIONS, TOKEN_DIMENSIONS = 4, 2
LABELS = "labels"  # of a dictionary of inputs: with these, models of Hugging Face give their loss


# -- settings that user code may change ------------------------------------------------------------


def settings_restored(torch: ModuleType) -> AbstractContextManager[list[str]]:
    """Set back what code changes for the whole process; gives the names of what it was, when all is done."""
    settings = {
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "threads": (torch.get_num_threads, torch.set_num_threads),
        "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
        "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    }
    return restored(settings)


# -- what it is ------------------------------------------------------------------------------------


def describe(torch: ModuleType, parts: Parts, title: str) -> dict[str, Any]:
    """Output, modes and items of a model, from one forward pass on the CPU."""
    if not isinstance(parts.model, torch.nn.Module):
        kind = type(parts.model).__name__
        raise NotUnderstood(f"{title}: the model is a {kind}, no torch.nn.Module; {EXAMPLES['torch']}")
    model, inputs = at_home(torch, parts.model).eval(), trees.mapped(functools.partial(at_home, torch), parts.inputs)
    with torch.no_grad():
        output = call(model, inputs)
    loss = loss_in(torch, output)
    kind = "loss" if loss is not None else "tensor" if torch.is_tensor(output) else "tree"
    if kind == "tree" and not any(torch.is_tensor(leaf) for leaf in trees.leaves(output)):
        raise NotUnderstood(f"{title}: the model gives a {type(output).__name__}, in which there is no tensor")
    trains = loss is not None or parts.targets is not None or parts.loss is not None
    if kind == "tree" and parts.targets is not None and parts.loss is None:
        raise NotUnderstood(f"{title}: the model gives several tensors; give a loss too: model, inputs, targets, loss")
    first = next(leaf for leaf in trees.leaves(inputs) if torch.is_tensor(leaf))
    whole = not first.is_floating_point()
    item, items = "sample", len(first) if first.dim() else 1
    if whole and first.dim() == TOKEN_DIMENSIONS:
        item, items = "token", first.numel()
    elif first.dim() == IMAGE_DIMENSIONS:
        item = "image"
    return {"output": kind, "modes": ("train", "infer") if trains else ("infer",), "item": item, "items": max(1, items)}


def with_batch(torch: ModuleType, parts: Parts, batch: int | None) -> Parts:
    """The parts with a batch of the first items of their data set, which they keep."""
    given = parts.inputs
    dataset, collate = getattr(given, "dataset", given), getattr(given, "collate_fn", None)
    items = [dataset[place % len(dataset)] for place in range(batch or 1)]
    inputs, targets = pair_of((collate or torch.utils.data.default_collate)(items))
    return replace(parts, inputs=inputs, targets=targets, dataset=dataset, collate=collate)


def pair_of(batch: Any) -> Batch:
    """Inputs and targets of what a loader gives: two parts are these, all else is inputs."""
    return (batch[0], batch[1]) if isinstance(batch, list | tuple) and len(batch) == 2 else (batch, None)


def at_home(torch: ModuleType, part: Any) -> Any:
    """A model or a tensor in fp32 where tensors are made now: on the CPU, or without memory where that is forecast."""
    home = torch.get_default_device()
    if isinstance(part, torch.nn.Module):
        tensors = [*part.parameters(), *part.buffers()]
        if any(tensor.device.type != home.type for tensor in tensors):
            part = part.to(home)
        return part.float() if any(_is_other_float(torch, tensor) for tensor in tensors) else part
    if not torch.is_tensor(part):
        return part
    part = part.detach().to(home)
    return part.float() if _is_other_float(torch, part) else part


def _is_other_float(torch: ModuleType, tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and tensor.dtype is not torch.float32)


def call(model: Any, inputs: Any) -> Any:
    """The model's output: it gets a dictionary by its names, a tuple one by one, all else as it is."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, list | tuple) else model(inputs)


def loss_in(torch: ModuleType, output: Any) -> Any:
    """The loss that a model gives itself: by that name, or as the first of its outputs; None where there is none."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple | list) and len(output) > 1:
        output = output[0]
    elif not torch.is_tensor(output):
        output = getattr(output, "loss", None)
    return output if torch.is_tensor(output) and output.dim() == 0 and output.is_floating_point() else None


# -- the recipe ------------------------------------------------------------------------------------


def recipe(torch: ModuleType, parts: Parts, source: Source, case: Case, restored: list[str]) -> Recipe:
    """What a step is made of."""
    model = at_home(torch, parts.model)
    home = functools.partial(at_home, torch)
    inputs, targets = trees.mapped(home, parts.inputs), trees.mapped(home, parts.targets)
    if case.mode == "infer" and isinstance(inputs, Mapping) and source.output == "loss":
        inputs = {name: part for name, part in inputs.items() if name != LABELS}
    plain = torch.is_tensor(inputs) and source.output == "tensor"
    return Recipe(
        network=model if plain else _network(torch, model),
        draw=_draws(torch, (inputs, targets)),
        loss=_loss(torch, parts.loss, source),
        optimiser=functools.partial(_optimiser, torch, parts),
        notes={"restored_settings": ", ".join(restored)} if restored else {},
        dataset=parts.dataset,
        collate=None if parts.dataset is None else functools.partial(_collated, parts.collate),
    )


def _collated(collate: Callable[[Any], Any] | None, items: Any) -> Batch:
    """A batch of items, as a loader's worker makes it."""
    return pair_of((collate or sys.modules["torch"].utils.data.default_collate)(items))


def _network(torch: ModuleType, model: Any) -> Any:
    """A network that takes its inputs as one tree, as every network here does."""

    class OfTrees(torch.nn.Module):  # type: ignore[name-defined,misc]
        """The user's model, called as its inputs are made."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Any) -> Any:
            return call(self.model, inputs)

    return OfTrees()


def _draws(torch: ModuleType, batch: Batch) -> Callable[[], Batch]:
    """What gives the batch, its items turned by chance, so that no two steps find the same in a cache."""
    items = next((len(leaf) for leaf in trees.leaves(batch) if torch.is_tensor(leaf) and leaf.dim()), 0)

    def draw() -> Batch:
        turn = int(torch.randint(max(1, items), (), device="cpu"))

        def turned(leaf: Any) -> Any:
            return leaf.roll(turn, 0) if torch.is_tensor(leaf) and leaf.dim() and len(leaf) == items else leaf

        inputs, targets = trees.mapped(turned, batch)
        return inputs, targets

    return draw


def _loss(torch: ModuleType, given: Any, source: Source) -> Callable[[Any, Any], Any]:
    functional = torch.nn.functional
    if given is not None:
        return lambda output, targets: given(output) if targets is None else given(output, targets)
    if source.output == "loss":
        return lambda output, targets: loss_in(torch, output)

    def loss(output: Any, targets: Any) -> Any:
        if targets.is_floating_point():
            return functional.mse_loss(output, targets)
        if output.dim() > TOKEN_DIMENSIONS and targets.shape == output.shape[:-1]:  # classes last, as of tokens
            return functional.cross_entropy(output.flatten(0, -2), targets.flatten())
        return functional.cross_entropy(output, targets)

    return loss


def _optimiser(torch: ModuleType, parts: Parts, parameters: Any) -> Any:
    """The user's optimiser, for these parameters: as it is where it has them already."""
    every = list(parameters)
    trained = [parameter for parameter in every if parameter.requires_grad]
    given = parts.optimiser
    if given is None:
        return torch.optim.AdamW(trained)
    if not isinstance(given, torch.optim.Optimizer):
        return given(trained)
    own = {id(parameter) for group in given.param_groups for parameter in group["params"]}
    if own <= {*map(id, every)}:
        return given
    places = {id(parameter): place for place, parameter in enumerate(parts.model.parameters())}
    if not own <= {*places}:
        raise NotUnderstood("its optimiser has parameters that the model has not")
    groups = [
        {**group, "params": [every[places[id(parameter)]] for parameter in group["params"]]}
        for group in given.param_groups
    ]
    return type(given)(groups, **given.defaults)


def resized(parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
    """What a function would give for another batch size: the items of the batch, as often as it takes."""
    torch = sys.modules["torch"]

    def repeated(leaf: Any) -> Any:
        if batch == items or not torch.is_tensor(leaf) or not leaf.dim() or len(leaf) != items:
            return leaf
        places = torch.arange(batch) % items
        return leaf.to(places.device)[places]

    inputs, targets = trees.mapped(repeated, (parts.inputs, parts.targets))
    return tuple(part for part in (parts.model, inputs, targets, parts.loss, parts.optimiser) if part is not None)
