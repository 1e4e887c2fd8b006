"""PyTorch's operations, watched on their way to the device: where they ran, and how much they moved and allocated.

Here "matmuls" means matmuls, convolutions and attention. Code that asks for an accelerator and gets the CPU runs and
returns right results; a published comparison was measured so. So every tensor that could be on another device
unnoticed is checked: parameters and buffers, inputs and output, the optimiser's state, and, in a watched step, the
inputs of its matmuls and the gradients.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno import trees
from mldyno.frameworks.program import BATCH_POOL

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Batch, Build


# Matmuls that PyTorch's flop counter does not know: composite without gradients, or one kernel on some devices.
COMPOSITE = (
    "linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "lstm",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_lstm_mps", "_thnn_fused_lstm_cell",
)  # fmt: skip
WIDENED = " in attention"  # ends the type of matmuls that attention makes in fp32 of inputs in half precision


@contextmanager
def watch_operations(torch: ModuleType, see: Callable[[Any, list[Any], list[Any]], None]) -> Iterator[None]:
    """Call `see` with each operation that runs in the block, its input tensors and its output tensors.

    The backward pass counts too. Autocast has cast the inputs by then.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(tree: Any) -> list[Any]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        """Ask the compiler to skip the mode only if it is loaded: to import it takes 1 to 2 s."""

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            see(func, tensors((args, kwargs)), tensors(result))
            return result

    with Watch():
        yield


@contextmanager
def watch_matmuls(torch: ModuleType) -> Iterator[Counter[tuple[str, str]]]:
    """Count the matmuls that run in the block, by device and by the type of their inputs.

    Where a device has no fused kernel for it, attention in half precision is matmuls in fp32, which end in WIDENED.
    """
    from torch.utils.flop_counter import flop_registry

    counts: Counter[tuple[str, str]] = Counter()
    names = {*COMPOSITE, *(packet.__name__ for packet in flop_registry)}
    functional, within = torch.nn.functional, [""]
    attention = functional.scaled_dot_product_attention

    def attend(query: Any, *inputs: Any, **named: Any) -> Any:
        within.append(WIDENED if query.element_size() == 2 else "")  # B
        try:
            return attention(query, *inputs, **named)
        finally:
            within.pop()

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        if operation.overloadpacket.__name__ in names:
            tensor = next((tensor for tensor in inputs if tensor.is_floating_point()), inputs[0])
            dtype = str(tensor.dtype).removeprefix("torch.")
            counts[str(tensor.device), dtype + within[-1] * (dtype == "float32")] += 1

    functional.scaled_dot_product_attention = attend
    try:
        with watch_operations(torch, see):
            yield counts
    finally:
        functional.scaled_dot_product_attention = attention


