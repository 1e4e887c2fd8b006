"""The user's models in each framework: one `Adapter` each. A new framework is one more class here."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.trees import Path
from mldyno.workloads import Batch, Recipe
from mldyno.workloads.user_models.recipes import (
    LEARNING_RATE,
    TOKEN_DIMENSIONS,
    Adapter,
    Loss,
    NotUnderstood,
    Parts,
    Setting,
    batch_as_taken,
    call_with_tree,
    is_function_with_parameters,
    losses_in,
    parameters_of,
)


def adapter_for(framework: str, module: ModuleType | None = None) -> Adapter:
    """Return the adapter of a framework, which has been started."""
    kinds = {kind.name: kind for kind in Adapter.__subclasses__()}
    return kinds[framework](module or sys.modules[framework])


# -- PyTorch ---------------------------------------------------------------------------------------


def _fp32_setting(torch: ModuleType) -> Setting:
    """Return how to read and restore all settings of fp32's precision: two older ones, and since 2.9 further ones.

    Where a program sets only some, the older ones can contradict the others, and can't be read.
    """
    backends = torch.backends
    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    newer: tuple[Any, ...] = ()
    if hasattr(cudnn, "conv"):
        newer = (backends, cudnn, cudnn.conv, cudnn.rnn, backends.cuda.matmul, mkldnn.matmul, mkldnn.conv, mkldnn.rnn)

    def get() -> tuple[Any, ...]:
        older: list[Any] = [None, None]
        with suppress(RuntimeError):
            older[0] = torch.get_float32_matmul_precision()
        with suppress(RuntimeError):
            older[1] = cudnn.allow_tf32
        return (*older, *(holder.fp32_precision for holder in newer))

    def put(values: tuple[Any, ...]) -> None:
        matmuls, convolutions, *others = values
        torch.set_float32_matmul_precision(matmuls or "highest")
        cudnn.allow_tf32 = bool(convolutions)
        for holder, value in zip(newer, others, strict=True):
            holder.fp32_precision = value

    return get, put


class Torch(Adapter):
    """A model is an nn.Module. Its own loss is a single number that requires grad, as in nanoGPT and Hugging Face."""

    name = "torch"
    packages = ("torch",)
    example = (
        "def build(batch_size=32): "
        "return model, torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))"
    )
    array_word = "tensor"
    trains_in_place = True

    def settings(self) -> Mapping[str, Setting]:
        torch = self.module
        deterministic = torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
        return {
            "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
            "threads": (torch.get_num_threads, torch.set_num_threads),
            "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
            "matmul precision": _fp32_setting(torch),
            "deterministic algorithms": deterministic,
        }

    def describe(self, parts: Parts, title: str) -> dict[str, Any]:
        if not isinstance(parts.model, self.module.nn.Module):
            kind = type(parts.model).__name__
            raise NotUnderstood(f"{title}: the model is a {kind}, no torch.nn.Module; {self.example}")
        return super().describe(parts, title)

    def check_training(self, parts: Parts, output: Any, title: str) -> None:
        """Leave the loss to the first step: it may need gradients, or training mode."""

    def prepared(self, parts: Parts) -> Parts:
        """Put model and tensors in fp32 on the default device: the CPU, or `meta` where only memory is estimated."""
        inputs, targets = trees.mapped(self._on_default_device, (parts.inputs, parts.targets))
        return replace(parts, model=self._on_default_device(parts.model), inputs=inputs, targets=targets)

    def _on_default_device(self, part: Any) -> Any:
        torch, home = self.module, self.module.get_default_device()

        def is_other_float(tensor: Any) -> bool:
            return bool(tensor.is_floating_point() and tensor.dtype is not torch.float32)

        if isinstance(part, torch.nn.Module):
            tensors = [*part.parameters(), *part.buffers()]
            if any(tensor.device.type != home.type for tensor in tensors):
                part = part.to(home)
            return part.float() if any(map(is_other_float, tensors)) else part
        if not torch.is_tensor(part):
            return part
        part = part.detach().to(home)
        return part.float() if is_other_float(part) else part

    def is_array(self, leaf: Any) -> bool:
        return bool(self.module.is_tensor(leaf))

    def indivisible(self, leaf: Any) -> str:
        if not self.is_array(leaf) or (leaf.layout is self.module.strided and not leaf.is_nested):
            return super().indivisible(leaf)
        return "a nested tensor" if leaf.is_nested else "a sparse tensor"

    def shape(self, array: Any) -> tuple[int, ...]:
        if not array.is_nested:
            return tuple(array.shape)
        return (array.size(0), array.numel() // max(1, array.size(0)), *[1] * (array.dim() - 2))

    def infer(self, model: Any, inputs: Any) -> Any:
        with self.module.no_grad():
            return call(model.eval(), inputs)

    def loss_paths(self, model: Any, inputs: Any, output: Any) -> list[Path]:
        """Look for a number that requires grad, from a pass in training mode."""
        several_inputs = isinstance(inputs, Mapping | list | tuple) and len(inputs) > 1
        if output is not None and not losses_in(output) and not several_inputs:
            return []
        try:
            with self.module.enable_grad():
                losses = losses_in(call(model.train(), inputs))
        except Exception as error:  # whatever the user's code raises
            first = str(error).strip().partition("\n")[0]
            raise NotUnderstood(f"the model fails in training: {type(error).__name__}: {first}") from None
        paths = [path for path, leaf in losses.items() if leaf.requires_grad]
        by_name = [path for path in paths if path[-1:] == ("loss",)]
        return by_name if len(by_name) == 1 else paths

    def with_batch(self, parts: Parts, batch: int | None) -> Parts:
        loader = parts.inputs
        dataset, collate = getattr(loader, "dataset", loader), getattr(loader, "collate_fn", None)
        items = [dataset[place % len(dataset)] for place in range(batch or 1)]
        inputs, targets = _collated(collate, lambda batch: batch, items)
        return replace(parts, inputs=inputs, targets=targets, dataset=dataset, collate=collate)

    def recipe(self, parts: Parts, source: Source, case: Case, restored_settings: list[str]) -> Recipe:
        recipe = super().recipe(parts, source, case, restored_settings)
        if parts.dataset is None:
            return recipe
        collate = partial(_collated, parts.collate, batch_as_taken(parts, source, case.mode))
        return replace(recipe, dataset=parts.dataset, collate=collate)

    def network(self, parts: Parts, inputs: Any, source: Source, mode: str | None) -> Any:
        torch, model = self.module, parts.model
        if self.is_array(inputs) and source.output == "tensor":
            return model

        class OfTrees(torch.nn.Module):  # type: ignore[name-defined,misc]
            """The user's model, called with inputs that are one tree."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, inputs: Any) -> Any:
                return call(self.model, inputs)

        return OfTrees()

    def random_below(self, limit: int) -> int:
        return int(self.module.randint(limit, (), device="cpu"))

    def roll(self, array: Any, offset: int) -> Any:
        return array.roll(offset, 0) if offset else array.clone()

    def take(self, array: Any, places: list[int]) -> Any:
        index = self.module.tensor(places)
        return array.to(index.device)[index]

    def default_loss(self, output: Any, targets: Any) -> Any:
        if targets.is_floating_point():
            return self.squared_error(output, targets)
        if output.dim() > TOKEN_DIMENSIONS and targets.shape == output.shape[:-1]:  # classes last, as of tokens
            return self.cross_entropy(output.flatten(0, -2), targets.flatten())
        return self.cross_entropy(output, targets)

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        return self.module.nn.functional.cross_entropy(output, targets)

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.module.nn.functional.mse_loss(output, targets)

    def default_optimiser(self) -> Any:
        return self.module.optim.AdamW

    def optimiser(self, parts: Parts, parameters: Any) -> Any:
        """Return the user's optimiser for these parameters: the same object if it already has them."""
        every = list(parameters)
        optimiser = parts.optimiser or self.default_optimiser()
        if not isinstance(optimiser, self.module.optim.Optimizer):
            return optimiser([parameter for parameter in every if parameter.requires_grad])
        own = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        if own <= {*map(id, every)}:
            return optimiser
        places = {id(parameter): place for place, parameter in enumerate(parts.model.parameters())}
        if not own <= {*places}:
            raise NotUnderstood("its optimiser has parameters that the model has not")
        groups = [
            {**group, "params": [every[places[id(parameter)]] for parameter in group["params"]]}
            for group in optimiser.param_groups
        ]
        return type(optimiser)(groups, **optimiser.defaults)


