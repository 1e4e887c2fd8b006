"""Take apart what the user's function returns, and make a Recipe of it. In the worker only.

The function returns a model and a batch; then, as it likes, targets, a loss and an optimiser. The inputs are an array,
a tuple (the model gets its parts one by one) or a dictionary (by name), where the model takes them so; else the model
gets them as they are. A model may return an array, several arrays, or its own loss among them. Without a loss, it is
the cross-entropy for integer targets and the squared error for others; without an optimiser, it is AdamW at 1e-3.

What differs between frameworks is in one `Adapter` for each, in `frameworks`.
"""

from __future__ import annotations

import inspect
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.trees import Path
from mldyno.values import IMAGE_DIMENSIONS, SEED
from mldyno.workloads import Batch, Recipe

BATCH, SEQ = 8, 128  # of a model that is a file or a name
IMAGE_SIDE, CHANNELS = 224, 3  # of its images, where it does not say
LEARNING_RATE = 1e-3  # of AdamW, where no optimiser is given: the default of PyTorch and Keras
TOKEN_DIMENSIONS = 2
SET_BY_KERAS = ("training", "mask")  # parameters of a Keras model that are no inputs
NO_LOSS = "no output of the model is a loss (a single number); return model, inputs, targets"

Loss = Callable[[Any, Any], Any]
Setting = tuple[Callable[[], Any], Callable[[Any], Any]]  # a getter and a setter of a process-wide setting


class NotUnderstood(NotImplementedError):
    """The user's code can't be measured as it is; the message says why, and what would work."""


# -- the parts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """The parts that the user's function returned; None for those it left out."""

    model: Any
    inputs: Any
    targets: Any = None
    loss: Any = None
    optimiser: Any = None
    dataset: Any = None  # the data set that was returned in place of a batch, and what makes a batch of its items
    collate: Any = None


def parts_of(returned: Any, title: str) -> Parts:
    """Return the parts of what the user's function returned: a model, then data, then what can be called."""
    if not isinstance(returned, tuple | list) or len(returned) < 2 or not is_model(returned[0]):
        kind = type(returned).__name__
        raise NotUnderstood(f"{title} gave a {kind}, where a model and a batch are expected; for example: {example()}")
    model, rest = returned[0], list(returned[1:])
    data: list[Any] = []
    while rest and is_data(rest[0]):
        data.append(rest.pop(0))
    if not data or len(data) > 2:
        count = "no batch of tensors" if not data else f"{len(data)} batches; put several inputs into one tuple"
        raise NotUnderstood(f"{title} gave {count} behind the model; for example: {example()}")
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
    if targets is None and isinstance(inputs, tuple | list) and len(inputs) == 2 and not accepts(model, *inputs):
        inputs, targets = inputs  # as a loader yields them
    return Parts(model, inputs, targets, loss, optimiser)


def is_data(part: Any) -> bool:
    """Return whether a part is a batch, a data set, or an object that moves to a device, such as a graph."""
    if is_dataset(part) or (callable(getattr(part, "to", None)) and not callable(part)):
        return True
    return any(trees.is_array(leaf) or trees.is_sparse(leaf) for leaf in trees.leaves(part))


def is_dataset(part: Any) -> bool:
    """Return whether a part is a PyTorch data set of known length, or a loader."""
    names = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("torch.utils.data")}
    return "DataLoader" in names or ("Dataset" in names and hasattr(part, "__len__"))


def is_optimiser(part: Any) -> bool:
    """Return whether a part is an optimiser of any framework, or the class of one."""
    kinds = part.__mro__ if isinstance(part, type) else type(part).__mro__
    return any(kind.__name__ in ("Optimizer", "GradientTransformation") for kind in kinds)


def is_model(part: Any) -> bool:
    """Return whether a part can be called: a model, a function, or a function with its parameters."""
    return callable(part) or is_function_with_parameters(part)


def is_function_with_parameters(part: Any) -> bool:
    """Return whether a part is a model as JAX has it: `(apply, params)`."""
    return isinstance(part, tuple) and len(part) == 2 and callable(part[0]) and not callable(part[1])


