"""How the user's own model is called, whatever its framework: what it takes, and an example of what would do."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from mldyno.trees import Path

EXAMPLES = {
    "torch": "def build(batch_size=32): "
    "return model, torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))",
    "tensorflow": "def build(batch_size=32): "
    "return keras_model, tf.random.normal((batch_size, 64)), tf.zeros(batch_size, tf.int32)",
    "jax": "def build(batch_size=32): "
    "return (apply, params), jnp.ones((batch_size, 64)), jnp.zeros(batch_size, int), where apply(params, inputs)",
    "mlx": "def build(batch_size=32): "
    "return mlx_module, mx.random.normal((batch_size, 64)), mx.zeros(batch_size, mx.int32)",
}
NO_INPUTS = ("training", "mask")  # parameters of a model of Keras, which sets them itself


def example_here(framework: str = "") -> str:
    """A line that would do in a framework; else in the first one that the user's code has imported."""
    imported = next((name for name in EXAMPLES if name in sys.modules), "torch")
    return EXAMPLES.get(framework) or EXAMPLES[imported]


def is_model(part: Any) -> bool:
    """Whether it can be called: a model, a function, or a function with its parameters."""
    return callable(part) or is_function_with_parameters(part)


def is_function_with_parameters(part: Any) -> bool:
    """Whether it is what a model is in JAX: `(apply, params)`."""
    return isinstance(part, tuple) and len(part) == 2 and callable(part[0]) and not callable(part[1])


def takes(model: Any, *inputs: Any, **named: Any) -> bool:
    """Whether a model can be called with these inputs."""
    if is_function_with_parameters(model):
        return takes(model[0], model[1], *inputs, **named)
    if isinstance(layers := getattr(model, "inputs", None), list):  # a network of Keras, made from its inputs
        return len(layers) == len(inputs) + len(named)
    of_keras = hasattr(model, "call")
    function = getattr(model, "forward", None) or getattr(model, "call", None) or model
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # what is written in C may not say what it takes
        return True
    parameters = [*signature.parameters.values()]
    if of_keras:
        parameters = [each for each in parameters if each.name not in NO_INPUTS and each.kind is not each.VAR_KEYWORD]
    try:
        signature.replace(parameters=parameters).bind(*inputs, **named)
    except TypeError:
        return False
    return True


def taking_tree(model: Callable[..., Any], inputs: Any, *before: Any) -> Callable[..., Any]:
    """A function that takes its inputs as one tree, behind so many other arguments, and hands them to the model.

    A dictionary goes by its names and a tuple one by one, where the model takes them so; else as it is.
    """
    made_from_inputs = isinstance(getattr(model, "inputs", None), list)
    if isinstance(inputs, Mapping) and not made_from_inputs and takes(model, *before, **inputs):
        return lambda *given, **more: model(*given[:-1], **given[-1], **more)
    if isinstance(inputs, tuple | list) and not made_from_inputs and takes(model, *before, *inputs):
        return lambda *given, **more: model(*given[:-1], *given[-1], **more)
    return model


# -- inputs that are for a loss of the model's own ---------------------------------------------------


def joined(model: Any, inputs: Any, targets: Any) -> Any:
    """The inputs with the targets behind them, where there are some and the model takes them so."""
    if targets is None or isinstance(inputs, Mapping):
        return inputs
    both = (*inputs, targets) if isinstance(inputs, list | tuple) else (inputs, targets)
    return both if takes(model, *both) else inputs


def without(inputs: Any, left_out: Path) -> Any:
    """The inputs without some of them, by name or place."""
    if not left_out:
        return inputs
    if isinstance(inputs, Mapping):
        return {name: part for name, part in inputs.items() if name not in left_out}
    return tuple(part for place, part in enumerate(inputs) if place not in left_out)


def loss_inputs(inputs: Any, has_no_loss: Callable[[Any], bool]) -> Path:
    """The inputs without which the model gives an output all the same, and no loss; nothing where there are none."""
    choices: list[Path] = []
    if isinstance(inputs, Mapping):
        choices = [(name,) for name in reversed(list(inputs))]
    elif isinstance(inputs, list | tuple):
        choices = [tuple(range(first, len(inputs))) for first in range(len(inputs) - 1, 0, -1)]
    for left_out in choices:
        with suppress(Exception):  # whatever the user's code raises without them
            if has_no_loss(without(inputs, left_out)):
                return left_out
    return ()


def input_names(model: Any, places: Path) -> str:
    """What a model calls some of its inputs."""
    pair = is_function_with_parameters(model)
    function = model[0] if pair else getattr(model, "forward", None) or getattr(model, "call", None) or model
    names: list[str] = []
    with suppress(TypeError, ValueError):  # what is written in C may not say what it takes
        names = list(inspect.signature(function).parameters)[pair:]
    return ", ".join(names[at] if isinstance(at, int) and at < len(names) else str(at) for at in places)


def several_losses(ways: Collection[Path]) -> str:
    """That it can't be told which output is the loss, and what to return."""
    names = ["output" + "".join(f"[{key!r}]" if isinstance(key, int) else f".{key}" for key in way) for way in ways]
    which = f"{len(names)} outputs of the model could be the loss ({', '.join(names)}); say which it is"
    return f"{which}: return model, inputs, lambda output: {names[0]}"


NO_LOSS = "no output of the model is a loss, a single number; return model, inputs, targets"


def has_parameter(function: Any, name: str) -> bool:
    """Whether a function says that it takes an argument of that name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""What gives a setting of the whole process, and what sets it."""


@contextmanager
def restored(settings: Mapping[str, Setting]) -> Iterator[list[str]]:
    """Set back what code changes of some settings; gives the names of what it was, when all is done."""
    before = {name: get() for name, (get, _) in settings.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, (get, put) in settings.items():
            if get() != before[name]:
                put(before[name])
                changed.append(name)