def call(model: Any, inputs: Any) -> Any:
    """Call a PyTorch model: a dictionary is passed by name, a tuple one by one, all else as it is."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, list | tuple) else model(inputs)


def _collated(collate: Callable[[Any], Any] | None, as_taken: Callable[[Batch], Batch], items: Any) -> Batch:
    """Return a batch of items, as a loader's worker makes it: two parts are inputs and targets, all else is inputs."""
    batch = (collate or sys.modules["torch"].utils.data.default_collate)(items)
    pair = isinstance(batch, list | tuple) and len(batch) == 2
    return as_taken((batch[0], batch[1]) if pair else (batch, None))


# -- TensorFlow ------------------------------------------------------------------------------------


class TensorflowNetwork:
    """The user's model, which takes its inputs as one tree; and the variables that it trains."""

    def __init__(self, tf: ModuleType, model: Any, inputs: Any) -> None:
        self.model, self.function = model, call_with_tree(model, inputs)
        self.takes_training = "training" in (parameters_of(model) or ())
        with tf.GradientTape() as tape:
            self.first_output = self(inputs, training=False)  # this also creates the variables of many models
        self.trainable_variables = list(getattr(model, "trainable_variables", tape.watched_variables()))

    def __call__(self, inputs: Any, training: bool) -> Any:
        return self.function(inputs, **({"training": training} if self.takes_training else {}))

    @property
    def losses(self) -> list[Any]:
        """Return what layers add to the loss, such as regularisation."""
        return list(getattr(self.model, "losses", []))


