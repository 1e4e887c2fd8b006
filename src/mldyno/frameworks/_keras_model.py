"""A network in TensorFlow: layers and optimisers of Keras, each step a tf.function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mldyno.frameworks._arrays import multiplied_type, stored_type
from mldyno.frameworks._layers import Caches, Layers
from mldyno.frameworks._portable import PortableModel, in_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads._portable import Portable

MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norms: how far running statistics follow, as in PyTorch
ADAM_EPSILON = 1e-8  # PyTorch's
POLICIES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "amp-bf16": "mixed_bfloat16"}
PRODUCTS = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Einsum")
IMAGE_DIMENSIONS = 4


class KerasLayers(Layers):
    """Layers of Keras; `values` are their variables, which they keep themselves."""

    name = "tensorflow"

    def __init__(self, tf: Any, keras: Any, policy: str) -> None:
        super().__init__()
        self.tf, self.keras, self.policy = tf, keras, policy
        self.values: dict[str, Any] = {}

    def _linear_layer(self, kernel: str, offset: str, inputs: int, outputs: int) -> Callable[[Any], Any]:
        """Dense; all tokens of a batch go into one product."""
        layer = self._built(self.keras.layers.Dense(outputs, dtype=self.policy), (None, inputs))
        self.values |= {kernel: layer.kernel, offset: layer.bias}

        def applied(x: Any) -> Any:
            self.note(x)
            if len(x.shape) == 2:
                return layer(x)
            return self.tf.reshape(layer(self.tf.reshape(x, (-1, inputs))), (*x.shape[:-1], outputs))

        return applied

    def _built(self, layer: Any, shape: tuple[int | None, ...]) -> Any:
        layer.build(shape)
        return layer

    def convolution(
        self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Callable[[Any], Any]:
        """Conv2D; what it pads unevenly by itself is padded before it."""
        weight = self.add(f"{name}.weight", outputs, inputs, kernel, kernel, order=self.kernel_order)
        keeps_size = bool(padding) and stride == 1 and 2 * padding + 1 == kernel
        how = "same" if keeps_size else "valid"
        layer = self.keras.layers.Conv2D(outputs, kernel, stride, how, use_bias=bias, dtype=self.policy)
        self._built(layer, (None, None, None, inputs))
        self.values[weight] = layer.kernel
        if bias:
            self.values[self.add(f"{name}.bias", outputs)] = layer.bias
        sides = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        padded = bool(padding) and not keeps_size
        return lambda x: layer(self.tf.pad(self.note(x), sides) if padded else self.note(x))

    def batch_norm(self, name: str, channels: int) -> Callable[[Any], Any]:
        """BatchNormalization."""
        norm = self.keras.layers.BatchNormalization(momentum=1 - MOMENTUM, epsilon=EPSILON, dtype=self.policy)
        self._built(norm, (None, None, None, channels))
        self.values |= {
            self.add(f"{name}.weight", channels): norm.gamma, self.add(f"{name}.bias", channels): norm.beta,
        }  # fmt: skip
        return lambda x: norm(x, training=self.training)

    def layer_norm(self, name: str, width: int, epsilon: float) -> Callable[[Any], Any]:
        """LayerNormalization."""
        norm = self.keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.policy)
        self._built(norm, (None, width))
        self.values |= {self.add(f"{name}.weight", width): norm.gamma, self.add(f"{name}.bias", width): norm.beta}
        return norm  # type: ignore[no-any-return]

    def embedding(self, name: str, count: int, width: int) -> Any:
        """Embedding."""
        layer = self._built(self.keras.layers.Embedding(count, width, dtype=self.policy), (None,))
        embedding = super().embedding(name, count, width)
        self.values[embedding.weight] = layer.embeddings
        return embedding

    def dropout(self, rate: float) -> Callable[[Any], Any]:
        """Dropout."""
        layer = self.keras.layers.Dropout(rate, dtype=self.policy)
        return lambda x: layer(x, training=True) if self.dropping and rate else x

    def lstm(self, name: str, inputs: int, hidden: int) -> Callable[[Any], Any]:
        """A loop over the sequence: Keras's own layer has one bias, PyTorch's two."""
        layer = super().lstm(name, inputs, hidden)
        for parameter in list(self.parameters.values()):
            if parameter.name.endswith(f"_{name}"):
                shape = parameter.shape[::-1]
                self.values[parameter.name] = self.keras.Variable(
                    self.tf.zeros(shape), dtype=self.keras.DTypePolicy(self.policy).variable_dtype
                )
        return layer

    def computed(self, variable: Any) -> Any:
        """A variable, in the type that is multiplied."""
        return self.tf.cast(variable.value, self.keras.DTypePolicy(self.policy).compute_dtype)

    def _lstm(self, x: Any, *weights: Any) -> Any:
        tf = self.tf
        inputs, recurrent, bias, second_bias = map(self.computed, weights)
        seq, batch, width = x.shape
        gates = tf.reshape(tf.reshape(x, (-1, width)) @ inputs + (bias + second_bias), (seq, batch, -1))
        start = tf.zeros((batch, recurrent.shape[0]), x.dtype)

        def step(state: Any, given: Any) -> Any:
            hidden, cell = state
            into, forget, new, out = tf.split(given + hidden @ recurrent, 4, axis=-1)
            cell = tf.sigmoid(forget) * cell + tf.sigmoid(into) * tf.tanh(new)
            return tf.sigmoid(out) * tf.tanh(cell), cell

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

    def attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        heads: int,
        dropout: float = 0.0,
        causal: bool = False,
        cache: Any = None,
    ) -> Any:
        """As in any framework; a tensor has no method to change its shape."""
        tf, (batch, seq, width) = self.tf, query.shape
        query, key, value = (tf.reshape(x, (batch, seq, heads, width // heads)) for x in (query, key, value))
        if cache is not None:
            key, value = cache.extend(key, value)
        attended = self._attention(self.note(query), key, value, dropout if self.dropping else 0.0, causal, 0)
        return tf.reshape(attended, (batch, seq, width))

    def max_pool(self, size: int, stride: int = 0, padding: int = 0) -> Callable[[Any], Any]:
        """The largest of each window."""
        sides = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
        layer = self.keras.layers.MaxPooling2D(size, stride or size, dtype=self.policy)

        def pooled(x: Any) -> Any:
            return layer(self.tf.pad(x, sides, constant_values=x.dtype.min) if padding else x)

        return pooled

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        """A matrix, in the type that is multiplied."""
        return lambda: self.tf.constant(rows, self.keras.DTypePolicy(self.policy).compute_dtype)

    def relu(self, x: Any) -> Any:
        """What is under 0 becomes 0."""
        return self.tf.nn.relu(x)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        """Exact, or by the formula with tanh."""
        return self.tf.nn.gelu(x, approximate=by_tanh)

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent."""
        return self.tf.tanh(x)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Over these axes."""
        return self.tf.reduce_mean(x, axes)

    def split(self, x: Any, parts: int) -> Any:
        """The last axis in equal parts."""
        return self.tf.split(x, parts, axis=-1)

    def flatten(self, x: Any) -> Any:
        """All but the first axis in one."""
        return self.tf.reshape(x, (x.shape[0], -1))

    def take(self, table: Any, ids: Any) -> Any:
        """Rows of a table."""
        return self.tf.cast(self.tf.gather(table.value, ids), self.keras.DTypePolicy(self.policy).compute_dtype)

    def rows(self, table: Any, start: Any, count: int) -> Any:
        """So many rows from that one on."""
        return self.tf.slice(self.computed(table), (start, 0), (count, table.shape[1]))

    def scores(self, x: Any, table: Any) -> Any:
        """The product of x with each row of a table."""
        flat = self.tf.matmul(self.tf.reshape(x, (-1, x.shape[-1])), self.computed(table), transpose_b=True)
        return self.tf.reshape(flat, (*x.shape[:-1], table.shape[0]))


class Cache:
    """Keys and values of one layer, as long as the tokens that there are."""

    def __init__(self, tf: Any, keys: Any = None, values: Any = None) -> None:
        self.tf, self.keys, self.values = tf, keys, values

    @property
    def length(self) -> Any:
        """Tokens so far."""
        return 0 if self.keys is None else self.tf.shape(self.keys)[1]

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Keep those of the next tokens; gives all that are there."""
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys = self.tf.concat([self.keys, key], 1)
            self.values = self.tf.concat([self.values, value], 1)
        return self.keys, self.values


