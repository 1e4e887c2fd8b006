"""JAX: jitted steps with donated buffers, on the CPU and on GPUs.

Requires: jax
"""

from __future__ import annotations

import importlib.util
import math
import os
import pkgutil
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Unsupported
from mldyno.frameworks.layers import Layers, in_numpy, with_channels_last
from mldyno.frameworks.program import (
    MATMUL_SIDE,
    PRECISIONS,
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
from mldyno.trees import is_array, is_floating
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case, Fact
    from mldyno.values import Values
    from mldyno.workloads import Build, Optimiser, Phase, Recipe

COMPILE_EVENTS = "/jax/core/compile/"  # prefix of the names
CONVOLUTION = ("NHWC", "HWIO", "NHWC")  # how images, kernels and results lie
PRODUCTS = ("dot_general", "conv_general_dilated")
# Our names for JAX's platforms; AMD's GPUs are called cuda, as in PyTorch.
KINDS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "cuda", "METAL": "mps", "mps": "mps", "xpu": "xpu"}


class Jax(ArrayFramework):
    """JAX."""

    name = "jax"
    packages = ("jax", "jaxlib", "optax")
    precisions = (*PRECISIONS, "tf32")
    out_of_memory, not_supported = ("resource_exhausted", "out of memory"), ("unimplemented",)
    thread_variables = ("NPROC",)
    jax: Any = None
    compile_time = 0.0  # time in s of tracing, lowering and compiling so far

    def environment(self, case: Case) -> dict[str, str]:
        """Add the CPU to the platforms that the user has chosen: results are compared with it."""
        chosen = os.environ.get("JAX_PLATFORMS", "")
        added = {"JAX_PLATFORMS": f"{chosen},cpu"} if chosen and "cpu" not in chosen.split(",") else {}
        return super().environment(case) | added

    def asynchronous(self, device: str) -> bool:
        """Return True: calls return early on all devices."""
        return True

    def start(self) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it allocates most of a GPU's memory
        import jax
        import jax.monitoring
        import optax

        jax.config.update("jax_default_matmul_precision", "highest")
        if self.jax is None:
            jax.monitoring.register_event_duration_secs_listener(self._add_event)
        self.jax, self.optax = jax, optax

    def _add_event(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith(COMPILE_EVENTS):
            self.compile_time += seconds

    def versions(self) -> dict[str, str]:
        return {"jax": self.jax.__version__, "jaxlib": self.jax.lib.__version__, "optax": self.optax.__version__}

    def devices(self) -> list[Device]:
        devices = [Device("cpu", "jax")]
        for device in self.jax.devices():
            if device.platform != "cpu":
                memory = (device.memory_stats() or {}).get("bytes_limit")
                devices.append(Device(device_name(device), "jax", str(device.device_kind), memory))
        return devices

    def support(self) -> dict[str, Fact]:
        """Return the platforms of the plug-ins that are installed: each GPU of JAX comes with one."""
        plugins = " ".join(_plugins())
        cuda = re.search(r"cuda(\d*)", plugins)
        platforms: dict[str, Fact] = {"cuda": cuda and (cuda.group(1) or True), "rocm": "rocm" in plugins}
        return platforms | {"mps": "mps" in plugins or "metal" in plugins}

    def device(self, case: Case) -> Any:
        devices = self.jax.devices()
        if all(device.platform != "cpu" for device in devices):
            with suppress(RuntimeError):  # JAX has no CPU where JAX_PLATFORMS omits it
                devices = [*devices, *self.jax.devices("cpu")]
        for device in devices:
            if device_name(device) == case.device:
                return device
        raise Unsupported(f"jax has no {case.device} here; JAX_PLATFORMS may leave it out: add it, or unset it")

    def on_device(self, case: Case) -> AbstractContextManager[Any]:
        return self.jax.default_device(self.device(case))  # type: ignore[no-any-return]

    def check(self, case: Case, build: Any, data: Opened | None) -> None:
        super().check(case, build, data)
        if case.precision == "tf32" and not case.device.startswith("cuda"):
            raise Unsupported(f"tf32 is a mode of CUDA's matmuls; {case.device} has none")

    def layers(self, case: Case, dropout: bool) -> JaxLayers:
        return JaxLayers(self.jax, self.optax, case, dropout)

    def array(self, values: Values, case: Case) -> Any:
        return with_channels_last(in_numpy(values)).copy()

    def user_recipe(self, case: Case, build: Build) -> Recipe:
        """Call the user's code; a network's other state than its parameters is cast within a step."""
        seed_generators()
        recipe = build(self.jax, case)
        return replace(recipe, network=_with_rest(self.jax, recipe.network, multiplied_type(case)))

    def backend(self, case: Case, recipe: Recipe, dropout: bool) -> JaxBackend:
        with self.on_device(case):
            return JaxBackend(self, self.device(case), case, recipe)

    def mode_of(self, device: Any, primitive: str, precision: Any) -> str:
        """Return how a device multiplies fp32 numbers in an operation with that precision: fp32, tf32, bf16."""
        jax, side = self.jax, PROBE_SIDE

        def product(x: Any, ones: Any) -> Any:
            if primitive == "dot_general":
                return jax.lax.dot(x, ones, precision=precision)
            images, kernel = x.reshape(1, 1, side, side), ones.reshape(1, 1, side, side)
            return jax.lax.conv_general_dilated(
                images, kernel, (1, 1), "SAME", dimension_numbers=CONVOLUTION, precision=precision
            )

        jitted = jax.jit(product)
        with jax.default_device(device):
            ones = jax.numpy.eye(side)
            return kept_precision(lambda number: float(jitted(jax.numpy.full_like(ones, number), ones).reshape(-1)[0]))

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Repeated:
        import numpy

        jax, side = self.jax, min(size, MATMUL_SIDE)
        chance, dtype = numpy.random.default_rng(SEED), getattr(jax.numpy, multiplied_type(case))
        parts = [chance.standard_normal((side, side), numpy.float32) for _ in range(2)]
        tiled = (numpy.tile(part, (size // side, size // side)) for part in parts)
        a, b = (jax.device_put(matrix.astype(dtype), self.device(case)) for matrix in tiled)
        multiply, results = jax.jit(partial(jax.numpy.matmul, precision=precision_name(case))), list[Any]()

        def wait() -> None:
            jax.block_until_ready(results)
            results.clear()

        return Repeated(lambda: results.append(multiply(a, b)), wait, 2.0 * size**3)

    def allocate(self, case: Case, size: int) -> Any:
        """Return zeros, which are written to memory."""
        return self.jax.block_until_ready(self.jax.numpy.zeros(size, self.jax.numpy.uint8, device=self.device(case)))


def precision_name(case: Case) -> str:
    """Return JAX's name for the precision of products of fp32 numbers."""
    return "tensorfloat32" if case.precision == "tf32" else "highest"


def _plugins() -> list[str]:
    """Return the modules of plug-ins, where JAX looks for them: in a package of theirs, and in entry points."""
    spec = importlib.util.find_spec("jax_plugins")
    folders = spec.submodule_search_locations if spec else None
    modules = [module.name for module in pkgutil.iter_modules(folders or [])]
    return modules + [plugin.value for plugin in metadata.entry_points(group="jax_plugins")]


def device_name(device: Any) -> str:
    """Return our name for a device of JAX."""
    kind = KINDS.get(device.platform, device.platform)
    index = getattr(device, "local_hardware_id", None) or 0
    return f"{kind}:{index}" if index or kind == "cuda" else kind


def _cast(jax: Any, tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)


def _with_rest(jax: Any, network: tuple[Any, ...], computed: str) -> tuple[Any, Any, Any]:
    """Return a user's function, its parameters, and its other state, which keeps its types between steps."""
    if len(network) == 3:
        apply, params, state = network
    else:
        function, params = network
        apply, state = (lambda parameters, rest, inputs: (function(parameters, inputs), rest)), ()

    def applied(parameters: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        output, after = apply(parameters, _cast(jax, rest, computed), inputs)
        return output, jax.tree.map(lambda new, old: new.astype(old.dtype) if is_floating(old) else new, after, rest)

    return applied, params, state


class JaxBackend(Backend):
    """A function with its parameters and other state, on a device of JAX."""

    def __init__(self, framework: Jax, device: Any, case: Case, recipe: Recipe) -> None:
        self.framework, self.compiled_before = framework, framework.compile_time
        jax = self.jax = framework.jax
        self.optax, self.device, self.loss = framework.optax, device, recipe.loss
        self.precision = precision_name(case)
        self.returns = case.placement == "roundtrip"
        self.stored, self.computed = (getattr(jax.numpy, name(case)) for name in (stored_type, multiplied_type))
        self.apply, params, self.rest = recipe.network
        self.optimiser: Any = recipe.optimiser(params) if case.mode == "train" else None
        self.start_from(params)
        self.params = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.state[0])) or None
        self.shapes: Any = None
        self.pending: list[Any] = []
        self._infer, self._phases = self._jitted(self._forward), dict[Any, Any]()
        if self.optimiser is not None:
            self._steps = {update: self._jitted(self._step, update, donate_argnums=0) for update in (True, False)}

    def start_from(self, weights: Any) -> None:
        """Copy the weights, since a step donates its buffers."""
        jax = self.jax
        with jax.default_device(self.device):
            parameters = jax.tree.map(lambda leaf: jax.device_put(self._stored(leaf).copy(), self.device), weights)
            rest = jax.device_put(jax.tree.map(jax.numpy.copy, self.rest), self.device)
            self.state: tuple[Any, ...] = (parameters, rest)
            if self.optimiser is not None:
                self.state += (self.optimiser.init(parameters),)

    def weights(self) -> Any:
        """Return NumPy arrays, since the next step donates the state."""
        return self.jax.tree.map(lambda leaf: self.jax.device_get(leaf).copy(), self.state[0])

    def compile_time(self) -> float:
        """Leave out the time in which the user's code built the model."""
        return self.framework.compile_time - self.compiled_before

    def _stored(self, leaf: Any) -> Any:
        """Return an array on the host, in the case's type."""
        array = self.jax.device_get(self.jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf)
        return array.astype(self.stored) if is_floating(array) else array

    def on_host(self, tree: Any) -> Any:
        return self.jax.tree.map(lambda leaf: self._stored(leaf) if is_array(leaf) else leaf, tree)

    def copy_in(self, tree: Any) -> Any:
        return self.jax.device_put(tree, self.device)

    def copy_out(self, tree: Any) -> None:
        self.jax.device_get(tree)

    def flat(self, array: Any) -> Any:
        return self.jax.device_get(array.astype(self.jax.numpy.float32)).reshape(-1)

    def devices(self, *trees: Any) -> set[str]:
        leaves = self.jax.tree.leaves((self.state, trees))
        return {device_name(device) for leaf in leaves if hasattr(leaf, "devices") for device in leaf.devices()}

    # -- steps -------------------------------------------------------------------------------------

    def _jitted(self, function: Callable[..., Any], *first: Any, **options: Any) -> Any:
        """Jit a function with its first arguments; its products have the case's precision, whatever the default is."""

        def exact(*arguments: Any) -> Any:
            with self.jax.default_matmul_precision(self.precision):
                return function(*first, *arguments)

        return self.jax.jit(exact, **options)

    def _cast(self, tree: Any) -> Any:
        """Cast to the type of matmuls; parameters and inputs keep their types outside of a step."""
        return tree if self.computed == self.stored else _cast(self.jax, tree, self.computed)

    def _applied(self, parameters: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        output: tuple[Any, Any] = self.apply(self._cast(parameters), rest, self._cast(inputs))
        return output

    def _traced(self, *arguments: Any) -> None:
        """Count a graph, and keep the shapes of its arguments."""
        self.traces += 1
        struct = self.jax.ShapeDtypeStruct
        self.shapes = self.jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), arguments)

    def _forward(self, parameters: Any, rest: Any, inputs: Any) -> Any:
        self._traced(parameters, rest, inputs)
        return self._applied(parameters, rest, inputs)[0]

    def _loss_of(self, parameters: Any, rest: Any, inputs: Any, targets: Any) -> Any:
        output, rest = self._applied(parameters, rest, inputs)
        exact_output, exact_targets = (_cast(self.jax, tree, self.jax.numpy.float32) for tree in (output, targets))
        return self.jax.numpy.mean(self.loss(exact_output, exact_targets)), (output, rest)

    def _step(self, update: bool, state: Any, inputs: Any, targets: Any) -> Any:
        parameters, rest, optimiser_state = state
        self._traced(parameters, rest, inputs)
        find = self.jax.value_and_grad(self._loss_of, has_aux=True)
        (loss, (output, after)), gradients = find(parameters, rest, inputs, targets)
        if not update:
            return state, output, loss, gradients
        changes, optimiser_state = self.optimiser.update(gradients, optimiser_state, parameters)
        parameters = self.optax.apply_updates(parameters, changes)
        return (parameters, after, optimiser_state), output if self.returns else None, loss, None

    def infer(self, inputs: Any) -> Any:
        output = self._infer(*self.state[:2], inputs)
        self.pending.append(output)
        return output

    def train(self, inputs: Any, targets: Any, update: bool) -> tuple[Any, Any]:
        """Issue a training step, which donates the buffers of the state."""
        self.state, output, loss, gradients = self._steps[update](self.state, inputs, targets)
        self.pending = [self.state, loss, gradients]
        return output, loss

    def run_phase(self, phase: Phase, inputs: Any, previous: Any) -> Any:
        """Jit the phase, and issue it."""
        if phase not in self._phases:
            self._phases[phase] = self._jitted(self._phase, phase)
        previous = self._phases[phase](*self.state[:2], inputs, previous)
        self.pending.append(previous)
        return previous

    def _phase(self, phase: Phase, parameters: Any, rest: Any, inputs: Any, previous: Any) -> Any:
        self._traced(parameters, rest, inputs)
        return phase.run((self._cast(parameters), rest), inputs, previous)

    def wait(self) -> None:
        self.jax.block_until_ready(self.pending)
        self.pending = []

    def peak(self) -> int | None:
        counted = (self.device.memory_stats() or {}).get("peak_bytes_in_use")
        return None if counted is None else int(counted)

    @property
    def product_types(self) -> set[str]:
        """Read the types from the operations that JAX has traced."""
        return set() if self.shapes is None else self._product_types

    @cached_property
    def _product_types(self) -> set[str]:
        return {str(variable.aval.dtype) for each in self._products for variable in each.invars}

    @cached_property
    def _products(self) -> list[Any]:
        """Return the operations of a forward pass that multiply; those of a backward pass have the same precision."""
        traced = self.jax.make_jaxpr(self._jitted(self._applied))(*self.shapes)
        return [each for each in _equations(traced.jaxpr) if each.primitive.name in PRODUCTS]

    def fp32_mode(self) -> str | None:
        """Return what products show on the device, each with the precision that the traced graph gives it."""
        if self.shapes is None:
            return None
        in_fp32 = (each for each in self._products if str(each.invars[0].aval.dtype) == "float32")
        wanted = {(each.primitive.name, each.params["precision"]) for each in in_fp32}
        modes = {self.framework.mode_of(self.device, *each) for each in wanted}
        if self.precision != "highest" and modes == {"fp32"}:
            raise Unsupported("tf32 changes no bit of a product on this GPU: it has no such mode")
        return " and ".join(sorted(modes)) or None


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield all operations of a function, and of the functions that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


class JaxLayers(Layers):
    """Layers on the arrays of jax.numpy; a network of them is a pure function of its parameters."""

    name = "jax"

    def __init__(self, jax: ModuleType, optax: ModuleType, case: Case, dropout: bool) -> None:
        super().__init__()
        self.jax, self.np, self.lax, self.optax = jax, jax.numpy, jax.lax, optax
        self.relu, self.tanh, self.sigmoid, self.rsqrt = jax.nn.relu, jax.numpy.tanh, jax.nn.sigmoid, jax.lax.rsqrt
        self.training = case.mode == "train"
        self.dropping = dropout and self.training
        self.key: Any = None

    def network(self, forward: Callable[..., Any], first_values: Callable[..., Values]) -> tuple[Any, Any, Any]:
        parameters = {
            name: parameter.arranged(in_numpy(first_values(name, parameter.shape)))
            for name, parameter in self.parameters.items()
        }
        statistics = {name: [self.np.zeros(count), self.np.ones(count)] for name, count in self.normed.items()}

        def apply(parameters: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
            key = rest["key"]
            key, self.key = self.jax.random.split(key) if self.training else (key, None)
            output = self._applied(forward, parameters, rest, inputs)
            return output, {"statistics": self.statistics, "key": key}

        return apply, parameters, {"statistics": statistics, "key": self.jax.random.PRNGKey(SEED)}

    def _applied(self, forward: Callable[..., Any], parameters: Any, rest: Any, *inputs: Any) -> Any:
        self.values, self.statistics = parameters, dict(rest["statistics"])
        return forward(*inputs)

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        scores = self.jax.nn.log_softmax(output)
        return -self.np.take_along_axis(scores, targets[..., None], axis=-1).mean()

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.np.square(output - targets).sum(-1).mean()

    def optimiser(self, wanted: Optimiser) -> Any:
        if wanted.kind == "sgd":
            return self.optax.sgd(wanted.rate, wanted.momentum or None)
        if wanted.kind == "adam":
            return self.optax.adam(wanted.rate)
        return self.optax.adamw(wanted.rate, weight_decay=wanted.decay)

    def prefill(self, forward: Any, decoded: int, network: Any, ids: Any, _: Any) -> Any:
        caches: dict[int, Cache] = defaultdict(lambda: Cache(self.jax, ids.shape[1] + decoded))
        token = self._applied(forward, *network, ids, caches).argmax(-1)[:, None]
        return token, [cache.stored for cache in caches.values()], self.np.int32(ids.shape[1])

    def decode(self, forward: Any, decoded: int, network: Any, _: Any, previous: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            token, stored, length = state
            caches = dict(enumerate(Cache(self.jax, 0, pair, length) for pair in stored))
            token = self._applied(forward, *network, token, caches).argmax(-1)[:, None]
            return (token, [cache.stored for cache in caches.values()], length + 1), token

        return self.lax.scan(step, previous, None, decoded)[1]

    # -- layers ------------------------------------------------------------------------------------

    def _linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight + bias

    def _convolution(self, x: Any, kernel: Any, stride: int, padding: int) -> Any:
        sides = [(padding, padding)] * 2
        return self.lax.conv_general_dilated(x, kernel, (stride, stride), sides, dimension_numbers=CONVOLUTION)

    def exact(self, x: Any) -> Any:
        return x.astype(self.np.float32)

    def _layer_norm(self, x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
        exact = self.exact(x)
        mean, variance = exact.mean(-1, keepdims=True), exact.var(-1, keepdims=True)
        return ((exact - mean) * self.lax.rsqrt(variance + epsilon)).astype(x.dtype) * scale + offset

    def _dropout(self, x: Any, rate: float) -> Any:
        self.key, own = self.jax.random.split(self.key)
        mask = self.jax.random.bernoulli(own, 1 - rate, x.shape)
        return self.np.where(mask, x / (1 - rate), self.np.zeros((), x.dtype))

    def _lstm(self, x: Any, inputs: Any, recurrent: Any, bias: Any, second_bias: Any) -> Any:
        gates = x @ inputs + (bias + second_bias)
        start = self.np.zeros((x.shape[1], recurrent.shape[0]), x.dtype)

        def step(state: Any, given: Any) -> Any:
            hidden, cell = state
            state = self.lstm_step(given + hidden @ recurrent, cell)
            return state, state[0]

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
        window, steps = (1, size, size, 1), (1, stride or size, stride or size, 1)
        sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return lambda x: self.lax.reduce_window(x, -self.np.inf, self.lax.max, window, steps, sides)

    def constant(self, rows: list[list[float]]) -> Callable[[], Any]:
        return lambda: self.np.asarray(rows, next(iter(self.values.values())).dtype)

    def gelu(self, x: Any, by_tanh: bool = False) -> Any:
        return self.jax.nn.gelu(x, approximate=by_tanh)

    def split(self, x: Any, parts: int) -> Any:
        return self.np.split(x, parts, axis=-1)

    def take(self, table: Any, ids: Any) -> Any:
        return self.np.take(table, ids, axis=0)

    def rows(self, table: Any, start: Any, count: int) -> Any:
        return self.lax.dynamic_slice_in_dim(table, start, count)

    def scores(self, x: Any, table: Any) -> Any:
        return x @ table.T


class Cache:
    """Keys and values of one layer, with room for more tokens than there are yet."""

    def __init__(self, jax: ModuleType, room: int, stored: Any = None, length: Any = 0) -> None:
        self.jax, self.room, self.stored, self.length = jax, room, stored, length

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Store those of the next tokens; return all, with the room that is left, and a prompt's as they are."""
        put, first = self.jax.lax.dynamic_update_slice_in_dim, self.stored is None
        if first:
            batch, _, heads, width = key.shape
            self.stored = (self.jax.numpy.zeros((batch, self.room, heads, width), key.dtype),) * 2
        keys, values = self.stored
        self.stored = put(keys, key, self.length, 1), put(values, value, self.length, 1)
        self.length = self.length + key.shape[1]
        return (key, value) if first else self.stored


FRAMEWORK = Jax()
