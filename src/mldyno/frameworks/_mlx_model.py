"""A network in MLX: pure functions of a dictionary of parameters; each step is issued as soon as it is described."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks._arrays import multiplied_type, stored_type
from mldyno.frameworks._layers import Caches, Layers
from mldyno.frameworks._portable import PortableModel, per_channel

if TYPE_CHECKING:
    from collections.abc import Callable

    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads._portable import Portable

MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norms: how far running statistics follow, as in PyTorch
IMAGE_DIMENSIONS = 4
SEED = 1


class MlxLayers(Layers):
    """Layers on the arrays of mlx.core."""

    name = "mlx"
    inputs_first = False
    kernel_order = (0, 2, 3, 1)

    def __init__(self, mx: Any, nn: ModuleType) -> None:
        super().__init__()
        self.mx, self.nn = mx, nn
        self.key: Any = None

    def _linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.mx.addmm(bias, x, weight.T)

    def _convolution(self, x: Any, kernel: Any, stride: int, padding: int) -> Any:
        return self.mx.conv2d(x, kernel, stride, padding)

    def _batch_norm(self, name: str, x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = self.statistics[name]
        if self.training:
            old, (mean, variance) = (mean, variance), (x.mean((0, 1, 2)), x.var((0, 1, 2)))
            self.statistics[name] = tuple(
                (1 - MOMENTUM) * before + MOMENTUM * now for before, now in zip(old, (mean, variance), strict=True)
            )
        factor = scale * self.mx.rsqrt(variance + EPSILON).astype(scale.dtype)
        return x * factor + (offset - mean.astype(scale.dtype) * factor)

    def _layer_norm(self, x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
        return self.mx.fast.layer_norm(x, scale, offset, epsilon)

    def _dropout(self, x: Any, rate: float) -> Any:
        self.key, own = self.mx.random.split(self.key)
        return self.mx.random.bernoulli(1 - rate, x.shape, own) * x * (1 / (1 - rate))

    def _lstm(self, x: Any, inputs: Any, recurrent: Any, bias: Any, second_bias: Any) -> Any:
        gates = self.mx.addmm(bias + second_bias, x, inputs.T)
        hidden = cell = self.mx.zeros((x.shape[1], recurrent.shape[1]), x.dtype)
        outputs = []
        for place in range(x.shape[0]):
            into, forget, new, out = self.mx.split(self.mx.addmm(gates[place], hidden, recurrent.T), 4, axis=-1)
            sigmoid = self.mx.sigmoid
            cell = sigmoid(forget) * cell + sigmoid(into) * self.mx.tanh(new)
            hidden = sigmoid(out) * self.mx.tanh(cell)
            outputs.append(hidden)
        return self.mx.stack(outputs)

    def _attention(self, query: Any, key: Any, value: Any, dropout: float, causal: bool, before: Any) -> Any:
        scale, causal = query.shape[-1] ** -0.5, causal and query.shape[1] > 1  # a single token sees all before it
        query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
        if not dropout:
            mask = "causal" if causal else None
            attended = self.mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)
            return attended.swapaxes(1, 2)
        scores = (query * scale) @ key.swapaxes(2, 3)
        if causal:
            places = self.mx.arange(query.shape[2])
            scores = self.mx.where(places <= places[:, None], scores, -self.mx.inf)
        weights = self._dropout(self.mx.softmax(scores, axis=-1, precise=True), dropout)
        return (weights @ value).swapaxes(1, 2)

    def max_pool(self, size: int, stride: int = 0, padding: int = 0) -> Callable[[Any], Any]:
        """The largest of each window."""
        pool: Callable[[Any], Any] = self.nn.MaxPool2d(size, stride or size, padding)
        return pool

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        """A matrix, in the type of the parameters."""
        matrix = self.mx.array(rows)
        return lambda: matrix.astype(next(iter(self.values.values())).dtype)

    def relu(self, x: Any) -> Any:
        """What is under 0 becomes 0."""
        return self.nn.relu(x)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        """Exact, or by the formula with tanh."""
        return self.nn.gelu_approx(x) if by_tanh else self.nn.gelu(x)

    def tanh(self, x: Any) -> Any:
        """The hyperbolic tangent."""
        return self.mx.tanh(x)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Over these axes."""
        return x.mean(axes)

    def split(self, x: Any, parts: int) -> Any:
        """The last axis in equal parts."""
        return self.mx.split(x, parts, axis=-1)

    def take(self, table: Any, ids: Any) -> Any:
        """Rows of a table."""
        return table[ids]

    def rows(self, table: Any, start: Any, count: int) -> Any:
        """So many rows from that one on."""
        return table[start : start + count]

    def scores(self, x: Any, table: Any) -> Any:
        """The product of x with each row of a table."""
        return x @ table.T


