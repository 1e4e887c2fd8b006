"""How many kernels a piece of PyTorch work issues, and how often it reads a value back to the host."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def count_operations(torch: ModuleType, device: Any, work: Callable[[], None]) -> tuple[int, int]:
    """Kernels and host reads of the work on a device; it is done once.

    Views move no data and do not count. Nor does what an optimiser reads of its own step counters: these lie on
    the host, whatever the device.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    aten = torch.ops.aten
    kernels = reads = 0
    in_optimiser = False

    def enter(*_: Any) -> None:
        nonlocal in_optimiser
        in_optimiser = True

    def leave(*_: Any) -> None:
        nonlocal in_optimiser
        in_optimiser = False

    class Count(TorchDispatchMode):  # type: ignore[misc]
        """Sees every operation on its way to the device, those of the backward pass among them."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal kernels, reads
            result = func(*args, **(kwargs or {}))
            given = {one.device.type for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
            made = {one.device.type for one in tree_leaves(result) if isinstance(one, torch.Tensor)}
            if device.type not in given | made:
                return result
            if func is aten._local_scalar_dense.default:
                reads += not (in_optimiser and device.type == "cpu")
            elif device.type != "cpu" and made == {"cpu"}:
                reads += 1
            elif not (func.is_view or func is aten.detach.default):
                kernels += 1
            return result

    hooks = [register_optimizer_step_pre_hook(enter), register_optimizer_step_post_hook(leave)]
    try:
        with Count():
            work()
    finally:
        for hook in hooks:
            hook.remove()
    return kernels, reads