def framework_of(parts: Parts) -> str:
    """Return the framework of a batch's arrays, else of the model's type; empty if unknown. NumPy arrays fit any."""
    arrays = [leaf for leaf in trees.leaves((parts.inputs, parts.targets)) if trees.is_array(leaf)]
    by_package = {package: adapter.name for adapter in Adapter.__subclasses__() for package in adapter.packages}
    for part in (*arrays, parts.model):
        for kind in type(part).__mro__:
            if framework := by_package.get(kind.__module__.partition(".")[0]):
                return framework
    return "jax" if is_function_with_parameters(parts.model) else ""


def example(framework: str = "") -> str:
    """Return a line that would work in a framework, or in the first one that the user's code has imported."""
    examples = {adapter.name: adapter.example for adapter in Adapter.__subclasses__()}
    imported = next((name for name in examples if name in sys.modules), "torch")
    return examples.get(framework) or examples[imported]


# -- calling a model -------------------------------------------------------------------------------


def accepts(model: Any, *inputs: Any, **named: Any) -> bool:
    """Return whether a model can be called with these inputs, by its signature."""
    if is_function_with_parameters(model):
        return accepts(model[0], model[1], *inputs, **named)
    if isinstance(layers := getattr(model, "inputs", None), list):  # a Keras model that was built from its inputs
        return len(layers) == len(inputs) + len(named)
    parameters = parameters_of(model)
    if parameters is None:
        return True
    given = [*parameters.values()]
    if hasattr(model, "call"):
        given = [each for each in given if each.name not in SET_BY_KERAS and each.kind is not each.VAR_KEYWORD]
    try:
        inspect.Signature(given).bind(*inputs, **named)
    except TypeError:
        return False
    return True


