"""A user's own model in TensorFlow: a step is a tf.function, with the gradients of its tape."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import Unsupported
from mldyno.frameworks._callables import CallableModel
from mldyno.frameworks._keras_model import PRODUCTS, TensorflowSteps
from mldyno.trees import each_array, is_array

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Recipe


class TensorflowCallable(TensorflowSteps, CallableModel):
    """A callable with variables, on one of TensorFlow's devices."""

    def __init__(self, tf: Any, device: str, case: Case, recipe: Recipe, dropout: bool) -> None:
        self.tf, self.device, self.network, self.loss = tf, device, recipe.network, recipe.loss
        self.accelerated = case.device != "cpu"
        self.variables = list(self.network.trainable_variables)
        if case.mode == "train" and not self.variables:
            raise Unsupported("the network has no variables to train; build it before you give it")
        self.product_types: set[str] = set()
        callee = getattr(self.network, "call", self.network)
        self.takes_training = "training" in inspect.signature(callee).parameters
        if not dropout:
            _switch_dropout_off(getattr(self.network, "model", self.network))
        if case.mode == "train":
            with tf.device(device):
                self.optimiser = recipe.optimiser(self.variables)
                self.optimiser.build(self.variables)
            self._steps = {update: self._graph(self._step(update), case.compile) for update in (True, False)}
        self._infer = self._graph(self._forward, case.compile)

    def _graph(self, function: Callable[..., Any], by_xla: bool) -> Any:
        """The function as a graph on the device; said within it, since a scope around each call takes its time."""

        def placed(*arguments: Any) -> Any:
            with self.tf.device(self.device):
                return function(*arguments)

        return self.tf.function(placed, jit_compile=by_xla or None)

    @property
    def _all_variables(self) -> list[Any]:
        """Those that are trained, and those that layers of Keras keep beside them."""
        model = getattr(self.network, "model", self.network)
        return list(getattr(model, "weights", self.variables))

    def weights(self) -> Any:
        """Arrays of NumPy."""
        return [variable.numpy() for variable in self._all_variables]

    def start_from(self, weights: Any) -> None:
        """Arrays of NumPy, in the type of each variable."""
        for variable, array in zip(self._all_variables, weights, strict=True):
            variable.assign(array.astype(_value(variable).dtype.as_numpy_dtype))

    @property
    def params(self) -> int | None:
        """Of a function that reads no variables it is not known what it has within."""
        return sum(math.prod(variable.shape) for variable in self.variables) or None

    @property
    def multiplied(self) -> set[str]:
        """By the operations of the graphs."""
        return self.product_types

    # -- arrays ------------------------------------------------------------------------------------

    def on_host(self, values: Any) -> Any:
        """Tensors of the host; Keras casts what its layers take."""
        with self.tf.device("/CPU:0"):
            return each_array(self.tf.identity, values)

    def copy_in(self, array: Any) -> Any:
        """Tensors of the host on the device."""
        with self.tf.device(self.device):
            return each_array(self.tf.identity, array)

    def copy_out(self, array: Any) -> None:
        """As arrays of NumPy."""
        each_array(lambda tensor: tensor.numpy(), array)

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = self.tf.cast(array, self.tf.float32).numpy().reshape(-1)
        return [float(value) for value in flat[:: max(1, len(flat) // most)][:most]]

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it lies."""
        places = [_value(variable).device for variable in self.variables]
        places += [leaf.device for leaf in trees.leaves(arrays) if is_array(leaf)]
        kinds = {place.rpartition("device:")[2] for place in places}
        return {"cpu" if kind == "CPU:0" else kind.replace("GPU", "cuda") for kind in kinds}

    # -- steps -------------------------------------------------------------------------------------

    def _applied(self, inputs: Any, training: bool) -> Any:
        return self.network(inputs, training=training) if self.takes_training else self.network(inputs)

    def _traced(self) -> None:
        """Count the graph, and note the types of all products in it."""
        self.traces += 1
        definition = self.tf.compat.v1.get_default_graph().as_graph_def()
        for node in _nodes(definition):
            if node.op in PRODUCTS:
                self.product_types.add(self.tf.as_dtype(node.attr["T"].type).name)

    def _forward(self, inputs: Any) -> Any:
        output = self._applied(inputs, False)
        self._traced()
        return output

    def _widened(self, tensor: Any) -> Any:
        return self.tf.cast(tensor, self.tf.float32) if tensor.dtype.is_floating else tensor

    def _step(self, update: bool) -> Any:
        tf = self.tf

        def step(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                output = self._applied(inputs, True)
                loss = tf.reduce_mean(self.loss(*(each_array(self._widened, tree) for tree in (output, targets))))
                for added in getattr(self.network, "losses", []):
                    loss += tf.cast(added, loss.dtype)
                scaled = self.optimiser.scale_loss(loss)
            gradients = tape.gradient(scaled, [_value(variable) for variable in self.variables])
            self._traced()
            if not update:
                return output, loss, [gradient for gradient in gradients if gradient is not None]
            self.optimiser.apply(gradients, self.variables)
            return output, loss, []

        return step


def _value(variable: Any) -> Any:
    """TensorFlow's own variable, within one of Keras."""
    return variable if callable(variable.value) else variable.value


def _nodes(definition: Any) -> Iterator[Any]:
    """All operations of a graph, with those of the functions that it calls."""
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _switch_dropout_off(model: Any) -> None:
    """In all layers of Keras that have it."""
    for layer in model._flatten_layers() if hasattr(model, "_flatten_layers") else ():
        if "Dropout" in type(layer).__name__ and hasattr(layer, "rate"):
            layer.rate = 0.0
