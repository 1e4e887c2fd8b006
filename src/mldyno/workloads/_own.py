"""Workloads of the user's own: what their code gives is taken apart, and made a workload. In the worker only.

The function gives a model and a batch; or also targets, a loss and an optimiser; or a whole Recipe. What these are in
a framework, its own file beside this one knows: `_own_torch` and so on. `_own_code` loads and calls it.
"""

from __future__ import annotations

import importlib
import inspect
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Batch, Recipe, Workload
from mldyno.workloads._own_calls import (
    example_here,
    input_names,
    is_function_with_parameters,
    is_model,
    joined,
    takes,
    without,
)
from mldyno.workloads._own_code import NotUnderstood, check_unchanged, digest_of, returned

ARRAYS = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "mlx": "mlx", "tensorflow": "tensorflow", "numpy": ""}
"""Packages that have arrays, and the framework that each is of; NumPy's serve any."""
ARRAY_TYPES = ("Tensor", "EagerTensor", "Array", "ArrayImpl", "array", "ndarray")
MODELS = {"keras": "tensorflow", "tensorflow": "tensorflow", "torch": "torch", "mlx": "mlx", "flax": "jax",
          "equinox": "jax", "jax": "jax", "jaxlib": "jax"}  # fmt: skip
READERS = {"hf": "_own_hf", "onnx": "_own_onnx"}
"""Kinds of sources that hold no code of the user's, and the file that reads each."""


# -- taking apart ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What the user's function gave, part by part; None where there is none."""

    model: Any
    inputs: Any
    targets: Any = None
    loss: Any = None
    optimiser: Any = None
    dataset: Any = None
    """Where inputs and targets come from, if it was that what was given; and what makes a batch of items."""
    collate: Any = None


def parts_of(given: Any, title: str) -> Parts:
    """The parts of what the user's function gave: a model, then what holds arrays, then what can be called."""
    if not isinstance(given, tuple | list) or len(given) < 2 or not is_model(given[0]):
        kind = type(given).__name__
        raise NotUnderstood(
            f"{title} gave a {kind}, where a model and a batch are expected; for example: {example_here()}"
        )
    model, rest = given[0], list(given[1:])
    data: list[Any] = []
    while rest and (arrays_in(rest[0]) or any(map(trees.is_sparse, trees.leaves(rest[0]))) or is_whole(rest[0])):
        data.append(rest.pop(0))
    if not data or len(data) > 2:
        count = "no batch of tensors" if not data else f"{len(data)} batches; put several inputs into one tuple"
        raise NotUnderstood(f"{title} gave {count} behind the model; for example: {example_here()}")
    inputs, targets = (*data, None)[:2]
    loss = optimiser = None
    for part in rest:
        if part is None:
            continue
        if is_optimiser(part) or (callable(part) and loss is not None and optimiser is None):
            optimiser = part
        elif callable(part) and loss is None:
            loss = part
        else:
            kind = type(part).__name__
            raise NotUnderstood(
                f"{title} gave a {kind} where a loss or an optimiser is expected; in order: "
                "model, inputs, targets, loss, optimiser"
            )
    if targets is None and isinstance(inputs, tuple | list) and len(inputs) == 2 and not takes(model, *inputs):
        inputs, targets = inputs  # as a loader gives them
    return Parts(model, inputs, targets, loss, optimiser)


def framework_of(parts: Parts) -> str:
    """The framework that a model is of, by its own type or by its batch's; empty where that is not known."""
    arrays = [array_of(leaf) for leaf in trees.leaves((parts.inputs, parts.targets))]
    by_arrays = next((framework for framework in arrays if framework), "")
    if is_function_with_parameters(parts.model):
        return by_arrays or "jax"
    roots = [kind.__module__.partition(".")[0] for kind in type(parts.model).__mro__]
    return by_arrays or next((MODELS[root] for root in roots if root in MODELS), "")


def array_of(leaf: Any) -> str | None:
    """The framework of an array, nothing for NumPy's, and None for what is no array."""
    for kind in type(leaf).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ARRAYS and kind.__name__ in ARRAY_TYPES:
            return ARRAYS[root]
    return None


def arrays_in(tree: Any) -> list[Any]:
    """The arrays in a tree."""
    return [leaf for leaf in trees.leaves(tree) if array_of(leaf) is not None]


def is_dataset(part: Any) -> bool:
    """Whether it is a data set of PyTorch whose items can be counted, or a loader of one."""
    names = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("torch.utils.data")}
    return "DataLoader" in names or ("Dataset" in names and hasattr(part, "__len__"))


def is_whole(part: Any) -> bool:
    """Whether it is an object that holds arrays itself: a data set, or what goes to a device, such as a graph."""
    return is_dataset(part) or (callable(getattr(part, "to", None)) and not callable(part))