class Tensorflow(Adapter):
    """A model is one of Keras, a tf.Module, or a function of tensors, which trains the variables that it reads.

    A compiled Keras model has its own loss and optimiser. Losses of Keras and tf.nn take the targets first.
    """

    name = "tensorflow"
    packages = ("tensorflow", "keras")
    example = (
        "def build(batch_size=32): "
        "return keras_model, tf.random.normal((batch_size, 64)), tf.zeros(batch_size, tf.int32)"
    )

    def settings(self) -> Mapping[str, Setting]:
        config, keras, tf32 = self.module.config, self.module.keras.config, self.module.config.experimental
        return {
            "dtype policy": (lambda: keras.dtype_policy().name, keras.set_dtype_policy),
            "default dtype": (keras.floatx, keras.set_floatx),
            "eager functions": (config.functions_run_eagerly, config.run_functions_eagerly),
            "TF32": (tf32.tensor_float_32_execution_enabled, tf32.enable_tensor_float_32_execution),
        }

    def prepared(self, parts: Parts) -> Parts:
        """Make tensors of the arrays; add the loss and optimiser of a compiled Keras model where none is given."""
        tf, model, loss, optimiser = self.module, parts.model, parts.loss, parts.optimiser
        if getattr(model, "compiled", False) and parts.targets is not None:
            optimiser = optimiser or model.optimizer
            if loss is None and getattr(model, "loss", None) is not None:

                def loss(output: Any, targets: Any) -> Any:
                    """Compute the loss as `fit` does, without what layers add: every step adds that itself."""
                    total = model.compute_loss(y=targets, y_pred=output)
                    return total - tf.add_n(model.losses) if model.losses else total

        def tensor(array: Any) -> Any:
            made = tf.convert_to_tensor(array)
            return tf.cast(made, tf.float32) if made.dtype.is_floating else made

        inputs, targets = trees.each_array(tensor, (parts.inputs, parts.targets))
        return Parts(model, inputs, targets, loss, optimiser)

    def check_training(self, parts: Parts, output: Any, title: str) -> None:
        super().check_training(parts, output, title)
        if not TensorflowNetwork(self.module, parts.model, parts.inputs).trainable_variables:
            raise NotUnderstood(f"{title}: the model reads no tf.Variable, nothing to train; {self.example}")

    def infer(self, model: Any, inputs: Any) -> Any:
        return TensorflowNetwork(self.module, model, inputs).first_output

    def network(self, parts: Parts, inputs: Any, source: Source, mode: str | None) -> Any:
        network = TensorflowNetwork(self.module, parts.model, inputs)
        del network.first_output
        return network

    def loss(self, parts: Parts, path: Path | None) -> Loss:
        tf, loss = self.module, parts.loss
        is_theirs = inspect.isfunction(loss) and (loss.__module__ or "").startswith(("keras.", "tensorflow."))
        if is_theirs or isinstance(loss, tf.keras.losses.Loss):
            return lambda output, targets: tf.reduce_mean(loss(targets, output))
        return super().loss(parts, path)

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        tf = self.module
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, output))

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.module.reduce_mean(self.module.square(output - targets))

    def default_optimiser(self) -> Any:
        return self.module.keras.optimizers.AdamW(LEARNING_RATE)

    def optimiser(self, parts: Parts, parameters: Any) -> Any:
        """Return a fresh copy of the optimiser: one that has seen a model's variables serves no other model."""
        optimiser = super().optimiser(parts, parameters)
        return type(optimiser).from_config(optimiser.get_config())

    def take(self, array: Any, places: list[int]) -> Any:
        return self.module.gather(array, places)


