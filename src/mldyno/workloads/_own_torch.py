"""Models of the user's own in PyTorch: the parts that their function gives, as a recipe.

Inputs are a tensor, a tuple (the model gets its parts one by one) or a dictionary (by their names). A model may give a
tensor, several, or its own loss among them, as nanoGPT's and Hugging Face's do: a single number that requires grad.
Where no loss is given, it is the cross-entropy for whole targets and the squared error for others; where no optimiser
is given, it is AdamW as PyTorch has it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Batch, Recipe
from mldyno.workloads._own import Parts, batch_for, notes_of
from mldyno.workloads._own_calls import EXAMPLES, NO_LOSS, joined, loss_inputs, restored, several_losses
from mldyno.workloads._own_code import NotUnderstood

IMAGE_DIMENSIONS, TOKEN_DIMENSIONS = 4, 2


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
    home = functools.partial(at_home, torch)
    model, (inputs, targets) = home(parts.model), trees.mapped(home, (parts.inputs, parts.targets))
    output = _passed(torch, model, inputs)
    several = not torch.is_tensor(output)
    if several and not any(torch.is_tensor(leaf) for leaf in (*trees.leaves(output), getattr(output, "loss", None))):
        raise NotUnderstood(f"{title}: the model gives a {type(output).__name__}, in which there is no tensor")
    known: dict[str, Any] = {"output": "tree" if several else "tensor"}
    if targets is None or (several and parts.loss is None):
        known |= _own_loss(torch, model, joined(parts.model, inputs, targets), output, parts.loss)
    if several and targets is not None and parts.loss is None and known["output"] != "loss":
        raise NotUnderstood(f"{title}: the model gives several tensors; give a loss too: model, inputs, targets, loss")
    first = next((leaf for leaf in trees.leaves(inputs) if torch.is_tensor(leaf)), torch.empty(1))
    whole = not first.is_floating_point()
    item, items = "sample", first.size(0) if first.dim() else 1
    if whole and first.dim() == TOKEN_DIMENSIONS:
        item, items = "token", first.numel()
    elif first.dim() == IMAGE_DIMENSIONS:
        item = "image"
    modes = ("infer",) if known.get("untrained") else ("train", "infer")
    return {**known, "modes": modes, "item": item, "items": max(1, items)}


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


def _passed(torch: ModuleType, model: Any, inputs: Any) -> Any:
    """The model's output in inference."""
    with torch.no_grad():
        return call(model.eval(), inputs)


# -- the model's own loss --------------------------------------------------------------------------


def is_loss(torch: ModuleType, value: Any) -> bool:
    """Whether it is a single floating-point number in a tensor."""
    return bool(torch.is_tensor(value) and value.dim() == 0 and value.is_floating_point())


def _own_loss(torch: ModuleType, model: Any, inputs: Any, output: Any, given: Any) -> dict[str, Any]:
    """Where the model gives its loss, and the inputs that only the loss needs; or why it can't be trained.

    `output` is what it gave in inference, `given` the user's loss of an output, if there is one.
    """

    def needed(loss: Callable[[Any], Any]) -> trees.Path:
        def has_no_loss(fewer: Any) -> bool:
            output, value = _passed(torch, model, fewer), None
            with suppress(Exception):  # of a loss that finds other outputs than it expects
                value = loss(output)
            return not is_loss(torch, value) and any(torch.is_tensor(leaf) for leaf in trees.leaves(output))

        return loss_inputs(inputs, has_no_loss)

    if given is not None:
        return {"loss_inputs": needed(given)}
    if not _losses(torch, output) and not (isinstance(inputs, Mapping | list | tuple) and len(inputs) > 1):
        return {"untrained": NO_LOSS}
    try:
        with torch.enable_grad():
            ways = [way for way, leaf in _losses(torch, call(model.train(), inputs)).items() if leaf.requires_grad]
    except Exception as error:  # whatever the user's code raises
        first = str(error).strip().partition("\n")[0]
        return {"untrained": f"the model fails in training: {type(error).__name__}: {first}"}
    by_name = [way for way in ways if way[-1:] == ("loss",)]
    if len(by_name) == 1 or len(ways) == 1:
        (way,) = by_name or ways
        return {"output": "loss", "loss": way, "loss_inputs": needed(lambda output: trees.at(output, way))}
    return {"untrained": several_losses(ways) if ways else NO_LOSS}


