"""MLX: lazy arrays, forced at the end of each step, on the CPU and on GPUs.

Requires: mlx
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mldyno import system_queries, trees
from mldyno.frameworks import Unsupported
from mldyno.frameworks.layers import Layers, per_channel, with_channels_last
from mldyno.frameworks.program import (
    MATMUL_SIDE,
    PROBE_SIDE,
    ArrayFramework,
    Backend,
    Repeated,
    kept_precision,
    multiplied_type,
    seed_generators,
    stored_type,
)
from mldyno.records import Device
from mldyno.trees import each_array, is_array, is_floating
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case
    from mldyno.values import Values
    from mldyno.workloads import Build, Optimiser, Phase, Recipe

PRELOAD = "MLDYNO_MLX_PRELOAD"  # for MLX's processes only: other frameworks may be slow with it
# Libraries by a part of their file name, in the order in which they take precedence.
LIBRARIES = {"openblas": "OpenBLAS", "mkl_rt": "MKL", "blis": "BLIS", "libblas": "the reference BLAS"}
P = ParamSpec("P")
T = TypeVar("T")


class Mlx(ArrayFramework):
    """MLX. Operations run on the default device of the moment: all that belongs to a case is issued in its stream."""

    name = "mlx"
    compiles = True
    packages, out_of_memory = ("mlx",), ("allocate", "out of memory")
    # Of BLAS libraries, one of which runs matmuls on the CPU.
    thread_variables = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    mx: Any = None

    def environment(self, case: Case) -> dict[str, str]:
        """Set the threads of the BLAS library, and the library if the user names one; fp32 must be fp32 on GPUs."""
        library = os.environ.get(PRELOAD)
        return super().environment(case) | {"MLX_ENABLE_TF32": "0"} | ({"LD_PRELOAD": library} if library else {})

    def asynchronous(self, device: str) -> bool:
        """Return True: another thread computes arrays, on all devices."""
        return True

    def start(self) -> None:
        import mlx.core
        import mlx.nn
        import mlx.optimizers

        self.mx, self.nn, self.optimizers = mlx.core, mlx.nn, mlx.optimizers

    def versions(self) -> dict[str, str]:
        return {"mlx": self.mx.__version__, "blas": blas()}

    def threads(self) -> int | None:
        """Return the threads of the BLAS library; all other operations on the CPU have one."""
        return super().threads() if blas() != LIBRARIES["libblas"] else 1

    def limit_threads(self, threads: int) -> None:
        if threads != self.threads():
            raise Unsupported(f"mlx has {self.threads()} threads with {blas()}, and takes them when it starts")

    def devices(self) -> list[Device]:
        """Return the CPU, and the GPU if there is one; Metal's is called mps."""
        devices = [Device("cpu", "mlx")]
        if has_gpu(self.mx):
            info = self.mx.device_info(self.mx.gpu)
            memory = info.get("max_recommended_working_set_size") or info.get("total_memory")
            devices.append(Device(gpu_name(self.mx), "mlx", str(info.get("device_name") or Device.title), memory))
        return devices

    def device(self, case: Case) -> Any:
        return self.mx.cpu if case.device == "cpu" else self.mx.gpu

    def on_device(self, case: Case) -> AbstractContextManager[Any]:
        return self.mx.stream(self.device(case))  # type: ignore[no-any-return]

    def check(self, case: Case, build: Any, data: Opened | None) -> None:
        """Refuse what the CPU does not support: other precisions in matmuls; a compiled step without g++."""
        super().check(case, build, data)
        if case.compile and case.device == "cpu":
            if system_queries.is_stub("g++"):
                raise Unsupported("mlx compiles for the CPU with a C++ compiler; run xcode-select --install")
            if not system_queries.ask("g++", "--version"):  # as MLX itself asks
                raise Unsupported("mlx compiles for the CPU with a C++ compiler, and g++ --version fails; install g++")
        if case.device == "cpu" and case.precision != "fp32":
            raise Unsupported(
                f"mlx multiplies in fp32 on the CPU, whatever the precision; {case.precision} is for GPUs"
            )

    def layers(self, case: Case, dropout: bool) -> MlxLayers:
        return MlxLayers(self.mx, self.nn, self.optimizers, case, dropout)

    def array(self, values: Values, case: Case) -> Any:
        """Return an array; all devices share one memory in MLX."""
        with self.on_device(case):
            return self.mx.contiguous(with_channels_last(from_values(self.mx, values)))

    def user_recipe(self, case: Case, build: Build) -> Recipe:
        if case.precision == "amp-bf16":
            raise Unsupported("mlx has no autocast for a model of your own; take bf16")
        seed_generators()
        self.mx.random.seed(SEED)
        return build(sys.modules["mlx"], case)

    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> MlxBackend:
        with self.on_device(case):
            return MlxBackend(self, self.device(case), case, recipe, dropout)

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        mx, side = self.mx, min(size, MATMUL_SIDE)
        stream, dtype = mx.default_stream(self.device(case)), getattr(mx, multiplied_type(case))
        with mx.stream(stream):
            parts = [mx.random.normal((side, side), dtype, key=key) for key in mx.random.split(mx.random.key(SEED))]
            factors = [mx.tile(part, (size // side, size // side)) for part in parts]
            mx.eval(factors)
        return Repeated(
            lambda: mx.async_eval(mx.matmul(*factors, stream=stream)), lambda: mx.synchronize(stream), 2.0 * size**3
        )

    def allocate(self, case: Case, size: int) -> Any:
        """Return zeros, which are written to memory."""
        if case.device == "cpu" and size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise MemoryError(f"the machine has no memory of {size:,} B, and mlx would crash")
        with self.on_device(case):
            memory = self.mx.zeros((max(1, size >> 30), min(size, 1 << 30)), self.mx.uint8)
            self.mx.eval(memory)
        return memory


def has_gpu(mx: Any) -> bool:
    """Return whether MLX can use a GPU here."""
    cuda = getattr(mx, "cuda", None)
    return bool(mx.metal.is_available() or (cuda is not None and cuda.is_available()))


def gpu_name(mx: Any) -> str:
    """Return our name for MLX's GPU."""
    return "mps" if mx.metal.is_available() else "cuda:0"


def blas() -> str:
    """Return the BLAS library of the CPU: of those that this process has loaded, the one that takes precedence."""
    if sys.platform == "darwin":
        return "Accelerate"
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            names = {line.rpartition("/")[2] for line in lines if "/" in line}
    except OSError:
        return "unknown"
    return next((title for part, title in LIBRARIES.items() if any(part in name for name in names)), "unknown")


def from_values(mx: Any, values: Values) -> Any:
    """Return numbers that are the same in every framework, as an array."""
    whole = mx.array(values.whole).reshape(values.shape)
    if values.scale is None:
        return whole
    scale, offset = (mx.array(each).reshape(per_channel(each)) for each in (values.scale, values.offset))
    return whole.astype(mx.float32) * scale + offset


class OnHost:
    """An array on the host. Python has no format for bfloat16, which it sees as uint16."""

    def __init__(self, mx: Any, array: Any) -> None:
        self.mx, self.is_bfloat16 = mx, array.dtype == mx.bfloat16
        self.numbers = memoryview(array.view(mx.uint16) if self.is_bfloat16 else array)

    def copied(self) -> Any:
        """Return a copy in MLX's memory."""
        array = self.mx.array(self.numbers)
        return array.view(self.mx.bfloat16) if self.is_bfloat16 else array


def in_stream(method: Callable[Concatenate[MlxBackend, P], T]) -> Callable[Concatenate[MlxBackend, P], T]:
    """Run a method in the stream of its model's device; the default device of the process stays as it is."""

    def inside(self: MlxBackend, /, *arguments: P.args, **options: P.kwargs) -> T:
        with self.mx.stream(self.device):
            return method(self, *arguments, **options)

    return inside


class MlxBackend(Backend):
    """A module or a function on a device of MLX; a module holds all that training changes."""

    def __init__(self, framework: Mlx, device: Any, case: Case, recipe: Recipe, dropout: bool) -> None:
        mx, nn = framework.mx, framework.nn
        self.mx, self.network, self.loss, self.on_cpu = mx, recipe.network, recipe.loss, case.device == "cpu"
        self.device, self.ran_on = device, set[str]()
        mx.random.seed(SEED)
        self.stored = getattr(mx, stored_type(case))
        self.is_module = isinstance(self.network, nn.Module)
        self.output_types: set[str] = set()
        if self.is_module:
            self.network.set_dtype(self.stored)
            self.network.train(case.mode == "train")
            for module in () if dropout else self.network.modules():
                if isinstance(module, nn.Dropout | nn.Dropout2d | nn.Dropout3d):
                    module.eval()
            self.params = sum(int(leaf.size) for leaf in trees.leaves(self.network.trainable_parameters()))
        self.state: list[Any] = [self.network.state] if self.is_module else []
        compiled = self._compiled if case.compile else lambda function: function
        if case.mode == "train":
            self.optimiser = recipe.optimiser(self.network.trainable_parameters())
            self.optimiser.init(self.network.trainable_parameters())
            self.state += [self.optimiser.state, mx.random.state]
            self._find = nn.value_and_grad(self.network, self._loss_of)
            self._steps = {update: compiled(partial(self._step, update)) for update in (True, False)}
        self._infer = compiled(self._forward)
        mx.eval(self.state)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function and all that it changes into one graph; MLX traces it for each graph."""

        def counted(*arguments: Any) -> Any:
            self.traces += 1
            return function(*arguments)

        graph: Callable[..., Any] = self.mx.compile(counted, inputs=self.state, outputs=self.state)
        return graph

    def weights(self) -> Any:
        """Return the arrays of a module, which no step changes in place."""
        return self.network.parameters() if self.is_module else {}

    @in_stream
    def start_from(self, weights: Any) -> None:
        if self.is_module:
            self.network.update(weights)
            self.network.set_dtype(self.stored)

    @property
    def product_types(self) -> set[str]:
        """Return the types that our own layers have noted; of a user's module the types of its outputs.

        Its matmuls can't be watched, but an output is wider if any operation before it was.
        """
        noted: set[str] | None = getattr(self.network, "multiplied", None)
        return self.output_types if noted is None else noted

    @property
    def facts(self) -> dict[str, Any]:
        """Return the BLAS library of the CPU; and the types of all matmuls, if they are known."""
        products = super().facts if hasattr(self.network, "multiplied") else {}
        return products | ({"blas": blas()} if self.on_cpu else {})

    def _stored(self, leaf: Any) -> Any:
        """Return a contiguous array in the case's type."""
        array = self.mx.array(leaf)
        array = self.mx.contiguous(array.astype(self.stored) if is_floating(array) else array)
        self.mx.eval(array)
        return array

    @in_stream
    def place(self, tree: Any) -> Any:
        """Return arrays; all devices share one memory in MLX."""
        return each_array(self._stored, tree)

    @in_stream
    def on_host(self, tree: Any) -> Any:
        return each_array(lambda leaf: OnHost(self.mx, self._stored(leaf)), tree)

    @in_stream
    def copy_in(self, tree: Any) -> Any:
        return trees.mapped(lambda leaf: leaf.copied() if isinstance(leaf, OnHost) else leaf, tree)

    @in_stream
    def copy_out(self, tree: Any) -> None:
        self.mx.eval(tree)
        for leaf in trees.leaves(tree):
            if is_array(leaf):
                bytes(memoryview(leaf))

    @in_stream
    def flat(self, array: Any) -> Any:
        return memoryview(array.astype(self.mx.float32).reshape(-1))

    def devices(self, *trees: Any) -> set[str]:
        """Return where passes were issued: arrays have no device in MLX."""
        return self.ran_on

    def fp32_mode(self) -> str:
        """Return what a product on the device shows: MLX reads `MLX_ENABLE_TF32` once, and does not report it."""
        with self.mx.stream(self.device):
            ones = self.mx.eye(PROBE_SIDE)
            return kept_precision(lambda number: (self.mx.full(ones.shape, number) @ ones)[0, 0].item())

    # -- steps -------------------------------------------------------------------------------------

    def _note_device(self) -> None:
        """Note where the operations so far were issued: the user's code may have changed the default device."""
        self.ran_on.add("cpu" if self.mx.default_device().type == self.mx.cpu else gpu_name(self.mx))

    def _forward(self, inputs: Any) -> Any:
        output = self.network(inputs)
        self._note_device()
        if not self.output_types:
            floats = (leaf for leaf in trees.leaves(output) if is_array(leaf) and is_floating(leaf))
            self.output_types |= {type_name(leaf) for leaf in floats}
        return output

    def _loss_of(self, inputs: Any, targets: Any) -> Any:
        output = self._forward(inputs)
        exact_output, exact_targets = (each_array(self._widened, tree) for tree in (output, targets))
        return self.loss(exact_output, exact_targets).mean(), output

    def _widened(self, array: Any) -> Any:
        return array.astype(self.mx.float32) if is_floating(array) else array

    def _step(self, update: bool, inputs: Any, targets: Any) -> Any:
        (loss, output), gradients = self._find(inputs, targets)
        if not update:
            return output, loss, gradients
        self.optimiser.update(self.network, gradients)
        return output, loss, {}

    @in_stream
    def infer(self, inputs: Any) -> Any:
        output = self._infer(inputs)
        self.mx.async_eval(output)
        return output

    @in_stream
    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        output, loss, gradients = self._steps[update](inputs, targets)
        self.mx.async_eval(self.state, loss, gradients)
        return output, loss

    @in_stream
    def run_phase(self, phase: Phase, inputs: Any, previous: Any) -> Any:
        previous = super().run_phase(phase, inputs, previous)
        self._note_device()
        return previous

    @in_stream
    def correct(self, output: Any, targets: Any) -> int:
        return super().correct(output, targets)

    def wait(self) -> None:
        self.mx.synchronize(self.mx.default_stream(self.device))

    def peak(self) -> int:
        return int(self.mx.get_peak_memory())


def type_name(array: Any) -> str:
    """Return the name of an array's type, without that of its package."""
    return str(array.dtype).rpartition(".")[2]


class MlxLayers(Layers):
    """Layers on the arrays of mlx.core; a network of them is a module that keeps their arrays."""

    name = "mlx"
    inputs_first = False
    kernel_order = (0, 2, 3, 1)

    def __init__(self, mx: Any, nn: Any, optimizers: ModuleType, case: Case, dropout: bool) -> None:
        super().__init__()
        self.mx, self.nn, self.optimizers, self.drops = mx, nn, optimizers, dropout
        self.stored, self.computed = getattr(mx, stored_type(case)), getattr(mx, multiplied_type(case))
        self.relu, self.tanh, self.sigmoid, self.rsqrt = nn.relu, mx.tanh, mx.sigmoid, mx.rsqrt
        self.multiplied: set[str] = set()  # types of what went into matmuls

    def network(self, forward: Callable[..., Any], first_values: Callable[..., Values]) -> Any:
        mx, layers = self.mx, self

        class LayerNetwork(self.nn.Module):  # type: ignore[name-defined,misc]
            """The arrays of all layers by their names; statistics of batch norms are not trained."""

            def __init__(self) -> None:
                super().__init__()
                self.arrays = {}
                for name, parameter in layers.parameters.items():
                    first = from_values(mx, first_values(name, parameter.shape)).astype(layers.stored)
                    self.arrays[name] = mx.contiguous(parameter.arranged(first))
                self.statistics = {name: [mx.zeros(count), mx.ones(count)] for name, count in layers.normed.items()}
                self.multiplied = layers.multiplied
                self.freeze(keys="statistics", recurse=False)

            def set_dtype(self, *_: Any) -> None:
                """Keep the types, which are those of the case already; statistics are in fp32."""

            def __call__(self, inputs: Any, *caches: Any) -> Any:
                layers.take_over(self.arrays, self.statistics, self.training)
                if inputs.dtype == layers.stored:
                    inputs = inputs.astype(layers.computed)
                return forward(inputs, *caches)

        return LayerNetwork()

    def take_over(self, values: dict[str, Any], statistics: dict[str, Any], training: bool) -> None:
        """Run with these arrays; the statistics are replaced by new ones in training."""
        self.values = values if self.computed == self.stored else {
            name: value.astype(self.computed) for name, value in values.items()
        }  # fmt: skip
        self.statistics, self.training, self.dropping = statistics, training, training and self.drops

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        return self.nn.losses.cross_entropy(output, targets, reduction="mean")

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.mx.square(output - targets).sum(-1).mean()

    def optimiser(self, wanted: Optimiser) -> Any:
        if wanted.kind == "sgd":
            return self.optimizers.SGD(wanted.rate, wanted.momentum)
        if wanted.kind == "adam":
            return self.optimizers.Adam(wanted.rate, bias_correction=True)
        return self.optimizers.AdamW(wanted.rate, weight_decay=wanted.decay, bias_correction=True)

    def prefill(self, forward: Any, decoded: int, network: Any, ids: Any, _: Any) -> Any:
        caches: dict[int, Cache] = defaultdict(lambda: Cache(self.mx, ids.shape[1] + decoded))
        token = network(ids, caches).argmax(-1, keepdims=True)
        self.mx.async_eval(token)
        return token, caches

    def decode(self, forward: Any, decoded: int, network: Any, _: Any, previous: Any) -> Any:
        token, caches = previous
        tokens = []
        for _ in range(decoded):
            token = network(token, caches).argmax(-1, keepdims=True)
            self.mx.async_eval(token)
            tokens.append(token)
        return self.mx.concatenate(tokens, axis=1)

    # -- layers ------------------------------------------------------------------------------------

    def note(self, x: Any) -> Any:
        """Note the type of what goes into a matmul."""
        self.multiplied.add(type_name(x))
        return x

    def _linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.mx.addmm(bias, self.note(x), weight.T)

    def _convolution(self, x: Any, kernel: Any, stride: int, padding: int) -> Any:
        return self.mx.conv2d(self.note(x), kernel, stride, padding)

    def _layer_norm(self, x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
        return self.mx.fast.layer_norm(x, scale, offset, epsilon)

    def _dropout(self, x: Any, rate: float) -> Any:
        return self.mx.random.bernoulli(1 - rate, x.shape) * x * (1 / (1 - rate))

    def _lstm(self, x: Any, inputs: Any, recurrent: Any, bias: Any, second_bias: Any) -> Any:
        gates = self.mx.addmm(bias + second_bias, self.note(x), inputs.T)
        hidden = cell = self.mx.zeros((x.shape[1], recurrent.shape[1]), x.dtype)
        outputs = []
        for place in range(x.shape[0]):
            hidden, cell = self.lstm_step(self.mx.addmm(gates[place], hidden, recurrent.T), cell)
            outputs.append(hidden)
        return self.mx.stack(outputs)

    def _attention(self, query: Any, key: Any, value: Any, dropout: float, causal: bool, before: Any) -> Any:
        scale, causal = query.shape[-1] ** -0.5, causal and query.shape[1] > 1  # a single token sees all before it
        query, key, value = (x.swapaxes(1, 2) for x in (self.note(query), key, value))
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
        pool: Callable[[Any], Any] = self.nn.MaxPool2d(size, stride or size, padding)
        return pool

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        matrix = self.mx.array(rows)
        return lambda: matrix.astype(next(iter(self.values.values())).dtype)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        return self.nn.gelu_approx(x) if by_tanh else self.nn.gelu(x)

    def split(self, x: Any, parts: int) -> Any:
        return self.mx.split(x, parts, axis=-1)

    def take(self, table: Any, ids: Any) -> Any:
        return table[ids]

    def rows(self, table: Any, start: Any, count: int) -> Any:
        return table[start : start + count]

    def scores(self, x: Any, table: Any) -> Any:
        return self.note(x) @ table.T


class Cache:
    """Keys and values of one layer, with room for more tokens than there are yet."""

    def __init__(self, mx: Any, room: int) -> None:
        self.mx, self.room, self.length = mx, room, 0
        self.keys: Any = None
        self.values: Any = None

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Store those of the next tokens; return all that are there."""
        if self.keys is None:
            batch, _, heads, width = key.shape
            self.keys, self.values = (self.mx.zeros((batch, self.room, heads, width), key.dtype) for _ in range(2))
        start, self.length = self.length, self.length + key.shape[1]
        self.keys[:, start : self.length], self.values[:, start : self.length] = key, value
        return self.keys[:, : self.length], self.values[:, : self.length]


FRAMEWORK = Mlx()
