"""A network in JAX: pure functions of a dictionary of parameters, jitted, with donated buffers."""

from __future__ import annotations

from types import ModuleType
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
IMAGE_DIMENSIONS = 4
SEED = 1
KINDS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "cuda", "METAL": "mps", "mps": "mps", "xpu": "xpu"}
"""Our names for JAX's platforms; AMD's cards are called cuda, as in PyTorch."""


def device_name(device: Any) -> str:
    """Our name of one of JAX's devices."""
    kind = KINDS.get(device.platform, device.platform)
    index = getattr(device, "local_hardware_id", None) or 0
    return f"{kind}:{index}" if index or kind == "cuda" else kind


class JaxLayers(Layers):
    """Layers on the arrays of jax.numpy."""

    name = "jax"

    def __init__(self, jax: ModuleType) -> None:
        super().__init__()
        self.jax, self.np, self.lax = jax, jax.numpy, jax.lax
        self.key: Any = None

    def _linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight + bias

    def _convolution(self, x: Any, kernel: Any, stride: int, padding: int) -> Any:
        sides = [(padding, padding)] * 2
        return self.lax.conv_general_dilated(
            x, kernel, (stride, stride), sides, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def _batch_norm(self, name: str, x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = self.statistics[name]
        if self.training:
            exact = x.astype(self.np.float32)
            old, (mean, variance) = (mean, variance), (exact.mean((0, 1, 2)), exact.var((0, 1, 2)))
            self.statistics[name] = tuple(
                (1 - MOMENTUM) * before + MOMENTUM * now for before, now in zip(old, (mean, variance), strict=True)
            )
        factor = scale * self.lax.rsqrt(variance + EPSILON).astype(scale.dtype)
        return x * factor + (offset - mean.astype(scale.dtype) * factor)

    def _layer_norm(self, x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
        exact = x.astype(self.np.float32)
        mean, variance = exact.mean(-1, keepdims=True), exact.var(-1, keepdims=True)
        return ((exact - mean) * self.lax.rsqrt(variance + epsilon)).astype(x.dtype) * scale + offset

    def _dropout(self, x: Any, rate: float) -> Any:
        self.key, own = self.jax.random.split(self.key)
        kept = self.jax.random.bernoulli(own, 1 - rate, x.shape)
        return self.np.where(kept, x / (1 - rate), self.np.zeros((), x.dtype))

    def _lstm(self, x: Any, inputs: Any, recurrent: Any, bias: Any, second_bias: Any) -> Any:
        gates = x @ inputs + (bias + second_bias)
        start = self.np.zeros((x.shape[1], recurrent.shape[0]), x.dtype)

        def step(state: Any, given: Any) -> Any:
            hidden, cell = state
            into, forget, new, out = self.np.split(given + hidden @ recurrent, 4, axis=-1)
            sigmoid = self.jax.nn.sigmoid
            cell = sigmoid(forget) * cell + sigmoid(into) * self.np.tanh(new)
            hidden = sigmoid(out) * self.np.tanh(cell)
            return (hidden, cell), hidden

        return self.lax.scan(step, (start, start), gates)[1]

    def _attention(self, query: Any, key: Any, value: Any, dropout: float, causal: bool, before: Any) -> Any:
        scores = self.np.einsum("bqhd,bkhd->bhqk", query, key).astype(self.np.float32) * query.shape[-1] ** -0.5
        if causal:
            last = before + self.np.arange(query.shape[1])[:, None]
            scores = self.np.where(self.np.arange(key.shape[1]) <= last, scores, -self.np.inf)
        weights = self.jax.nn.softmax(scores, axis=-1).astype(value.dtype)
        weights = self._dropout(weights, dropout) if dropout else weights
        return self.np.einsum("bhqk,bkhd->bqhd", weights, value)

    def max_pool(self, size: int, stride: int = 0, padding: int = 0) -> Callable[[Any], Any]:
        """The largest of each window."""
        window, steps = (1, size, size, 1), (1, stride or size, stride or size, 1)
        sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return lambda x: self.lax.reduce_window(x, -self.np.inf, self.lax.max, window, steps, sides)

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        """A matrix, in the type of the parameters."""
        return lambda: self.np.asarray(rows, next(iter(self.values.values())).dtype)

    def relu(self, x: Any) -> Any:
        """What is under 0 becomes 0."""
        return self.jax.nn.relu(x)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        """Exact, or by the formula with tanh."""
        return self.jax.nn.gelu(x, approximate=by_tanh)

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent."""
        return self.np.tanh(x)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Over these axes."""
        return x.mean(axes)

    def split(self, x: Any, parts: int) -> Any:
        """The last axis in equal parts."""
        return self.np.split(x, parts, axis=-1)

    def take(self, table: Any, ids: Any) -> Any:
        """Rows of a table."""
        return self.np.take(table, ids, axis=0)

    def rows(self, table: Any, start: Any, count: int) -> Any:
        """So many rows from that one on."""
        return self.lax.dynamic_slice_in_dim(table, start, count)

    def scores(self, x: Any, table: Any) -> Any:
        """The product of x with each row of a table."""
        return x @ table.T


class Cache:
    """Keys and values of one layer, with room for more tokens than there are yet."""

    def __init__(self, jax: ModuleType, room: int, stored: Any = None, length: Any = 0) -> None:
        self.jax, self.room, self.stored, self.length = jax, room, stored, length

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Keep those of the next tokens; gives all, with the room that is left, and a prompt's as they are."""
        put, first = self.jax.lax.dynamic_update_slice_in_dim, self.stored is None
        if first:
            batch, _, heads, width = key.shape
            self.stored = (self.jax.numpy.zeros((batch, self.room, heads, width), key.dtype),) * 2
        keys, values = self.stored
        self.stored = put(keys, key, self.length, 1), put(values, value, self.length, 1)
        self.length = self.length + key.shape[1]
        return (key, value) if first else self.stored


class JaxSteps:
    """Steps as JAX issues them, of networks of layers and of functions of the user's own alike."""

    jax: Any
    device: Any
    state: tuple[Any, ...]
    pending: list[Any]
    """Outputs that were not waited for."""
    _steps: dict[bool, Any]
    """The jitted step, with the optimiser's part and without."""

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step; the state that it is given is used up."""
        self.state, output, loss, gradients = self._steps[update](self.state, inputs, targets)
        self.pending = [self.state, loss, gradients]
        return output, loss

    def wait(self) -> None:
        """Until all outputs are there."""
        self.jax.block_until_ready(self.pending)
        self.pending = []

    def peak(self) -> int | None:
        """As far as the device counts it, in B."""
        counted = (self.device.memory_stats() or {}).get("peak_bytes_in_use")
        return None if counted is None else int(counted)


class JaxModel(JaxSteps, PortableModel):
    """A network on one of JAX's devices."""

    def __init__(
        self,
        jax: ModuleType,
        optax: ModuleType,
        device: Any,
        case: Case,
        portable: Portable,
        dropout: bool,
        compile_time: Callable[[], float],
    ) -> None:
        import numpy

        self.compile_time = compile_time  # type: ignore[method-assign]
        self.jax, self.numpy, self.device, self.portable = jax, numpy, device, portable
        self.training, self.dropout, self.returns = case.mode == "train", dropout, case.placement == "roundtrip"
        np = jax.numpy
        self.stored, self.computed = getattr(np, stored_type(case)), getattr(np, multiplied_type(case))
        self.layers: JaxLayers = JaxLayers(jax)
        self.network = portable.network(self.layers, case)
        parameters = {
            name: self._put(parameter.arranged(in_numpy(self.numpy, portable.first_values(name, parameter.shape))))
            for name, parameter in self.layers.parameters.items()
        }
        statistics = {
            name: tuple(jax.device_put(make(channels, numpy.float32), device) for make in (numpy.zeros, numpy.ones))
            for name, channels in self.layers.normed.items()
        }
        self.pending: list[Any] = []
        self._infer = jax.jit(self._forward)
        self.optimiser = self._optimiser(optax)
        if self.training:
            with jax.default_device(device):
                key, state = jax.random.PRNGKey(SEED), self.optimiser.init(parameters)
            self.state: tuple[Any, ...] = (parameters, statistics, state, key)
            self._steps = {update: jax.jit(self._step(update), donate_argnums=0) for update in (True, False)}
        else:
            self.state = (parameters, statistics)
            self._prefill = jax.jit(self._prefilled, static_argnums=3)
            self._decode = jax.jit(self._decoded, static_argnums=5)

    def _optimiser(self, optax: ModuleType) -> Any:
        wanted = self.portable.optimiser
        if wanted.kind == "sgd":
            return optax.sgd(wanted.rate, wanted.momentum or None)
        if wanted.kind == "adam":
            return optax.adam(wanted.rate)
        return optax.adamw(wanted.rate, weight_decay=wanted.decay)

    # -- arrays ------------------------------------------------------------------------------------

    def _put(self, array: Any) -> Any:
        floating = array.dtype.kind == "f"
        return self.jax.device_put(array.astype(self.stored) if floating else array, self.device)

    def on_host(self, values: Values) -> Any:
        """An array of NumPy, in the case's type."""
        array = in_numpy(self.numpy, values)
        array = array.transpose(0, 2, 3, 1).copy() if array.ndim == IMAGE_DIMENSIONS else array
        return array.astype(self.stored) if array.dtype.kind == "f" else array

    def place(self, values: Values) -> Any:
        """An array on the device."""
        return self.jax.device_put(self.on_host(values), self.device)

    def copy_in(self, array: Any) -> Any:
        """An array of NumPy on the device."""
        return self.jax.device_put(array, self.device)

    def copy_out(self, array: Any) -> None:
        """As an array of NumPy."""
        self.numpy.asarray(array)

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = self.numpy.asarray(array.astype(self.jax.numpy.float32)).reshape(-1)
        return [float(value) for value in flat[:: max(1, len(flat) // most)][:most]]

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it lies."""
        leaves = self.jax.tree.leaves((self.state, arrays))
        return {device_name(device) for leaf in leaves for device in leaf.devices()}

    # -- steps -------------------------------------------------------------------------------------

    def _applied(self, parameters: Any, statistics: Any, inputs: Any, key: Any = None, caches: Any = None) -> Any:
        """The network's output, and the statistics after it."""
        layers, computed = self.layers, self.computed
        layers.values = parameters if computed == self.stored else {
            name: value.astype(computed) for name, value in parameters.items()
        }  # fmt: skip
        layers.statistics, layers.training, layers.key = dict(statistics), key is not None, key
        layers.dropping = self.dropout and layers.training
        if inputs.dtype == self.stored:
            inputs = inputs.astype(computed)
        output = self.network(inputs) if caches is None else self.network(inputs, caches)
        return output, layers.statistics

    def _forward(self, parameters: Any, statistics: Any, inputs: Any) -> Any:
        self.traces += 1
        return self._applied(parameters, statistics, inputs)[0]

    def _loss(self, output: Any, targets: Any) -> Any:
        np, exact = self.jax.numpy, output.astype(self.jax.numpy.float32)
        if self.portable.loss == "squared-error":
            return np.square(exact - targets.astype(np.float32)).sum(-1).mean()
        scores = self.jax.nn.log_softmax(exact)
        return -np.take_along_axis(scores, targets[..., None], axis=-1).mean()

    def _step(self, update: bool) -> Any:
        jax, optimiser = self.jax, self.optimiser

        def loss_of(parameters: Any, statistics: Any, key: Any, inputs: Any, targets: Any) -> Any:
            output, statistics = self._applied(parameters, statistics, inputs, key)
            return self._loss(output, targets), (output, statistics)

        def step(state: Any, inputs: Any, targets: Any) -> Any:
            self.traces += 1
            parameters, statistics, optimiser_state, key = state
            key, own = jax.random.split(key)
            find = jax.value_and_grad(loss_of, has_aux=True)
            (loss, (output, statistics)), gradients = find(parameters, statistics, own, inputs, targets)
            if not update:
                return (parameters, statistics, optimiser_state, key), output, loss, gradients
            changes, optimiser_state = optimiser.update(gradients, optimiser_state, parameters)
            parameters = {name: value + changes[name].astype(value.dtype) for name, value in parameters.items()}
            return (parameters, statistics, optimiser_state, key), output if self.returns else None, loss, None

        return step

    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass."""
        output = self._infer(*self.state[:2], inputs)
        self.pending.append(output)
        return output

    # -- text --------------------------------------------------------------------------------------

    def prefill(self, ids: Any, room: int) -> Any:
        """The token after the prompt, and keys and values with room."""
        given = self._prefill(*self.state, ids, room)
        self.pending.append(given)
        return given

    def decode(self, given: Any, count: int) -> Any:
        """One token after the other."""
        tokens = self._decode(*self.state, *given, count)
        self.pending.append(tokens)
        return tokens

    def _prefilled(self, parameters: Any, statistics: Any, ids: Any, room: int) -> Any:
        self.traces += 1
        caches = Caches(lambda: Cache(self.jax, room))
        token = self._applied(parameters, statistics, ids, caches=caches)[0].argmax(-1)[:, None]
        length = self.jax.numpy.int32(ids.shape[1])
        return token, [cache.stored for cache in caches.values()], length

    def _decoded(self, parameters: Any, statistics: Any, token: Any, stored: Any, length: Any, count: int) -> Any:
        self.traces += 1

        def step(state: Any, _: Any) -> Any:
            token, stored, length = state
            caches = dict(enumerate(Cache(self.jax, 0, pair, length) for pair in stored))
            token = self._applied(parameters, statistics, token, caches=caches)[0].argmax(-1)[:, None]
            return (token, [cache.stored for cache in caches.values()], length + 1), token

        return self.jax.lax.scan(step, (token, stored, length), None, count)[1]


DRAWN_SIDE = 1024  # of a random matrix; larger ones repeat it


class Matmul:
    """The product of two random square matrices, over and over."""

    def __init__(self, jax: ModuleType, device: Any, case: Case, size: int) -> None:
        import numpy

        self.jax, side = jax, min(size, DRAWN_SIDE)
        chance, dtype = numpy.random.default_rng(SEED), getattr(jax.numpy, multiplied_type(case))
        parts = [chance.standard_normal((side, side), numpy.float32) for _ in range(2)]
        repeats = (size // side, size // side)
        self.factors = [jax.device_put(numpy.tile(part, repeats).astype(dtype), device) for part in parts]
        self.multiply = jax.jit(jax.numpy.matmul)
        self.results: list[Any] = []
        self.work = 2.0 * size**3

    def run(self, steps: int) -> None:
        """Issue matmuls."""
        self.results += [self.multiply(*self.factors) for _ in range(steps)]

    def synchronize(self) -> None:
        """Until all results are there."""
        self.jax.block_until_ready(self.results)
        self.results = []