def _losses(torch: ModuleType, output: Any) -> dict[trees.Path, Any]:
    """What among outputs is a single number, by the way to it; an object may have it as its `loss`."""
    every = (*trees.paths(output), (("loss",), getattr(output, "loss", None)))
    return {way: leaf for way, leaf in every if is_loss(torch, leaf)}


# -- the recipe ------------------------------------------------------------------------------------


def recipe(torch: ModuleType, parts: Parts, source: Source, case: Case, restored: list[str]) -> Recipe:
    """What a step is made of."""
    model = at_home(torch, parts.model)
    home = functools.partial(at_home, torch)
    prepare = batch_for(parts, source, case.mode)
    inputs, targets = prepare(trees.mapped(home, (parts.inputs, parts.targets)))
    plain = torch.is_tensor(inputs) and source.output == "tensor"
    draw, unrolled = _draws(torch, (inputs, targets))
    return Recipe(
        network=model if plain else _network(torch, model),
        draw=draw,
        loss=_loss(torch, parts.loss, source),
        optimiser=functools.partial(_optimiser, torch, parts),
        notes=notes_of(parts, source, case.mode, restored, unrolled),
        dataset=parts.dataset,
        collate=None if parts.dataset is None else functools.partial(_collated, parts.collate, prepare),
    )


def _collated(collate: Callable[[Any], Any] | None, prepare: Callable[[Batch], Batch], items: Any) -> Batch:
    """A batch of items, as a loader's worker makes it."""
    return prepare(pair_of((collate or sys.modules["torch"].utils.data.default_collate)(items)))


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


def _draws(torch: ModuleType, batch: Batch) -> tuple[Callable[[], Batch], str]:
    """What gives the batch, its items rolled by chance, so that no two steps find the same in a cache.

    A batch is rolled as a whole or not at all, since its parts belong together: features and the graph that they are
    on. Where one part can't be rolled, every step has a copy of the same batch; the reason is given too.
    """
    lengths = {leaf.size(0) for leaf in trees.leaves(batch) if _is_dense(torch, leaf) and leaf.dim()}
    unrolled = _undivided(torch, batch)
    if not unrolled and len(lengths) > 1:
        unrolled = f"tensors of {' and '.join(map(str, sorted(lengths)))} items"

    def draw() -> Batch:
        turn = int(torch.randint(max([1, *lengths]), (), device="cpu"))

        def turned(leaf: Any) -> Any:
            if not torch.is_tensor(leaf):
                return leaf
            return leaf.clone() if unrolled or not leaf.dim() else leaf.roll(turn, 0)

        inputs, targets = trees.mapped(turned, batch)
        return inputs, targets

    return draw, unrolled


def _is_dense(torch: ModuleType, leaf: Any) -> bool:
    return torch.is_tensor(leaf) and leaf.layout is torch.strided and not leaf.is_nested


def _undivided(torch: ModuleType, batch: Any) -> str:
    """What of a batch can't be divided into items, in words; nothing where all can."""
    for leaf in trees.leaves(batch):
        if not torch.is_tensor(leaf) and not isinstance(leaf, trees.SETTINGS):
            return f"a {type(leaf).__name__}"
        if torch.is_tensor(leaf) and not _is_dense(torch, leaf):
            return "a nested tensor" if leaf.is_nested else "a sparse tensor"
    return ""


def _loss(torch: ModuleType, given: Any, source: Source) -> Callable[[Any, Any], Any]:
    functional = torch.nn.functional
    if given is not None:
        return lambda output, targets: given(output) if targets is None else given(output, targets)
    if source.output == "loss":
        return lambda output, targets: trees.at(output, source.loss)

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
    if batch != items and (undivided := _undivided(torch, (parts.inputs, parts.targets))):
        raise NotUnderstood(f"there is {undivided} in its batch, which can't be made larger")

    def repeated(leaf: Any) -> Any:
        if batch == items or not torch.is_tensor(leaf) or not leaf.dim() or len(leaf) != items:
            return leaf
        places = torch.arange(batch) % items
        return leaf.to(places.device)[places]

    inputs, targets = trees.mapped(repeated, (parts.inputs, parts.targets))
    return tuple(part for part in (parts.model, inputs, targets, parts.loss, parts.optimiser) if part is not None)
