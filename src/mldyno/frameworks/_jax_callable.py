"""A user's own model in JAX: its function jitted, in training with donated buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks._arrays import multiplied_type, stored_type
from mldyno.frameworks._callables import CallableModel
from mldyno.frameworks._jax_model import JaxSteps, device_name
from mldyno.trees import is_array, is_floating

if TYPE_CHECKING:
    from collections.abc import Callable

    from mldyno.records import Case
    from mldyno.workloads import Recipe

PRODUCTS = ("dot_general", "conv_general_dilated")


class JaxCallable(JaxSteps, CallableModel):
    """A function with its parameters, on one of JAX's devices; it has its generators' keys itself."""

    def __init__(
        self,
        jax: ModuleType,
        optax: ModuleType,
        device: Any,
        case: Case,
        recipe: Recipe,
        compile_time: Callable[[], float],
    ) -> None:
        self.compiled, self.compiled_before = compile_time, compile_time()
        self.jax, self.optax, self.device, self.loss = jax, optax, device, recipe.loss
        self.returns = case.placement == "roundtrip"
        np = jax.numpy
        self.stored, self.computed = getattr(np, stored_type(case)), getattr(np, multiplied_type(case))
        self.apply, params, rest = _with_rest(recipe.network)
        self.optimiser: Any = recipe.optimiser(params) if case.mode == "train" else None
        self.rest = rest  # in the types that it has; within a step in the case's
        self.start_from(params)
        self.shapes: Any = None
        self.pending: list[Any] = []
        self._infer = jax.jit(self._forward)
        if self.optimiser is not None:
            self._steps = {update: jax.jit(self._step(update), donate_argnums=0) for update in (True, False)}

    def start_from(self, weights: Any) -> None:
        """From parameters of the user's own, which stay as they are."""
        jax, np = self.jax, self.jax.numpy
        parameters = jax.tree.map(lambda leaf: jax.device_put(self._stored(leaf).copy(), self.device), weights)
        rest = jax.device_put(jax.tree.map(np.copy, self.rest), self.device)
        self.state: tuple[Any, ...] = (parameters, rest)
        if self.optimiser is not None:
            with jax.default_device(self.device):
                self.state = (parameters, rest, self.optimiser.init(parameters))

    def weights(self) -> Any:
        """Arrays of NumPy, since the state is used up by the next step."""
        return self.jax.tree.map(lambda leaf: self.jax.device_get(leaf).copy(), self.state[0])

    @property
    def params(self) -> int | None:
        """Of a function alone it is not known what it has within."""
        return sum(math.prod(leaf.shape) for leaf in self.jax.tree.leaves(self.state[0])) or None

    def compile_time(self) -> float:
        """Without what the user's code took to make the model."""
        return self.compiled() - self.compiled_before

    # -- arrays ------------------------------------------------------------------------------------

    def _stored(self, leaf: Any) -> Any:
        """An array of NumPy, in the case's type."""
        array = self.jax.device_get(self.jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf)
        return array.astype(self.stored) if is_floating(array) else array

    def on_host(self, values: Any) -> Any:
        """Arrays of NumPy."""
        return self.jax.tree.map(lambda leaf: self._stored(leaf) if is_array(leaf) else leaf, values)

    def copy_in(self, array: Any) -> Any:
        """Arrays of NumPy on the device."""
        return self.jax.device_put(array, self.device)

    def copy_out(self, array: Any) -> None:
        """As arrays of NumPy."""
        self.jax.device_get(array)

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = array.astype(self.jax.numpy.float32).reshape(-1)
        return [float(value) for value in self.jax.device_get(flat[:: max(1, len(flat) // most)][:most])]

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it lies."""
        leaves = self.jax.tree.leaves((self.state, arrays))
        return {device_name(device) for leaf in leaves if hasattr(leaf, "devices") for device in leaf.devices()}

    # -- steps -------------------------------------------------------------------------------------

    def _cast(self, tree: Any, dtype: Any) -> Any:
        return self.jax.tree.map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)

    def _applied(self, parameters: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        if self.computed != self.stored:
            parameters, inputs = self._cast((parameters, inputs), self.computed)
        output, after = self.apply(parameters, self._cast(rest, self.computed), inputs)
        back = self.jax.tree.map(lambda new, old: new.astype(old.dtype) if is_floating(old) else new, after, rest)
        return output, back

    def _traced(self, *arguments: Any) -> None:
        self.traces += 1
        struct = self.jax.ShapeDtypeStruct
        self.shapes = self.jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), arguments)

    def _forward(self, parameters: Any, rest: Any, inputs: Any) -> Any:
        self._traced(parameters, rest, inputs)
        return self._applied(parameters, rest, inputs)[0]

    def _step(self, update: bool) -> Any:
        jax, np = self.jax, self.jax.numpy

        def loss_of(parameters: Any, rest: Any, inputs: Any, targets: Any) -> Any:
            output, rest = self._applied(parameters, rest, inputs)
            exact_output, exact_targets = (self._cast(tree, np.float32) for tree in (output, targets))
            return np.mean(self.loss(exact_output, exact_targets)), (output, rest)

        def step(state: Any, inputs: Any, targets: Any) -> Any:
            parameters, rest, optimiser_state = state
            self._traced(parameters, rest, inputs)
            find = jax.value_and_grad(loss_of, has_aux=True)
            (loss, (output, after)), gradients = find(parameters, rest, inputs, targets)
            if not update:
                return state, output, loss, gradients
            changes, optimiser_state = self.optimiser.update(gradients, optimiser_state, parameters)
            parameters = self.optax.apply_updates(parameters, changes)
            return (parameters, after, optimiser_state), output if self.returns else None, loss, None

        return step

    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass."""
        output = self._infer(*self.state[:2], inputs)
        self.pending.append(output)
        return output

    @cached_property
    def _product_types(self) -> set[str]:
        traced = self.jax.make_jaxpr(self._applied)(*self.shapes)
        products = [each for each in _equations(traced.jaxpr) if each.primitive.name in PRODUCTS]
        return {str(variable.aval.dtype) for each in products for variable in each.invars}

    @property
    def multiplied(self) -> set[str]:
        """By the operations that JAX has read from the function."""
        return set() if self.shapes is None else self._product_types


def _with_rest(network: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """A function with its parameters, and what else it holds; a recipe need not have that."""
    if len(network) == 3:
        return network
    apply, params = network
    return (lambda parameters, rest, inputs: (apply(parameters, inputs), rest)), params, ()


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All operations of a function, with those of the functions within it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)
