"""PyTorch's operations, watched on their way to the device: which matmuls ran where, and how much was moved.

In this file and those beside it, "matmuls" means matmuls, convolutions and the like.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

# Those that PyTorch's flop counter does not know: some come whole where nothing is recorded for gradients,
# some devices have them as one kernel.
COMPOSITE = (
    "linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "lstm",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_lstm_mps", "_thnn_fused_lstm_cell",
)  # fmt: skip


@contextmanager
def watch_operations(torch: ModuleType, see: Callable[[Any, list[Any], list[Any]], None]) -> Iterator[None]:
    """Let `see` have each operation that runs meanwhile, those of the backward pass too, with the tensors in and out.

    Behind autocast, which has cast what goes in by then.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(tree: Any) -> list[Any]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        """Kept out of the compiler's way only where there is one: to import it takes 1 to 2 s."""

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
    """How many matmuls run meanwhile, by device and by the type of the numbers that go in."""
    from torch.utils.flop_counter import flop_registry

    counts: Counter[tuple[str, str]] = Counter()
    names = {*COMPOSITE, *(packet.__name__ for packet in flop_registry)}

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        if operation.overloadpacket.__name__ in names:
            inputs = [tensor for tensor in inputs if tensor.is_floating_point()] or inputs
            counts.update((str(tensor.device), str(tensor.dtype).removeprefix("torch.")) for tensor in inputs[:1])

    with watch_operations(torch, see):
        yield counts


@dataclass
class Counts:
    """What some work does on its device."""

    kernels: int = 0
    host_syncs: int = 0
    """Values that the host reads back from it: device-to-host syncs."""
    moved: int = 0
    """Bytes that kernels take in and give out; what stays in a cache between two of them counts too."""
    copied: int = 0
    """Bytes that cross between host and device."""


def count_operations(torch: ModuleType, device: Any, work: Callable[[], None]) -> Counts:
    """Kernels, device-to-host syncs and bytes of the work on a device; it is done once.

    Views move no data and do not count. Nor does what an optimiser reads of its own step counters: these lie on
    the host, whatever the device.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    aten = torch.ops.aten
    copies = (aten._to_copy, aten.copy_, aten.to)  # the last comes whole where nothing is recorded for gradients
    counts, stepping = Counts(), list[Any]()

    def see(operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        kinds = {tensor.device.type for tensor in inputs + outputs}
        if device.type not in kinds:
            return
        if operation.overloadpacket in copies and len(kinds) > 1:
            counts.copied += _bytes(outputs)
            counts.host_syncs += outputs[0].device.type == "cpu"
        elif operation is aten._local_scalar_dense.default:
            counts.host_syncs += not (stepping and device.type == "cpu")
        elif not (operation.is_view or operation is aten.detach.default):
            counts.kernels += 1
            counts.moved += _bytes(inputs + outputs)

    hooks = [
        register_optimizer_step_pre_hook(lambda optimiser, *_: stepping.append(optimiser)),
        register_optimizer_step_post_hook(lambda *_: stepping.clear()),
    ]
    try:
        with watch_operations(torch, see):
            work()
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
