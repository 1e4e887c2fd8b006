"""How many kernels some PyTorch work issues, what these move, and how often it reads back to the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mldyno.frameworks._torch_dispatch import mode_class


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
    from torch.utils._pytree import tree_leaves

    aten = torch.ops.aten
    copies = (aten._to_copy, aten.copy_, aten.to)  # the last comes whole where nothing is recorded for gradients
    counts = Counts()
    in_optimiser = False

    def enter(*_: Any) -> None:
        nonlocal in_optimiser
        in_optimiser = True

    def leave(*_: Any) -> None:
        nonlocal in_optimiser
        in_optimiser = False

    class Count(mode_class()):  # type: ignore[misc]
        """Sees every operation on its way to the device, those of the backward pass among them."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            kinds = {tensor.device.type for tensor in inputs + outputs}
            if device.type not in kinds:
                return result
            if func.overloadpacket in copies and len(kinds) > 1:
                counts.copied += _bytes(outputs)
                counts.host_syncs += outputs[0].device.type == "cpu"
            elif func is aten._local_scalar_dense.default:
                counts.host_syncs += not (in_optimiser and device.type == "cpu")
            elif not (func.is_view or func is aten.detach.default):
                counts.kernels += 1
                counts.moved += _bytes(inputs + outputs)
            return result

    hooks = [register_optimizer_step_pre_hook(enter), register_optimizer_step_post_hook(leave)]
    try:
        with Count():
            work()
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