def parameters_of(model: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a model's forward pass; None without a signature, as some functions written in C."""
    try:
        return inspect.signature(getattr(model, "forward", None) or getattr(model, "call", None) or model).parameters
    except (TypeError, ValueError):
        return None


def call_with_tree(model: Callable[..., Any], inputs: Any, *before: Any) -> Callable[..., Any]:
    """Return a function that calls the model with inputs that are one tree, after other arguments such as `before`.

    A dictionary is passed by name and a tuple one by one, where the model takes them so; else the tree as it is.
    """
    built_from_inputs = isinstance(getattr(model, "inputs", None), list)
    if isinstance(inputs, Mapping) and not built_from_inputs and accepts(model, *before, **inputs):
        return lambda *args, **more: model(*args[:-1], **args[-1], **more)
    if isinstance(inputs, tuple | list) and not built_from_inputs and accepts(model, *before, *inputs):
        return lambda *args, **more: model(*args[:-1], *args[-1], **more)
    return model


def joined(model: Any, inputs: Any, targets: Any) -> Any:
    """Return the inputs with the targets after them, where the model takes them so."""
    if targets is None or isinstance(inputs, Mapping):
        return inputs
    both = _appended(inputs, targets)
    return both if accepts(model, *both) else inputs


def _appended(inputs: Any, targets: Any) -> tuple[Any, ...]:
    return (*inputs, targets) if isinstance(inputs, list | tuple) else (inputs, targets)


def without(inputs: Any, left_out: Path) -> Any:
    """Return the inputs without those of some names or positions."""
    if not left_out:
        return inputs
    if isinstance(inputs, Mapping):
        return {name: part for name, part in inputs.items() if name not in left_out}
    return tuple(part for place, part in enumerate(inputs) if place not in left_out)


def input_names(model: Any, places: Path) -> str:
    """Return the model's own names of some inputs."""
    pair = is_function_with_parameters(model)
    names = [*(parameters_of(model[0] if pair else model) or ())][pair:]
    return ", ".join(names[at] if isinstance(at, int) and at < len(names) else str(at) for at in places)


def batch_as_taken(parts: Parts, source: Source, mode: str | None) -> Callable[[Batch], Batch]:
    """Return a function, which can be pickled, that makes a batch as the model takes it in a mode.

    Targets follow the inputs where the model returns its own loss. Inference leaves out what only the loss needs.
    """
    joins = source.output == "loss" and joined(parts.model, parts.inputs, parts.targets) is not parts.inputs
    return partial(_as_taken, joins, source.loss_inputs if mode == "infer" else ())


def _as_taken(joins: bool, left_out: Path, batch: Batch) -> Batch:
    """Return the batch without some inputs; with `joins`, its targets become inputs."""
    inputs, targets = batch
    if joins:
        inputs, targets = _appended(inputs, targets), None
    return without(inputs, left_out), targets


@contextmanager
def restored(settings: Mapping[str, Setting]) -> Iterator[list[str]]:
    """Restore the settings that the code in the block changes; yield the list of their names, complete at the end."""
    before = {name: get() for name, (get, _) in settings.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, (get, put) in settings.items():
            if get() != before[name]:
                put(before[name])
                changed.append(name)


# -- one framework ---------------------------------------------------------------------------------


class Adapter(ABC):
    """Base class: how a framework's arrays and models are handled.

    Arrays of all frameworks have a shape and a dtype. Nothing more is asked of them here.
    """

    name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()  # packages whose arrays or models belong to the framework
    example: ClassVar[str] = ""  # what a function of the user's may look like
    array_word = "array"
    array_module = ""  # the part of the package with functions of arrays; empty where that is the package itself
    trains_in_place = False  # whether a model is cast, moved and trained in place, so that each case needs a fresh one

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.random = random.Random(SEED)

    @property
    def arrays(self) -> Any:
        return getattr(self.module, self.array_module) if self.array_module else self.module

    @abstractmethod
    def settings(self) -> Mapping[str, Setting]:
        """Return the process-wide settings that a user's code may change."""

    @abstractmethod
    def infer(self, model: Any, inputs: Any) -> Any:
        """Return the model's output in inference."""

    @abstractmethod
    def network(self, parts: Parts, inputs: Any, source: Source, mode: str | None) -> Any:
        """Return the network of a recipe, which takes its inputs as one tree."""

    @abstractmethod
    def cross_entropy(self, output: Any, targets: Any) -> Any:
        """Return the loss for integer targets."""

    @abstractmethod
    def squared_error(self, output: Any, targets: Any) -> Any:
        """Return the loss for other targets."""

    @abstractmethod
    def default_optimiser(self) -> Any:
        """Return AdamW."""

    def roll(self, array: Any, offset: int) -> Any:
        """Return a copy whose items are shifted."""
        return self.arrays.roll(array, offset, 0)

    @abstractmethod
    def take(self, array: Any, places: list[int]) -> Any:
        """Return the items at these places."""

    def prepared(self, parts: Parts) -> Parts:
        """Return the parts with arrays of the framework, in fp32."""
        return parts

    def with_batch(self, parts: Parts, batch: int | None) -> Parts:
        """Return the parts with a batch of the first items of their data set, which they keep."""
        raise NotUnderstood(f"a data set of PyTorch is for its own models, not for {self.name}; return a batch")

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is an array that a model takes."""
        return trees.is_array(leaf)

    def indivisible(self, leaf: Any) -> str:
        """Return what a leaf is, if it has no items that could be taken out; else an empty text."""
        return "" if self.is_array(leaf) or isinstance(leaf, trees.SETTINGS) else f"a {type(leaf).__name__}"

    def shape(self, array: Any) -> tuple[int, ...]:
        return tuple(array.shape)

    # -- describing --------------------------------------------------------------------------------

    def describe(self, parts: Parts, title: str) -> dict[str, Any]:
        """Return the output, modes and items of a model, from a forward pass on its inputs."""
        parts = self.prepared(parts)
        output = self.infer(parts.model, parts.inputs)
        if not any(map(self.is_array, (*trees.leaves(output), getattr(output, "loss", None)))):
            kind = type(output).__name__
            raise NotUnderstood(
                f"{title}: the model gives a {kind}, in which there is no {self.array_word}; {example(self.name)}"
            )
        is_tree = not self.is_array(output)
        known: dict[str, Any] = {"output": "tree" if is_tree else "tensor"}
        if parts.targets is None or (is_tree and parts.loss is None):
            known |= self._own_loss(parts, output)
        if is_tree and parts.targets is not None and parts.loss is None and known["output"] != "loss":
            raise NotUnderstood(
                f"{title}: the model gives several {self.array_word}s; give a loss too: model, inputs, targets, loss"
            )
        if "untrained" not in known:
            self.check_training(parts, None if known["output"] == "loss" else output, title)
        modes = ("infer",) if "untrained" in known else ("train", "infer")
        return {**known, "modes": modes, **self._items(parts.inputs)}

    def check_training(self, parts: Parts, output: Any, title: str) -> None:
        """Raise where the model can't be trained; `output` is None where the model returns its own loss."""
        if output is None:
            return
        try:
            value = self.loss(parts, None)(output, parts.targets)
        except NotUnderstood as error:
            raise NotUnderstood(f"{title}: {error}") from None
        if not hasattr(value, "dtype"):
            raise NotUnderstood(f"{title}: the loss gives a {type(value).__name__}, no array of {self.name}")

    def _own_loss(self, parts: Parts, output: Any) -> dict[str, Any]:
        """Return where the model returns its loss and the inputs that only the loss needs; or why it can't be trained.

        `output` is what it returned for its inputs in inference.
        """
        inputs = joined(parts.model, parts.inputs, parts.targets)
        if parts.loss is not None:
            return {"loss_inputs": self._loss_inputs(parts.model, inputs, parts.loss)}
        try:
            paths = self.loss_paths(parts.model, inputs, output if inputs is parts.inputs else None)
        except NotUnderstood as error:
            return {"untrained": str(error)}
        if len(paths) == 1:
            (path,) = paths
            needed = self._loss_inputs(parts.model, inputs, lambda output: trees.at(output, path))
            return {"output": "loss", "loss": path, "loss_inputs": needed}
        if not paths:
            return {"untrained": NO_LOSS}
        names = ["output" + "".join(f"[{key!r}]" if isinstance(key, int) else f".{key}" for key in path)
                 for path in paths]  # fmt: skip
        which = f"{len(names)} outputs of the model could be the loss ({', '.join(names)}); say which it is"
        return {"untrained": f"{which}: return model, inputs, lambda output: {names[0]}"}

    def loss_paths(self, model: Any, inputs: Any, output: Any) -> list[Path]:
        """Return where the outputs may hold the model's own loss; `output` is None where it is not known yet.

        A single number is a loss by its name, else as the first output, else if it is the only one. Raise
        NotUnderstood where the model fails in training.
        """
        paths = list(losses_in(self.infer(model, inputs) if output is None else output))
        likely = [path for path in paths if path[-1:] == ("loss",)] or [path for path in paths if path == (0,)]
        return likely if len(likely) == 1 else paths

    def _loss_inputs(self, model: Any, inputs: Any, loss: Callable[[Any], Any]) -> Path:
        """Return the inputs that only the loss needs: without them, the model still returns an output."""
        choices: list[Path] = []
        if isinstance(inputs, Mapping):
            choices = [(name,) for name in reversed(list(inputs))]
        elif isinstance(inputs, list | tuple):
            choices = [tuple(range(first, len(inputs))) for first in range(len(inputs) - 1, 0, -1)]
        for left_out in choices:
            with suppress(Exception):  # whatever the user's code raises without them
                output, value = self.infer(model, without(inputs, left_out)), None
                with suppress(Exception):  # of a loss that expects other outputs
                    value = loss(output)
                if not is_loss(value) and any(map(self.is_array, trees.leaves(output))):
                    return left_out
        return ()

    def _items(self, inputs: Any) -> dict[str, Any]:
        first = next((leaf for leaf in trees.leaves(inputs) if self.is_array(leaf) or trees.is_sparse(leaf)), None)
        if first is None:
            return items_of((), False)
        return items_of(self.shape(first), self.is_array(first) and not trees.is_floating(first))

    # -- the recipe --------------------------------------------------------------------------------

    def recipe(self, parts: Parts, source: Source, case: Case, restored_settings: list[str]) -> Recipe:
        parts = self.prepared(parts)
        batch = batch_as_taken(parts, source, case.mode)((parts.inputs, parts.targets))
        draw, unrolled = self._draws(batch)
        notes: dict[str, Any] = {"restored_settings": ", ".join(restored_settings)} if restored_settings else {}
        notes |= {"same_batch": unrolled} if unrolled else {}
        if case.mode == "infer" and source.loss_inputs:
            notes["inference_without"] = input_names(parts.model, source.loss_inputs)
        elif case.mode == "infer" and source.output == "loss":
            notes["loss_in_inference"] = True
        return Recipe(
            network=self.network(parts, batch[0], source, case.mode),
            draw=draw,
            loss=self.loss(parts, source.loss if source.output == "loss" else None),
            optimiser=partial(self.optimiser, parts),
            notes=notes,
        )

    def _draws(self, batch: Batch) -> tuple[Callable[[], Batch], str]:
        """Return a function that draws the batch, its items rolled at random, so that no two steps hit the same cache.

        A batch is rolled as a whole or not at all, since its parts belong together: features and their graph. Where
        a part can't be rolled, every step gets a copy of the same batch; the reason is returned too.
        """
        unrolled = next(filter(None, map(self.indivisible, trees.leaves(batch))), "")
        arrays = [] if unrolled else [leaf for leaf in trees.leaves(batch) if self.is_array(leaf)]
        lengths = {int(array.shape[0]) for array in arrays if array.ndim}
        if len(lengths) > 1:
            unrolled = f"{self.array_word}s of {' and '.join(map(str, sorted(lengths)))} items"

        def draw() -> Batch:
            offset = 0 if unrolled else self.random_below(max([1, *lengths]))

            def rolled(leaf: Any) -> Any:
                return self.roll(leaf, offset) if self.is_array(leaf) and leaf.ndim else leaf

            inputs, targets = trees.mapped(rolled, batch)
            return inputs, targets

        return draw, unrolled

    def random_below(self, limit: int) -> int:
        return self.random.randrange(limit)

    def loss(self, parts: Parts, path: Path | None) -> Loss:
        """Return the user's loss of an output and its targets; else the model's own at a path; else the default."""
        user_loss = parts.loss
        if user_loss is not None:
            return lambda output, targets: user_loss(output) if targets is None else user_loss(output, targets)
        if path is not None:
            return lambda output, targets: trees.at(output, path)
        return self.default_loss

    def default_loss(self, output: Any, targets: Any) -> Any:
        """Return the loss where the user gives none; raise where the shapes fit none."""
        if not hasattr(targets, "dtype"):
            kind = type(targets).__name__
            raise NotUnderstood(f"a {kind} of targets has no usual loss; give one: model, inputs, targets, loss")
        whole = not trees.is_floating(targets)
        if whole and tuple(targets.shape) == (*output.shape[:-1], 1):  # as data sets of Keras have them
            targets = targets[..., 0]
        sizes = tuple(output.shape[:-1] if whole else output.shape)  # None where a graph of TensorFlow leaves it open
        same = all(size in (None, wanted) for size, wanted in zip(sizes, targets.shape, strict=False))
        if len(sizes) != len(targets.shape) or not same:
            kind = "whole targets" if whole else "targets"
            shapes = f"{kind} of shape {tuple(targets.shape)} for outputs of {tuple(output.shape)}"
            raise NotUnderstood(f"there is no usual loss of {shapes}; give one: model, inputs, targets, loss")
        return self.cross_entropy(output, targets) if whole else self.squared_error(output, targets)

    def optimiser(self, parts: Parts, parameters: Any) -> Any:
        """Return the user's optimiser, as given or as their function makes it; else the default."""
        if parts.optimiser is None:
            return self.default_optimiser()
        return parts.optimiser() if callable(parts.optimiser) else parts.optimiser

    def resized(self, parts: Parts, items: int, batch: int) -> tuple[Any, ...]:
        """Return what a function would return for another batch size: the batch's items, repeated as needed."""
        data = parts.inputs, parts.targets
        if batch != items:
            if reason := next(filter(None, map(self.indivisible, trees.leaves(data))), ""):
                raise NotUnderstood(f"there is {reason} in its batch, which can't be made larger")
            places = [place % items for place in range(batch)]

            def repeated(leaf: Any) -> Any:
                divisible = self.is_array(leaf) and leaf.ndim and leaf.shape[0] == items
                return self.take(leaf, places) if divisible else leaf

            data = trees.mapped(repeated, data)
        return tuple(part for part in (parts.model, *data, parts.loss, parts.optimiser) if part is not None)


def items_of(shape: tuple[int, ...], whole: bool) -> dict[str, Any]:
    """Return what a step processes, and how much, by its first input: `whole` for integers."""
    item, items = "sample", shape[0] if shape else 1
    if whole and len(shape) == TOKEN_DIMENSIONS:
        item, items = "token", shape[0] * shape[1]
    elif len(shape) == IMAGE_DIMENSIONS:
        item = "image"
    return {"item": item, "items": max(1, int(items))}


def is_loss(value: Any) -> bool:
    """Return whether a value is a single floating-point number in an array."""
    return trees.is_array(value) and value.ndim == 0 and trees.is_floating(value)


def losses_in(output: Any) -> dict[Path, Any]:
    """Return the single numbers among outputs by their paths; an object may have one as its attribute `loss`."""
    leaves = (*trees.paths(output), (("loss",), getattr(output, "loss", None)))
    return {path: leaf for path, leaf in leaves if is_loss(leaf)}