def is_optimiser(part: Any) -> bool:
    """Whether it is an optimiser of any framework, or the class of one."""
    kinds = part.__mro__ if isinstance(part, type) else type(part).__mro__
    return any(kind.__name__ in ("Optimizer", "GradientTransformation") for kind in kinds)


# -- inputs of a mode -------------------------------------------------------------------------------


def batch_for(parts: Parts, source: Source, mode: str | None) -> Callable[[Batch], Batch]:
    """What makes a batch as the model takes it in a mode; a loader's worker can have it.

    Targets go behind the inputs where the model then gives its loss. In inference, what only that needs is left out.
    """
    joins = source.output == "loss" and joined(parts.model, parts.inputs, parts.targets) is not parts.inputs
    return partial(_taken, joins, source.loss_inputs if mode == "infer" else ())


def _taken(joins: bool, left_out: trees.Path, batch: Batch) -> Batch:
    inputs, targets = batch
    if joins:
        inputs, targets = ((*inputs, targets) if isinstance(inputs, list | tuple) else (inputs, targets)), None
    return without(inputs, left_out), targets


def notes_of(parts: Parts, source: Source, mode: str | None, restored: list[str], unrolled: str) -> dict[str, Any]:
    """Facts for the record."""
    notes: dict[str, Any] = {"restored_settings": ", ".join(restored)} if restored else {}
    notes |= {"same_batch": unrolled} if unrolled else {}
    if mode == "infer" and source.loss_inputs:
        notes["inference_without"] = input_names(parts.model, source.loss_inputs)
    elif mode == "infer" and source.output == "loss":
        notes["loss_in_inference"] = True
    return notes


# -- as a workload ---------------------------------------------------------------------------------


def workload_of(source: Source) -> Workload:
    """The workload that a source is, by what a worker found in it."""
    build: dict[str, Any] = {source.framework: OwnBuild(source)}
    if reader := reader_of(source):
        build = {framework: partial(reader.build, source) for framework in reader.FRAMEWORKS}
    return Workload(
        name=source.name, title=source.title, version=1, item=source.item, batch=source.batch or 0, seq=source.seq,
        params=0, flops=lambda case: 0.0, build=build, modes=source.modes,
        untrained=source.untrained, count=partial(_items, source), own=True, own_data=source.dataset,
    )  # fmt: skip


@dataclass(frozen=True)
class OwnBuild:
    """The build function of a source."""

    source: Source

    def __call__(self, framework: Any, case: Case) -> Recipe:
        return _build(self.source, framework, case)

    @property
    def loads(self) -> bool:
        """Whether what it builds has a data set of its own."""
        return self.source.dataset


def _items(source: Source, case: Case) -> int:
    """Items of a step: they grow with the batch, and tokens with the sequence."""
    items = float(source.items)
    if source.batch and case.batch:
        items *= case.batch / source.batch
    if source.seq and case.seq and source.item == "token":
        items *= case.seq / source.seq
    if case.mode == "infer":
        items += source.decoded * (case.batch or source.batch or 1)
    return max(1, round(items))


CHANGED_IN_PLACE = ("torch", "mlx")  # frameworks whose models are cast, moved and trained as they are
_GIVEN: dict[str, Any] = {}  # weak references to the models that sources gave last


def _build(source: Source, framework: Any, case: Case) -> Recipe:
    """The recipe, from the user's code as it was when the run began."""
    adapter = adapter_for(source.framework)
    with adapter.settings_restored(framework) as restored:
        given = returned(source, case)
    if source.kind in ("file", "module"):  # a model that lives in this process has no code to look at
        check_unchanged(source, lambda: digest_of(source))
    if isinstance(given, Recipe):
        return given
    parts = parts_of(given, source.title)
    if source.framework in CHANGED_IN_PLACE:
        check_fresh(source, parts.model)
    if source.dataset:
        parts = adapter.with_batch(framework, parts, case.batch)
    recipe: Recipe = adapter.recipe(framework, parts, source, case, restored)
    return recipe


def check_fresh(source: Source, model: Any) -> None:
    """Raise where a source gives one and the same model each time: what a case does to it, another would find."""
    last = _GIVEN.get(source.name)
    if last is not None and last() is model and not inspect.isfunction(model):
        raise NotUnderstood(f"{source.title} gives one and the same model each time; make it within the function")
    with suppress(TypeError):  # not all can be referred to weakly
        _GIVEN[source.name] = weakref.ref(model)


def adapter_for(framework: str) -> Any:
    """The file that knows what the parts are in a framework."""
    return importlib.import_module(f"mldyno.workloads._own_{framework}")


def reader_of(source: Source) -> Any:
    """The file that reads a source without code of the user's; None where there is such code."""
    name = READERS.get(source.kind)
    return None if name is None else importlib.import_module(f"mldyno.workloads.{name}")
