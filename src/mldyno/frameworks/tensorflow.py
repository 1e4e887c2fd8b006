"""TensorFlow: layers and optimisers of Keras 3, steps by tf.function, XLA with --compile; on the CPU and on GPUs.

Requires: tensorflow
"""

from __future__ import annotations

import inspect
import math
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks import Unsupported
from mldyno.frameworks.layers import NORM_EPSILON, NORM_MOMENTUM, Layers, in_numpy, with_channels_last
from mldyno.frameworks.program import MATMUL_SIDE, ArrayFramework, Backend, Repeated, multiplied_type, stored_type
from mldyno.records import Device
from mldyno.trees import each_array, is_array
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.records import Case, Fact
    from mldyno.values import Values
    from mldyno.workloads import Build, Optimiser, Recipe

ADAM_EPSILON = 1e-8  # PyTorch's
POLICIES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "amp-bf16": "mixed_bfloat16"}
PRODUCTS = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Einsum")


class Tensorflow(ArrayFramework):
    """TensorFlow."""

    name = "tensorflow"
    compiles = True
    packages = ("tensorflow", "keras")
    out_of_memory, not_supported = ("resourceexhaustederror", "oom when allocating"), ("unimplementederror",)
    thread_variables = ("TF_NUM_INTRAOP_THREADS",)
    tf: Any = None

    def environment(self, case: Case) -> dict[str, str]:
        return super().environment(case) | {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}

    def start(self) -> None:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras
        import tensorflow as tf

        if keras.backend.backend() != "tensorflow":
            raise Unsupported(
                f"keras runs on {keras.backend.backend()} in this process; tensorflow needs a new process"
            )
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)  # else it allocates all of a GPU's memory
        self.tf, self.keras = tf, keras

    def versions(self) -> dict[str, str]:
        built = self.tf.sysconfig.get_build_info()
        versions = {"tensorflow": self.tf.__version__, "keras": self.keras.__version__}
        names = {"cuda": "cuda_version", "cudnn": "cudnn_version"}
        return versions | {name: str(built[key]) for name, key in names.items() if built.get(key)}

    def devices(self) -> list[Device]:
        """Return the CPU and the GPUs."""
        devices = [Device("cpu", "tensorflow")]
        for gpu in self.tf.config.list_physical_devices("GPU"):
            details = self.tf.config.experimental.get_device_details(gpu)
            title = str(details.get("device_name") or Device.title)
            devices.append(Device(device_name(self.tf, gpu.name), "tensorflow", title))
        return devices

    def support(self) -> dict[str, Fact]:
        """Return the platforms of this build; on a Mac that depends on a plug-in, so only its GPU shows it."""
        built = self.tf.sysconfig.get_build_info()
        platforms: dict[str, Fact] = {
            "cuda": built.get("cuda_version") or bool(built.get("is_cuda_build")),
            "rocm": built.get("rocm_version") or bool(built.get("is_rocm_build")),
        }
        return platforms | {"mps": any(device.name.startswith("mps") for device in self.devices())}

    def device(self, case: Case) -> str:
        """Return TensorFlow's name for a case's device."""
        return "/CPU:0" if case.device == "cpu" else f"/GPU:{case.device.partition(':')[2] or 0}"

    def on_device(self, case: Case) -> AbstractContextManager[Any]:
        return self.tf.device(self.device(case))  # type: ignore[no-any-return]

    def layers(self, case: Case, dropout: bool) -> KerasLayers:
        self.keras.utils.set_random_seed(SEED)
        return KerasLayers(self.tf, self.keras, self.device(case), case, dropout)

    def array(self, values: Values, case: Case) -> Any:
        with self.tf.device("/CPU:0"):
            dtype = self.tf.int32 if values.scale is None else stored_type(case)
            return self.tf.constant(with_channels_last(in_numpy(values)), dtype)

    def user_recipe(self, case: Case, build: Build) -> Recipe:
        """Call the user's code under the precision's policy, which Keras layers take when they are created."""
        self.keras.utils.set_random_seed(SEED)
        config, wanted = self.keras.config, POLICIES[case.precision or "fp32"]
        policy = config.dtype_policy()
        config.set_dtype_policy(wanted)
        try:
            recipe = build(self.tf, case)
        finally:
            config.set_dtype_policy(policy)
        if case.precision != "fp32":
            self._check_policy(getattr(recipe.network, "model", recipe.network), wanted, case)
        return recipe

    def _check_policy(self, model: Any, wanted: str, case: Case) -> None:
        if not isinstance(model, self.keras.Layer):
            raise Unsupported(f"tensorflow casts Keras models only; take fp32 instead of {case.precision}")
        if model.dtype_policy.name != wanted:
            created = f"its layers were created for {model.dtype_policy.name}, before the case began"
            raise Unsupported(f"{created}; create them in the function for {case.precision}")

    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> TensorflowBackend:
        return TensorflowBackend(self.tf, self.device(case), case, recipe, dropout)

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        tf, side = self.tf, min(size, MATMUL_SIDE)
        with self.on_device(case):
            parts = [tf.random.stateless_normal((side, side), (1, place)) for place in range(2)]
            drawn = [tf.tile(part, (size // side, size // side)) for part in parts]
            factors = [tf.cast(matrix, multiplied_type(case)) for matrix in drawn]
        wait = waiting(tf, self.device(case), case)
        return Repeated(partial(tf.linalg.matmul, *factors), wait, 2.0 * size**3, partial(self.on_device, case))

    def allocate(self, case: Case, size: int) -> Any:
        """Return zeros, which are written to memory."""
        with self.on_device(case):
            return self.tf.zeros((size,), self.tf.uint8)


def device_name(tf: Any, place: str) -> str:
    """Return our name for a device of TensorFlow, such as /job:localhost/replica:0/task:0/device:GPU:0.

    AMD's GPUs are called cuda, as in PyTorch. A build for neither CUDA nor ROCm has GPUs by Apple's plug-in only.
    """
    kind, _, number = place.rpartition("device:")[2].partition(":")
    if kind == "GPU":
        built_for_cuda = tf.test.is_built_with_cuda() or tf.test.is_built_with_rocm()
        return f"cuda:{number}" if built_for_cuda else f"mps:{number}".removesuffix(":0")
    return "cpu" if (kind, number) == ("CPU", "0") else f"{kind}:{number}"


def reading_back(tf: Any, device: str) -> Callable[[], None]:
    """Return a function that waits for a device: it reads a value that the device computes after all else.

    A device of TensorFlow computes in order, on one stream, and a copy to the host waits for that stream. So it is
    right on every device. `sync_devices` is not: only builds for CUDA and ROCm have a kernel that waits, and on Metal
    it returns at once. On CUDA both are one round trip, and the sum is issued while the device still works.
    """
    with tf.device(device):
        value = tf.ones(())

    def wait() -> None:
        with tf.device(device):
            tf.add(value, value).numpy()

    return wait


def waiting(tf: Any, device: str, case: Case) -> Callable[[], None]:
    """Return a function that waits for the case's device; on the CPU, calls return when they are done."""
    return (lambda: None) if case.device == "cpu" else reading_back(tf, device)


def peak_memory(tf: Any, device: str) -> int | None:
    """Return the peak memory on a device in B; None if it does not count it, as a plug-in's need not."""
    try:
        return int(tf.config.experimental.get_memory_info(device.rpartition("/")[2].removeprefix("device:"))["peak"])
    except (ValueError, KeyError, tf.errors.OpError):
        return None


def on_device(tf: Any, device: str, function: Callable[..., Any], **settings: Any) -> Any:
    """Make a graph of a function on a device; with the scope in it, since a scope around each call takes time."""

    def placed(*arguments: Any) -> Any:
        with tf.device(device):
            return function(*arguments)

    return tf.function(placed, **settings)


class TensorflowBackend(Backend):
    """A callable with `trainable_variables` on a device of TensorFlow."""

    product_types: Any = frozenset()

    def __init__(self, tf: Any, device: str, case: Case, recipe: Recipe, dropout: bool) -> None:
        self.tf, self.device, self.network, self.loss = tf, device, recipe.network, recipe.loss
        self._wait = waiting(tf, device, case)
        self.variables = list(self.network.trainable_variables)
        if case.mode == "train" and not self.variables:
            raise Unsupported("the network has no variables to train; build it before you return it")
        self.params = sum(math.prod(variable.shape) for variable in self.variables) or None
        self.product_types = set()
        self.own_traces = 0
        callee = getattr(self.network, "call", self.network)
        self.takes_training = "training" in inspect.signature(callee).parameters
        if not dropout:
            _switch_dropout_off(getattr(self.network, "model", self.network))
        by_xla = case.compile or None
        if case.mode == "train":
            with tf.device(device):
                self.optimiser = recipe.optimiser(self.variables)
                self.optimiser.build(self.variables)
            self._steps = {
                update: on_device(tf, device, partial(self._step, update), jit_compile=by_xla)
                for update in (True, False)
            }
        self._infer = on_device(tf, device, self._forward, jit_compile=by_xla)

    @property
    def traces(self) -> int:  # type: ignore[override]
        """Also count graphs that the network makes itself."""
        return self.own_traces + int(getattr(self.network, "traces", 0))

    @property
    def _all_variables(self) -> list[Any]:
        """Return the trained variables, and other state of Keras layers."""
        model = getattr(self.network, "model", self.network)
        return list(getattr(model, "weights", self.variables))

    def weights(self) -> Any:
        return [variable.numpy() for variable in self._all_variables]

    def start_from(self, weights: Any) -> None:
        for variable, array in zip(self._all_variables, weights, strict=True):
            variable.assign(array.astype(_value(variable).dtype.as_numpy_dtype))

    def on_host(self, tree: Any) -> Any:
        """Return tensors on the host; Keras layers cast their inputs."""
        with self.tf.device("/CPU:0"):
            return each_array(self.tf.identity, tree)

    def copy_in(self, tree: Any) -> Any:
        with self.tf.device(self.device):
            return each_array(self.tf.identity, tree)

    def copy_out(self, tree: Any) -> None:
        each_array(lambda tensor: tensor.numpy(), tree)

    def flat(self, array: Any) -> Any:
        with self.tf.device(self.device):
            return self.tf.cast(array, self.tf.float32).numpy().reshape(-1)

    def correct(self, output: Any, targets: Any) -> int:
        tf = self.tf
        with tf.device(self.device):
            return int(tf.math.count_nonzero(tf.argmax(output, -1, targets.dtype) == targets))

    def devices(self, *batch: Any) -> set[str]:
        places = [_value(variable).device for variable in self.variables]
        places += [leaf.device for leaf in trees.leaves(batch) if is_array(leaf)]
        return {device_name(self.tf, place) for place in places}

    # -- steps -------------------------------------------------------------------------------------

    def _applied(self, inputs: Any, training: bool) -> Any:
        return self.network(inputs, training=training) if self.takes_training else self.network(inputs)

    def _traced(self) -> None:
        """Count the graph, and note the types of its matmuls, also in the functions that it calls."""
        self.own_traces += 1
        graph = self.tf.compat.v1.get_default_graph().as_graph_def()
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            types = [node.attr["T"].type for node in nodes if node.op in PRODUCTS]
            self.product_types |= {self.tf.as_dtype(kind).name for kind in types}

    def _forward(self, inputs: Any) -> Any:
        output = self._applied(inputs, False)
        self._traced()
        return output

    def _widened(self, tensor: Any) -> Any:
        return self.tf.cast(tensor, self.tf.float32) if tensor.dtype.is_floating else tensor

    def _step(self, update: bool, inputs: Any, targets: Any) -> Any:
        tf = self.tf
        with tf.GradientTape() as tape:
            output = self._applied(inputs, True)
            loss = tf.reduce_mean(self.loss(*(each_array(self._widened, tree) for tree in (output, targets))))
            for added in getattr(self.network, "losses", []):
                loss += tf.cast(added, loss.dtype)
            scaled = self.optimiser.scale_loss(loss)
        gradients = tape.gradient(scaled, [_value(variable) for variable in self.variables])
        if getattr(self.network, "dense_gradients", False):
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        self._traced()
        if not update:
            return output, loss, [gradient for gradient in gradients if gradient is not None]
        self.optimiser.apply(gradients, self.variables)
        return output, loss, []

    def infer(self, inputs: Any) -> Any:
        return self._infer(inputs)

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        output, loss, _ = self._steps[update](inputs, targets)
        return output, loss

    def wait(self) -> None:
        self._wait()

    def fp32_mode(self) -> str | None:
        """Return tf32 if it is on, which counts on NVIDIA's GPUs; None for Metal, which has no setting."""
        if device_name(self.tf, self.device).startswith("mps"):
            return None
        return "tf32" if self.tf.config.experimental.tensor_float_32_execution_enabled() else "fp32"

    def peak(self) -> int | None:
        return peak_memory(self.tf, self.device)


def _value(variable: Any) -> Any:
    """Return TensorFlow's variable in one of Keras."""
    return variable if callable(variable.value) else variable.value


def _switch_dropout_off(model: Any) -> None:
    for layer in model._flatten_layers() if hasattr(model, "_flatten_layers") else ():
        if "Dropout" in type(layer).__name__ and hasattr(layer, "rate"):
            layer.rate = 0.0


class LayerNetwork:
    """A network of layers, as a callable with variables."""

    dense_gradients = True  # as in every other framework; those of an embedding would be sparse

    def __init__(self, layers: KerasLayers, forward: Callable[..., Any]) -> None:
        self.layers, self.forward = layers, forward
        self.trainable_variables = list(layers.values.values())

    @property
    def traces(self) -> int:
        return self.layers.traces

    def __call__(self, inputs: Any, training: bool = False) -> Any:
        """Apply the network to inputs in the case's type."""
        return self.layers.applied(self.forward, training, inputs)


class KerasLayers(Layers):
    """Layers of Keras; `values` are their variables, which they keep themselves."""

    name = "tensorflow"

    def __init__(self, tf: Any, keras: Any, device: str, case: Case, dropout: bool) -> None:
        super().__init__()
        self.tf, self.keras, self.device, self.drops = tf, keras, device, dropout
        self.stored, self.compute_type = tf.as_dtype(stored_type(case)), multiplied_type(case)
        self.policy = POLICIES[case.precision or "fp32"]
        self.relu, self.tanh, self.sigmoid = tf.nn.relu, tf.tanh, tf.sigmoid
        self.values: dict[str, Any] = {}
        self.traces = 0
        self._graphs: dict[str, Any] = {}
        self.by_xla = case.compile or None

    def network(self, forward: Callable[..., Any], first_values: Callable[..., Values]) -> LayerNetwork:
        for name, parameter in self.parameters.items():
            self.values[name].assign(parameter.arranged(in_numpy(first_values(name, parameter.shape))))
        return LayerNetwork(self, forward)

    def applied(self, forward: Callable[..., Any], training: bool, inputs: Any, *caches: Any) -> Any:
        """Run a function of layers."""
        self.training, self.dropping = training, training and self.drops
        if inputs.dtype == self.stored:
            inputs = self.tf.cast(inputs, self.compute_type)
        return forward(inputs, *caches)

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        return self.tf.reduce_mean(self.tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output))

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.tf.reduce_mean(self.tf.reduce_sum(self.tf.square(output - targets), -1))

    def optimiser(self, wanted: Optimiser) -> Any:
        optimizers = self.keras.optimizers
        if wanted.kind == "sgd":
            return optimizers.SGD(wanted.rate, wanted.momentum)
        if wanted.kind == "adam":
            return optimizers.Adam(wanted.rate, epsilon=ADAM_EPSILON)
        return optimizers.AdamW(wanted.rate, weight_decay=wanted.decay, epsilon=ADAM_EPSILON)

    def prefill(self, forward: Any, decoded: int, network: Any, ids: Any, _: Any) -> Any:
        if "prefill" not in self._graphs:
            work = partial(self._token, forward, None)
            self._graphs["prefill"] = on_device(self.tf, self.device, work, jit_compile=self.by_xla)
        return self._graphs["prefill"](ids)

    def decode(self, forward: Any, decoded: int, network: Any, _: Any, previous: Any) -> Any:
        if "decode" not in self._graphs:
            work = lambda token, stored: self._token(forward, stored, token)  # noqa: E731
            self._graphs["decode"] = on_device(self.tf, self.device, work, reduce_retracing=True)
        tokens = []
        for _ in range(decoded):
            previous = self._graphs["decode"](*previous)
            tokens.append(previous[0])
        with self.tf.device(self.device):
            return self.tf.concat(tokens, 1)

    def _token(self, forward: Any, stored: Any, ids: Any) -> Any:
        """Return the next token, and all keys and values up to here."""
        self.traces += 1
        pairs = None if stored is None else dict(enumerate(Cache(self.tf, *pair) for pair in stored))
        caches = defaultdict(lambda: Cache(self.tf)) if pairs is None else pairs
        token = self.tf.argmax(self.applied(forward, False, ids, caches), -1, self.tf.int32)[:, None]
        return token, [(cache.keys, cache.values) for cache in caches.values()]

    # -- layers ------------------------------------------------------------------------------------

    def _linear_layer(self, kernel: str, offset: str, inputs: int, outputs: int) -> Callable[[Any], Any]:
        """Dense; all tokens of a batch go into one product."""
        layer = self.keras.layers.Dense(outputs, dtype=self.policy)
        layer.build((None, inputs))
        self.values |= {kernel: layer.kernel, offset: layer.bias}

        def applied(x: Any) -> Any:
            if len(x.shape) == 2:
                return layer(x)
            return self.tf.reshape(layer(self.tf.reshape(x, (-1, inputs))), (*x.shape[:-1], outputs))

        return applied

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Callable[[Any], Any]:
        """Conv2D; what it pads unevenly by itself is padded before it."""
        weight = self.add(f"{name}.weight", outputs, inputs, kernel, kernel, order=self.kernel_order)
        keeps_size = bool(padding) and stride == 1 and 2 * padding + 1 == kernel
        how = "same" if keeps_size else "valid"
        layer = self.keras.layers.Conv2D(outputs, kernel, stride, how, use_bias=bias, dtype=self.policy)
        layer.build((None, None, None, inputs))
        self.values[weight] = layer.kernel
        if bias:
            self.values[self.add(f"{name}.bias", outputs)] = layer.bias
        sides = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        padded = bool(padding) and not keeps_size
        return lambda x: layer(self.tf.pad(x, sides) if padded else x)

    def batch_norm(self, name: str, channels: int) -> Callable[[Any], Any]:
        norm = self.keras.layers.BatchNormalization(momentum=1 - NORM_MOMENTUM, epsilon=NORM_EPSILON, dtype=self.policy)
        norm.build((None, None, None, channels))
        self.values |= {
            self.add(f"{name}.weight", channels): norm.gamma, self.add(f"{name}.bias", channels): norm.beta,
        }  # fmt: skip
        return lambda x: norm(x, training=self.training)

    def layer_norm(self, name: str, width: int, epsilon: float) -> Callable[[Any], Any]:
        norm = self.keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.policy)
        norm.build((None, width))
        self.values |= {self.add(f"{name}.weight", width): norm.gamma, self.add(f"{name}.bias", width): norm.beta}
        return norm  # type: ignore[no-any-return]

    def embedding(self, name: str, count: int, width: int, padding: int | None = None) -> Any:
        layer = self.keras.layers.Embedding(count, width, dtype=self.policy)
        layer.build((None,))
        embedding = super().embedding(name, count, width)
        self.values[embedding.weight] = layer.embeddings
        return embedding

    def dropout(self, rate: float) -> Callable[[Any], Any]:
        layer = self.keras.layers.Dropout(rate, dtype=self.policy)
        return lambda x: layer(x, training=True) if self.dropping and rate else x

    def lstm(self, name: str, inputs: int, hidden: int) -> Callable[[Any], Any]:
        """Loop over the sequence: Keras's own layer has one bias, PyTorch's two."""
        layer = super().lstm(name, inputs, hidden)
        stored = self.keras.DTypePolicy(self.policy).variable_dtype
        for parameter in list(self.parameters.values()):
            if parameter.name.endswith(f"_{name}"):
                zeros = self.tf.zeros(parameter.shape[::-1])
                self.values[parameter.name] = self.keras.Variable(zeros, dtype=stored)
        return layer

    def computed(self, variable: Any) -> Any:
        """Return a variable in the type that is multiplied."""
        return self.tf.cast(variable.value, self.compute_type)

    def _lstm(self, x: Any, *weights: Any) -> Any:
        tf = self.tf
        inputs, recurrent, bias, second_bias = map(self.computed, weights)
        seq, batch, width = x.shape
        gates = tf.reshape(tf.reshape(x, (-1, width)) @ inputs + (bias + second_bias), (seq, batch, -1))
        start = tf.zeros((batch, recurrent.shape[0]), x.dtype)

        def step(state: Any, given: Any) -> Any:
            hidden, cell = state
            return self.lstm_step(given + hidden @ recurrent, cell)

        return tf.scan(step, gates, (start, start))[0]

    def _attention(self, query: Any, key: Any, value: Any, dropout: float, causal: bool, before: Any) -> Any:
        tf = self.tf
        query, key, value = (tf.transpose(x, (0, 2, 1, 3)) for x in (query * query.shape[-1] ** -0.5, key, value))
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
        if causal and query.shape[2] != 1:  # a single token sees all before it
            places = tf.range(query.shape[2])
            scores = tf.where(places[None, :] <= places[:, None], scores, tf.constant(-float("inf")))
        weights = tf.cast(tf.nn.softmax(scores), value.dtype)
        weights = tf.nn.dropout(weights, dropout) if dropout else weights
        return tf.transpose(tf.matmul(weights, value), (0, 2, 1, 3))

    def max_pool(self, size: int, stride: int = 0, padding: int = 0) -> Callable[[Any], Any]:
        sides = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        layer = self.keras.layers.MaxPooling2D(size, stride or size, dtype=self.policy)

        def pooled(x: Any) -> Any:
            return layer(self.tf.pad(x, sides, constant_values=x.dtype.min) if padding else x)

        return pooled

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        return lambda: self.tf.constant(rows, self.compute_type)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        return self.tf.nn.gelu(x, approximate=by_tanh)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return self.tf.reshape(x, shape)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.tf.reduce_mean(x, axes)

    def split(self, x: Any, parts: int) -> Any:
        return self.tf.split(x, parts, axis=-1)

    def take(self, table: Any, ids: Any) -> Any:
        return self.tf.cast(self.tf.gather(table.value, ids), self.compute_type)

    def rows(self, table: Any, start: Any, count: int) -> Any:
        return self.tf.slice(self.computed(table), (start, 0), (count, table.shape[1]))

    def scores(self, x: Any, table: Any) -> Any:
        flat = self.tf.matmul(self.tf.reshape(x, (-1, x.shape[-1])), self.computed(table), transpose_b=True)
        return self.tf.reshape(flat, (*x.shape[:-1], table.shape[0]))


class Cache:
    """Keys and values of one layer, as long as the tokens that there are."""

    def __init__(self, tf: Any, keys: Any = None, values: Any = None) -> None:
        self.tf, self.keys, self.values = tf, keys, values

    @property
    def length(self) -> Any:
        return 0 if self.keys is None else self.tf.shape(self.keys)[1]

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Store those of the next tokens; return all that are there."""
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys = self.tf.concat([self.keys, key], 1)
            self.values = self.tf.concat([self.values, value], 1)
        return self.keys, self.values


FRAMEWORK = Tensorflow()