# -- JAX -------------------------------------------------------------------------------------------


class Jax(Adapter):
    """A model is `(apply, params)`, a module of flax.nnx, or a function of inputs alone, which can't be trained.

    `apply(params, inputs)` is a pure function; `params` any tree of arrays, such as the variables of flax.linen. A
    module of flax.nnx is split into what is trained and what else it holds (running averages, random keys), which a
    step carries along. The optimiser is one of optax.
    """

    name = "jax"
    array_module = "numpy"
    packages = ("jax", "jaxlib", "flax", "equinox")
    example = (
        "def build(batch_size=32): "
        "return (apply, params), jnp.ones((batch_size, 64)), jnp.zeros(batch_size, int), where apply(params, inputs)"
    )

    def settings(self) -> Mapping[str, Setting]:
        config = self.module.config
        names = "enable_x64", "default_matmul_precision", "default_device", "disable_jit", "debug_nans"
        return {
            name: (partial(getattr, config, name), partial(config.update, name))
            for name in (f"jax_{name}" for name in names)
        }

    def check_training(self, parts: Parts, output: Any, title: str) -> None:
        super().check_training(parts, output, title)
        jax = self.module
        leaves = jax.tree.leaves(_apply_of(parts.model, parts.inputs, "train")[1])
        if not leaves:
            raise NotUnderstood(f"{title}: a function without its parameters can't be trained; {self.example}")
        whole = [leaf for leaf in leaves if not trees.is_floating(jax.numpy.asarray(leaf))]
        if whole:
            kind = jax.numpy.asarray(whole[0]).dtype
            raise NotUnderstood(f"{title}: {kind} among its parameters can't be trained; leave it to the function")

    def infer(self, model: Any, inputs: Any) -> Any:
        apply, params, rest = _apply_of(model, inputs, "infer")
        return apply(params, rest, inputs)[0]

    def network(self, parts: Parts, inputs: Any, source: Source, mode: str | None) -> Any:
        return _apply_of(parts.model, inputs, mode)

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        scores = self.module.nn.log_softmax(output)
        return -self.arrays.take_along_axis(scores, targets[..., None], axis=-1).mean()

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.arrays.square(output - targets).mean()

    def default_optimiser(self) -> Any:
        return sys.modules["optax"].adamw(LEARNING_RATE)  # which the framework has imported

    def optimiser(self, parts: Parts, parameters: Any) -> Any:
        optimiser = super().optimiser(parts, parameters)
        return getattr(optimiser, "tx", optimiser)  # an optimiser of flax.nnx holds one of optax

    def take(self, array: Any, places: list[int]) -> Any:
        return self.arrays.asarray(array)[self.arrays.asarray(places)]