class Cache:
    """Keys and values of one layer, with room for more tokens than there are yet."""

    def __init__(self, mx: Any, room: int) -> None:
        self.mx, self.room, self.length = mx, room, 0
        self.keys: Any = None
        self.values: Any = None

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Keep those of the next tokens; gives all that are there."""
        if self.keys is None:
            batch, _, heads, width = key.shape
            self.keys, self.values = (self.mx.zeros((batch, self.room, heads, width), key.dtype) for _ in range(2))
        start, self.length = self.length, self.length + key.shape[1]
        self.keys[:, start : self.length], self.values[:, start : self.length] = key, value
        return self.keys[:, : self.length], self.values[:, : self.length]


class MlxModel(PortableModel):
    """A network on one of MLX's devices."""

    def __init__(
        self,
        mx: Any,
        nn: ModuleType,
        optimizers: ModuleType,
        device: Any,
        case: Case,
        portable: Portable,
        dropout: bool,
    ) -> None:
        self.mx, self.portable, self.dropout = mx, portable, dropout
        self.device = device
        mx.set_default_device(device)
        self.stored, self.computed = getattr(mx, stored_type(case)), getattr(mx, multiplied_type(case))
        self.layers: MlxLayers = MlxLayers(mx, nn)
        self.network = portable.network(self.layers, case)
        self.parameters = {
            name: mx.contiguous(parameter.arranged(self._numbers(portable.first_values(name, parameter.shape))))
            for name, parameter in self.layers.parameters.items()
        }
        self.statistics = {
            name: (mx.zeros(channels), mx.ones(channels)) for name, channels in self.layers.normed.items()
        }
        self.optimiser = self._optimiser(optimizers)
        self.key = mx.random.key(SEED)
        compiled = self._compiled if case.compile else lambda function: function
        if case.mode == "train":
            self.optimiser.init(self.parameters)
            self._find = mx.value_and_grad(self._loss_of)
            self._steps = {update: compiled(self._step(update)) for update in (True, False)}
        self._infer = compiled(self._forward)
        mx.eval(self.parameters, self.statistics, self.optimiser.state)

    def _optimiser(self, optimizers: ModuleType) -> Any:
        wanted = self.portable.optimiser
        if wanted.kind == "sgd":
            return optimizers.SGD(wanted.rate, wanted.momentum)
        if wanted.kind == "adam":
            return optimizers.Adam(wanted.rate, bias_correction=True)
        return optimizers.AdamW(wanted.rate, weight_decay=wanted.decay, bias_correction=True)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one graph; MLX reads it anew for each graph."""

        def counted(*arguments: Any) -> Any:
            self.traces += 1
            return function(*arguments)

        graph: Callable[..., Any] = self.mx.compile(counted)
        return graph

    # -- arrays ------------------------------------------------------------------------------------

    def _numbers(self, values: Values) -> Any:
        whole = self.mx.array(values.whole).reshape(values.shape)
        if values.scale is None:
            return whole
        scale, offset = (self.mx.array(each).reshape(per_channel(each)) for each in (values.scale, values.offset))
        return (whole.astype(self.mx.float32) * scale + offset).astype(self.stored)

    def place(self, values: Values) -> Any:
        """An array on the device."""
        array = self._numbers(values)
        array = self.mx.contiguous(array.transpose(0, 2, 3, 1)) if array.ndim == IMAGE_DIMENSIONS else array
        self.mx.eval(array)
        return array

    def on_host(self, values: Values) -> Any:
        """As a view of memory, which MLX copies."""
        return memoryview(self.place(values))

    def copy_in(self, array: Any) -> Any:
        """A copy in MLX's own memory."""
        return self.mx.array(array)

    def copy_out(self, array: Any) -> None:
        """As bytes of the host's."""
        self.mx.eval(array)
        bytes(memoryview(array))

    def sample_values(self, array: Any, most: int) -> list[float]:
        """So many values, evenly taken."""
        flat = array.astype(self.mx.float32).reshape(-1)
        values: list[float] = flat[:: max(1, flat.size // most)][:most].tolist()
        return values

    def devices(self, *arrays: Any) -> set[str]:
        """Where all of it is computed: MLX's arrays have no place of their own."""
        used = self.mx.default_device()
        return {"cpu" if used == self.mx.Device(self.mx.cpu) else self.gpu_name}

    @property
    def gpu_name(self) -> str:
        """Our name for its GPU."""
        return "mps" if self.mx.metal.is_available() else "cuda:0"

    # -- steps -------------------------------------------------------------------------------------

    def _applied(self, parameters: Any, statistics: Any, inputs: Any, key: Any = None, caches: Any = None) -> Any:
        """The network's output, and the statistics after it."""
        layers = self.layers
        layers.values = parameters if self.computed == self.stored else {
            name: value.astype(self.computed) for name, value in parameters.items()
        }  # fmt: skip
        layers.statistics, layers.training, layers.key = dict(statistics), key is not None, key
        layers.dropping = self.dropout and layers.training
        if inputs.dtype == self.stored:
            inputs = inputs.astype(self.computed)
        output = self.network(inputs) if caches is None else self.network(inputs, caches)
        return output, layers.statistics

    def _forward(self, parameters: Any, statistics: Any, inputs: Any) -> Any:
        return self._applied(parameters, statistics, inputs)[0]

    def _loss_of(self, parameters: Any, statistics: Any, key: Any, inputs: Any, targets: Any) -> Any:
        output, statistics = self._applied(parameters, statistics, inputs, key)
        exact = output.astype(self.mx.float32)
        if self.portable.loss == "squared-error":
            loss = self.mx.square(exact - targets.astype(self.mx.float32)).sum(-1).mean()
        else:
            loss = self.layers.nn.losses.cross_entropy(exact, targets, reduction="mean")
        return loss, output, statistics

    def _step(self, update: bool) -> Any:
        optimiser = self.optimiser

        def step(parameters: Any, statistics: Any, state: Any, key: Any, inputs: Any, targets: Any) -> Any:
            key, own = self.mx.random.split(key)
            (loss, output, statistics), gradients = self._find(parameters, statistics, own, inputs, targets)
            if not update:
                return parameters, statistics, state, key, output, loss, gradients
            optimiser.state = state
            parameters = optimiser.apply_gradients(gradients, parameters)
            return parameters, statistics, optimiser.state, key, output, loss, {}

        return step

    def infer(self, inputs: Any) -> Any:
        """Issue a forward pass."""
        output = self._infer(self.parameters, self.statistics, inputs)
        self.mx.async_eval(output)
        return output

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step."""
        given = (self.parameters, self.statistics, self.optimiser.state, self.key)
        *state, output, loss, gradients = self._steps[update](*given, inputs, targets)
        self.parameters, self.statistics, self.optimiser.state, self.key = state
        self.mx.async_eval(state, loss, gradients)
        return output, loss

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        self.mx.synchronize()

    def peak(self) -> int:
        """In B."""
        return int(self.mx.get_peak_memory())

    # -- text --------------------------------------------------------------------------------------

    def prefill(self, ids: Any, room: int) -> Any:
        """The token after the prompt, and its keys and values."""
        caches = Caches(lambda: Cache(self.mx, room))
        token = self._applied(self.parameters, self.statistics, ids, caches=caches)[0].argmax(-1, keepdims=True)
        self.mx.async_eval(token)
        return token, caches

    def decode(self, given: Any, count: int) -> Any:
        """One token after the other."""
        token, caches = given
        tokens = []
        for _ in range(count):
            token = self._applied(self.parameters, self.statistics, token, caches=caches)[0].argmax(-1, keepdims=True)
            self.mx.async_eval(token)
            tokens.append(token)
        return self.mx.concatenate(tokens, axis=1)


DRAWN_SIDE = 1024  # of a random matrix; larger ones repeat it


class Matmul:
    """The product of two random square matrices, over and over."""

    def __init__(self, mx: Any, device: Any, case: Case, size: int) -> None:
        self.mx, side = mx, min(size, DRAWN_SIDE)
        self.stream = mx.default_stream(device)
        dtype = getattr(mx, multiplied_type(case))
        parts = [mx.random.normal((side, side), dtype, key=key) for key in mx.random.split(mx.random.key(SEED))]
        self.factors = [mx.tile(part, (size // side, size // side)) for part in parts]
        mx.eval(self.factors)
        self.work = 2.0 * size**3

    def run(self, steps: int) -> None:
        """Issue matmuls."""
        for _ in range(steps):
            self.mx.async_eval(self.mx.matmul(*self.factors, stream=self.stream))

    def synchronize(self) -> None:
        """Until the device has nothing left to do."""
        self.mx.synchronize(self.stream)
