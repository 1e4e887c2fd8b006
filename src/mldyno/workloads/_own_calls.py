"""How the user's own model is called, whatever its framework: what it takes, and an example of what would do."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