def _apply_of(model: Any, inputs: Any, mode: str | None) -> tuple[Any, Any, Any]:
    """Return a function of parameters, other state and inputs as one tree; the parameters; and the other state.

    The function returns the output and the other state after it.
    """
    if any(kind.__module__.startswith("flax.nnx") and kind.__name__ == "Module" for kind in type(model).__mro__):
        return _split_nnx(model, mode)
    params: Any = {}
    if is_function_with_parameters(model):
        params = model[1]
        function = call_with_tree(model[0], inputs, params)
    else:
        alone = call_with_tree(model, inputs)

        def function(_: Any, inputs: Any) -> Any:
            return alone(inputs)

    return (lambda params, rest, inputs: (function(params, inputs), rest)), params, ()


def _split_nnx(module: Any, mode: str | None) -> tuple[Any, Any, Any]:
    nnx = sys.modules["flax.nnx"]  # which the user's code has imported
    module.train() if mode == "train" else module.eval()
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def apply(params: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        copies = sys.modules["jax"].tree.map(lambda leaf: leaf, (params, rest))  # so that this trace may change them
        whole = nnx.merge(graph, *copies)
        output = call_with_tree(whole, inputs)(inputs)
        return output, nnx.split(whole, nnx.Param, ...)[2]

    return apply, params, rest


# -- MLX -------------------------------------------------------------------------------------------


class Mlx(Adapter):
    """A model is an mlx.nn.Module, or a function of arrays, which can't be trained."""

    name = "mlx"
    array_module = "core"
    packages = ("mlx",)
    example = (
        "def build(batch_size=32): "
        "return mlx_module, mx.random.normal((batch_size, 64)), mx.zeros(batch_size, mx.int32)"
    )
    trains_in_place = True

    def settings(self) -> Mapping[str, Setting]:
        return {"default device": (self.module.core.default_device, self.module.core.set_default_device)}

    def prepared(self, parts: Parts) -> Parts:
        inputs, targets = trees.each_array(self.module.core.array, (parts.inputs, parts.targets))
        return replace(parts, inputs=inputs, targets=targets)

    def check_training(self, parts: Parts, output: Any, title: str) -> None:
        super().check_training(parts, output, title)
        if not isinstance(parts.model, self.module.nn.Module):
            kind = type(parts.model).__name__
            raise NotUnderstood(f"{title}: a {kind} is no mlx.nn.Module and can't be trained; {self.example}")

    def infer(self, model: Any, inputs: Any) -> Any:
        if isinstance(model, self.module.nn.Module):
            model.eval()
        return call_with_tree(model, inputs)(inputs)

    def network(self, parts: Parts, inputs: Any, source: Source, mode: str | None) -> Any:
        model, function = parts.model, call_with_tree(parts.model, inputs)
        if function is model or not isinstance(model, self.module.nn.Module):
            return function

        class OfTrees(self.module.nn.Module):  # type: ignore[name-defined,misc]
            """The user's model, called with inputs that are one tree."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def __call__(self, inputs: Any) -> Any:
                return function(inputs)

        return OfTrees()

    def cross_entropy(self, output: Any, targets: Any) -> Any:
        return self.module.nn.losses.cross_entropy(output, targets, reduction="mean")

    def squared_error(self, output: Any, targets: Any) -> Any:
        return self.module.nn.losses.mse_loss(output, targets, reduction="mean")

    def default_optimiser(self) -> Any:
        return self.module.optimizers.AdamW(LEARNING_RATE)

    def take(self, array: Any, places: list[int]) -> Any:
        return self.arrays.array(array)[self.arrays.array(places)]
