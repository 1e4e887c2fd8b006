"""Autocast on the simulated device: which operations compute in the lower precision, and which never do.

PyTorch calls these kernels, by the dispatch key AutocastPrivateUse1, wherever `torch.autocast("sim")` is on. It has
none of its own for such a device, not even one that lets other operations pass. With `"autocast": "deaf"` they cast
nothing: autocast is on then, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from simulated_costs import changed  # type: ignore[import-not-found]
from simulated_state import SIM  # type: ignore[import-not-found]

KEY = "AutocastPrivateUse1"
KEYS = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))
LOWER = (
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "matmul", "linear", "conv1d", "conv1d.padding",
    "conv2d", "conv2d.padding", "conv3d", "conv3d.padding", "convolution", "scaled_dot_product_attention",
)  # fmt: skip
FULL = (
    "softmax.int", "log_softmax.int", "layer_norm", "group_norm", "cross_entropy_loss", "nll_loss", "nll_loss_nd",
    "mse_loss", "binary_cross_entropy_with_logits",
)  # fmt: skip
HALF = (torch.float16, torch.bfloat16)


def register(library: Any) -> Any:
    """Make autocast work; keep what is returned alive."""
    for name in LOWER:
        library.impl(name, _lowered(_operation(name)), KEY)
    for name in FULL:
        library.impl(name, _full(_operation(name)), KEY)
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, KEY)
    return others


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _lowered(operation: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = torch.get_autocast_dtype("sim")

        def cast(x: Any) -> Any:
            return x.to(wanted) if _on_device(x) and x.dtype not in (wanted, torch.float64) else x

        return _below(operation, cast, args, kwargs)

    return kernel


def _full(operation: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _below(operation, lambda x: x.float() if _on_device(x) and x.dtype in HALF else x, args, kwargs)

    return kernel


def _on_device(x: Any) -> bool:
    """Whether something is to be cast: numbers with a point on the device, unless autocast is deaf."""
    if SIM.autocast == "deaf" or not isinstance(x, torch.Tensor):
        return False
    return bool(x.device.type == "sim" and x.is_floating_point())


def _below(operation: Any, cast: Callable[[Any], Any], args: Any, kwargs: Any) -> Any:
    """The operation on arguments that are cast, with autocast out of the way."""
    with torch._C._ExcludeDispatchKeyGuard(KEYS):
        return operation(*changed(cast, args), **changed(cast, kwargs))