class TensorflowSteps:
    """Steps as TensorFlow issues them, of networks of layers and of models of the user's own alike."""

    tf: Any
    device: str
    accelerated: bool
    _infer: Any
    _steps: dict[bool, Any]
    """The step as a graph, with the optimiser's part and without."""

    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass."""
        return self._infer(inputs)

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step."""
        output, loss, _ = self._steps[update](inputs, targets)
        return output, loss

    def wait(self) -> None:
        """A CPU is done when its call returns."""
        if self.accelerated:
            self.tf.test.experimental.sync_devices()

    def peak(self) -> int:
        """In B."""
        return int(self.tf.config.experimental.get_memory_info(self.device.strip("/"))["peak"])


class KerasModel(TensorflowSteps, PortableModel):
    """A network on one of TensorFlow's devices."""

    def __init__(self, tf: Any, keras: Any, device: str, case: Case, portable: Portable, dropout: bool) -> None:
        import numpy

        self.numpy, self.tf, self.device, self.portable, self.dropout = numpy, tf, device, portable, dropout
        self.training, self.returns = case.mode == "train", case.placement == "roundtrip"
        self.stored, self.computed = tf.as_dtype(stored_type(case)), tf.as_dtype(multiplied_type(case))
        self.accelerated = case.device != "cpu"
        keras.utils.set_random_seed(1)
        with tf.device(device):
            self.layers: KerasLayers = KerasLayers(tf, keras, POLICIES[case.precision or "fp32"])
            self.network = portable.network(self.layers, case)
            for name, parameter in self.layers.parameters.items():
                values = in_numpy(self.numpy, portable.first_values(name, parameter.shape))
                self.layers.values[name].assign(parameter.arranged(values))
            self.variables = list(self.layers.values.values())
            self.optimiser = self._optimiser(keras)
            if self.training:
                self.optimiser.build(self.variables)
        xla = case.compile
        self._steps = {update: self._graph(self._step(update), jit_compile=xla) for update in (True, False)}
        self._infer = self._graph(self._forward, jit_compile=xla)
        self._prefill = self._graph(self._prefilled, jit_compile=xla)
        self._next = self._graph(self._followed, reduce_retracing=True)

    def _graph(self, function: Callable[..., Any], **settings: Any) -> Any:
        """The function as a graph on the device; said within it, since a scope around each call takes its time."""

        def placed(*arguments: Any) -> Any:
            with self.tf.device(self.device):
                return function(*arguments)

        return self.tf.function(placed, **settings)

    def _optimiser(self, keras: Any) -> Any:
        wanted = self.portable.optimiser
        if wanted.kind == "sgd":
            return keras.optimizers.SGD(wanted.rate, wanted.momentum)
        if wanted.kind == "adam":
            return keras.optimizers.Adam(wanted.rate, epsilon=ADAM_EPSILON)
        return keras.optimizers.AdamW(wanted.rate, weight_decay=wanted.decay, epsilon=ADAM_EPSILON)

    # -- arrays ------------------------------------------------------------------------------------

    def on_host(self, values: Values) -> Any:
        """A tensor of the host, in the case's type."""
        array = in_numpy(self.numpy, values)
        array = array.transpose(0, 2, 3, 1) if array.ndim == IMAGE_DIMENSIONS else array
        with self.tf.device("/CPU:0"):
            return self.tf.constant(array, self.stored if values.scale is not None else self.tf.int32)

    def place(self, values: Values) -> Any:
        """A tensor of the device."""
        return self.copy_in(self.on_host(values))

    def copy_in(self, array: Any) -> Any:
        """A tensor of the host on the device."""
        with self.tf.device(self.device):
            return self.tf.identity(array)

    def copy_out(self, array: Any) -> None:
        """As an array of NumPy."""
        array.numpy()

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = self.tf.cast(array, self.tf.float32).numpy().reshape(-1)
        return [float(value) for value in flat[:: max(1, len(flat) // most)][:most]]

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it lies."""
        places = [variable.value.device for variable in self.variables] + [array.device for array in arrays]
        kinds = {place.rpartition("device:")[2] for place in places}
        names = {"CPU:0": "cpu"}
        return {names.get(kind, kind.replace("GPU", "cuda")) for kind in kinds}

    def correct(self, output: Any, targets: Any) -> int:
        """How many outputs are largest where their targets say."""
        tf = self.tf
        return int(tf.math.count_nonzero(tf.argmax(output, -1, targets.dtype) == targets))

    # -- steps -------------------------------------------------------------------------------------

    def _applied(self, inputs: Any, training: bool, caches: Any = None) -> Any:
        layers = self.layers
        layers.training, layers.dropping = training, training and self.dropout
        if inputs.dtype == self.stored:
            inputs = self.tf.cast(inputs, self.computed)
        return self.network(inputs) if caches is None else self.network(inputs, caches)

    def _traced(self) -> None:
        """Count the graph, and note the types of all products in it: what layers multiply, not only what they get."""
        self.traces += 1
        operations = self.tf.compat.v1.get_default_graph().get_operations()
        self.layers.multiplied |= {each.get_attr("T").name for each in operations if each.type in PRODUCTS}

    def _forward(self, inputs: Any) -> Any:
        output = self._applied(inputs, False)
        self._traced()
        return output

    def _loss(self, output: Any, targets: Any) -> Any:
        tf, exact = self.tf, self.tf.cast(output, self.tf.float32)
        if self.portable.loss == "squared-error":
            return tf.reduce_mean(tf.reduce_sum(tf.square(exact - tf.cast(targets, tf.float32)), -1))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, exact))

    def _step(self, update: bool) -> Any:
        tf = self.tf

        def step(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                output = self._applied(inputs, True)
                loss = self._loss(output, targets)
            gradients = tape.gradient(loss, [variable.value for variable in self.variables])
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            self._traced()
            if not update:
                return output, loss, gradients
            self.optimiser.apply(gradients, self.variables)
            return output, loss, []

        return step

    # -- text --------------------------------------------------------------------------------------

    def prefill(self, ids: Any, room: int) -> Any:
        """The token after the prompt, and its keys and values."""
        return self._prefill(ids)

    def decode(self, given: Any, count: int) -> Any:
        """One token after the other."""
        tokens = []
        for _ in range(count):
            given = self._next(*given)
            tokens.append(given[0])
        with self.tf.device(self.device):
            return self.tf.concat(tokens, 1)

    def _prefilled(self, ids: Any) -> Any:
        self.traces += 1
        return self._token(ids, Caches(lambda: Cache(self.tf)))

    def _followed(self, token: Any, stored: Any) -> Any:
        self.traces += 1
        return self._token(token, dict(enumerate(Cache(self.tf, *pair) for pair in stored)))

    def _token(self, ids: Any, caches: Any) -> Any:
        """The next token, and all keys and values up to here."""
        scores = self._applied(ids, False, caches)
        token = self.tf.argmax(scores, -1, self.tf.int32)[:, None]
        return token, [(cache.keys, cache.values) for cache in caches.values()]


DRAWN_SIDE = 1024  # of a random matrix; larger ones repeat it


class Matmul:
    """The product of two random square matrices, over and over."""

    def __init__(self, tf: Any, device: str, case: Case, size: int) -> None:
        self.tf, side = tf, min(size, DRAWN_SIDE)
        self.accelerated = case.device != "cpu"
        with tf.device(device):
            parts = [tf.random.stateless_normal((side, side), (1, place)) for place in range(2)]
            drawn = [tf.tile(part, (size // side, size // side)) for part in parts]
            self.factors = [tf.cast(matrix, multiplied_type(case)) for matrix in drawn]
        self.work = 2.0 * size**3

    def run(self, steps: int) -> None:
        """Issue matmuls."""
        multiply = self.tf.linalg.matmul
        for _ in range(steps):
            multiply(*self.factors)

    def synchronize(self) -> None:
        """A CPU is done when its call returns."""
        if self.accelerated:
            self.tf.test.experimental.sync_devices()
