"""What an operation costs on a simulated device: a launch, and the longer of its arithmetic and its bytes.

cost = kernel + max(operations / rate, bytes / bandwidth). Operations are those of products, convolutions and
attention, as PyTorch's own flop counter has them; bytes are those of all tensors that go in and come out. So a step's
time is known from its shapes, and so is the batch from which one device beats another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_flop

HALF = (torch.float16, torch.bfloat16)
PLAIN = {bool, int, float, str, type(None), torch.dtype, torch.device}  # no tensors, which takes long to find out
aten = torch.ops.aten
FORMULAS = {**flop_registry, aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop}
COUNTED: dict[Any, float] = {}  # PyTorch's formulas take longer than the operations


@dataclass(frozen=True)
class Costs:
    """Times and rates of a device; a rate of 0 is one that never holds anything up."""

    kernel: float = 1e-3
    """s that any operation takes."""
    rate: float = 0.0
    """Floating-point operations a second."""
    half: float = 1.0
    """How many times as fast it computes with numbers of 16 bits."""
    bandwidth: float = 0.0
    """B/s."""

    def of(self, func: Any, args: Any, kwargs: Any, made: Any) -> float:
        """Time in s of an operation on these arguments that gave this."""
        arithmetic = memory = 0.0
        if self.rate and (operations := operations_of(func, args, kwargs, made)):
            halved = any(tensor.dtype in HALF for tensor in tensors((args, kwargs)))
            arithmetic = operations / (self.rate * (self.half if halved else 1.0))
        if self.bandwidth:
            memory = sum(size(tensor) for tensor in tensors((args, kwargs, made))) / self.bandwidth
        return self.kernel + max(arithmetic, memory)


def operations_of(func: Any, args: Any, kwargs: Any, made: Any) -> float:
    """Floating-point operations of a product, a convolution or attention; 0 for all else."""
    formula = FORMULAS.get(func.overloadpacket)
    if formula is None:
        return 0.0
    key = (func, _shapes(args), _shapes(tuple(kwargs.items())), _shapes(made))
    if key not in COUNTED:
        COUNTED[key] = float(formula(*args, **kwargs, out_val=made))
    return COUNTED[key]


def _shapes(what: Any) -> Any:
    """Arguments or results with a shape in each tensor's place: what a count depends on."""
    if isinstance(what, (list, tuple)):
        return tuple(_shapes(part) for part in what)
    return what.shape if isinstance(what, torch.Tensor) else what


def is_product(func: Any) -> bool:
    """Whether an operation is a product of two matrices."""
    return func.overloadpacket in (aten.mm, aten.addmm, aten.bmm)


def tensors(what: Any) -> list[Any]:
    """All tensors in arguments or results."""
    collected: list[Any] = []
    _collect((what,), collected)
    return collected


def _collect(parts: Iterable[Any], collected: list[Any]) -> None:
    for part in parts:
        if type(part) in PLAIN:
            continue
        if isinstance(part, torch.Tensor):
            collected.append(part)
        elif isinstance(part, (list, tuple)):
            _collect(part, collected)
        elif isinstance(part, dict):
            _collect(part.values(), collected)


def changed(change: Callable[[Any], Any], what: Any) -> Any:
    """Arguments or results with every single one changed; PyTorch's own functions for that take most of the time."""
    kind = type(what)
    if kind is list or kind is tuple:
        return kind([changed(change, part) if isinstance(part, (list, tuple, dict)) else change(part) for part in what])
    if isinstance(what, dict):
        return {name: changed(change, part) for name, part in what.items()} if what else what
    if isinstance(what, (list, tuple)):
        return tuple(changed(change, part) for part in what)
    return change(what)


def size(tensor: Any) -> int:
    """The bytes of a tensor."""
    return int(tensor.numel() * tensor.element_size())


@cache
def computes(func: Any) -> bool:
    """Whether an operation is more than a view of its argument."""
    aliases = [result.alias_info for result in func._schema.returns]
    return not any(aliases) or any(alias is not None and alias.is_write for alias in aliases)


@cache
def composite(func: Any) -> bool:
    """Whether an operation is made of others; in inference mode such ones come whole."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