def count_operations(torch: ModuleType, device: Any, step: Callable[[], None]) -> dict[str, int]:
    """Run a step, and count its kernels, device-to-host syncs, bytes of kernels, and bytes copied from or to the host.

    Views move no data and do not count. Nor do an optimiser's reads of its own step counters, which are on the host.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    aten = torch.ops.aten
    copies = (aten._to_copy, aten.copy_, aten.to)  # the last is not decomposed without gradients
    counts = dict.fromkeys(("kernels_per_step", "host_syncs_per_step", "bytes_per_step", "copied_per_step"), 0)
    stepping: list[Any] = []

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        kinds = {tensor.device.type for tensor in inputs + outputs}
        if device.type not in kinds:
            return
        if operation.overloadpacket in copies and len(kinds) > 1:
            counts["copied_per_step"] += _bytes(outputs)
            counts["host_syncs_per_step"] += outputs[0].device.type == "cpu"
        elif operation is aten._local_scalar_dense.default:
            counts["host_syncs_per_step"] += not (stepping and device.type == "cpu")
        elif not (operation.is_view or operation is aten.detach.default):
            counts["kernels_per_step"] += 1
            counts["bytes_per_step"] += _bytes(inputs + outputs)

    hooks = [
        register_optimizer_step_pre_hook(lambda optimiser, *_: stepping.append(optimiser)),
        register_optimizer_step_post_hook(lambda *_: stepping.clear()),
    ]
    try:
        with watch_operations(torch, see):
            step()
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# -- devices of tensors ----------------------------------------------------------------------------


def actual_device(network: Any, optimiser: Any, batch: Batch, output_on: Any, expected_on: Any = None) -> str:
    """Return the device that holds all of a program; also name the first tensor that is on another device.

    `output_on` is the output's device, None before the first; `expected_on` is its place if it is not with the rest.
    """
    home = None
    for what, tensor in _tensors(network, optimiser, batch):
        home = tensor.device if home is None else home
        if tensor.device != home:
            return f"{home}, {what} on {tensor.device}"
    if output_on is not None and output_on != (expected_on or home):
        return f"{home}, the output on {output_on}"
    return str(home)


def _tensors(network: Any, optimiser: Any, batch: Batch) -> Iterator[tuple[str, Any]]:
    for kind, named in (("parameter", network.named_parameters()), ("buffer", network.named_buffers())):
        for name, tensor in named:
            yield f"{kind} {name}", tensor
    for what, tree in zip(("the inputs", "the targets"), batch, strict=True):
        yield from ((what, leaf) for leaf in trees.leaves(tree) if hasattr(leaf, "device"))
    states = getattr(optimiser, "state", None)
    for state in states.values() if isinstance(states, Mapping) else ():
        for name, tensor in state.items() if isinstance(state, Mapping) else ():
            if getattr(tensor, "dim", int)():  # step counters are single numbers, on the host on purpose
                yield f"the optimiser's {name}", tensor


@contextmanager
def watch_compute(torch: ModuleType) -> Iterator[set[str]]:
    """Collect the devices of the matmuls that run in the block, and of the gradients that an optimiser gets."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    devices: set[str] = set()

    def look(optimiser: Any, *_: Any) -> None:
        parameters = (parameter for group in optimiser.param_groups for parameter in group["params"])
        devices.update(str(parameter.grad.device) for parameter in parameters if parameter.grad is not None)

    hook = register_optimizer_step_pre_hook(look)
    try:
        with watch_matmuls(torch) as matmuls:
            yield devices
    finally:
        hook.remove()
        devices.update(device for device, _ in matmuls)


# -- memory of a case ------------------------------------------------------------------------------


FORECAST_STEPS = 2  # in the second one the optimiser's state is allocated


def forecast_peak(torch: ModuleType, case: Case, build: Build) -> int:
    """Return the peak in B of weights, gradients, optimiser and activations, from steps on the meta device.

    On the CPU the model is built in fp32 and then cast, which counts; other devices get the cast model.
    """
    from mldyno.frameworks.torch.precision import PrecisionPolicy

    training = case.mode == "train"
    policy = PrecisionPolicy(torch, case, torch.device("meta"))
    built: list[Any] = []

    def network() -> None:
        recipe = build(torch, case)
        built.extend((recipe, policy.cast(recipe.network).train(training)))

    def steps() -> None:
        recipe, network = built
        on_host = lambda leaf: policy.on_host(leaf) if torch.is_tensor(leaf) else leaf  # noqa: E731
        pool = [trees.mapped(on_host, recipe.draw()) for _ in range(BATCH_POOL)]
        optimiser: Any = recipe.optimiser(network.parameters()) if training else None
        for (inputs, targets), _ in zip(pool, range(FORECAST_STEPS), strict=False):
            if training:
                recipe.loss(network(inputs), targets).backward()
                optimiser.step()
                optimiser.zero_grad()
            else:
                with torch.inference_mode():
                    _infer(recipe, network, inputs)

    with torch.device("meta"):
        building = _highest(torch, network, ())
        working = _highest(torch, steps, (*built[1].parameters(), *built[1].buffers()))
    return max(building, working) if case.device == "cpu" else working


def _infer(recipe: Any, network: Any, inputs: Any) -> None:
    if not recipe.phases:
        network(inputs)
    previous = None
    for phase in recipe.phases.values():
        previous = phase.run(network, inputs, previous)


def _highest(torch: ModuleType, work: Callable[[], None], existing: Iterable[Any]) -> int:
    """Return the peak in B of all storages while the work runs; `existing` are tensors from before it."""
    sizes: dict[int, int] = {}
    alive = highest = 0

    def allocate(storage: Any) -> None:
        nonlocal alive, highest
        key = storage._cdata
        if key not in sizes:
            sizes[key] = storage.nbytes()
            alive += sizes[key]
            highest = max(highest, alive)
            weakref.finalize(storage, drop, key)

    def drop(key: int) -> None:
        nonlocal alive
        alive -= sizes.pop(key, 0)

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        for tensor in outputs:
            allocate(tensor.untyped_storage())

    for tensor in existing:
        allocate(tensor.untyped_storage())
    with watch_operations(torch, see):
        work()
    return highest
