"""Precisions in PyTorch: how a case's numbers are stored and multiplied, and the proof that they were.

By hand (fp16, bf16, fp64): the model and its floating-point inputs are cast. Autocast (amp-fp16, amp-bf16): the
model stays in fp32, PyTorch casts what goes into products; training in amp-fp16 scales the loss. tf32: fp32 numbers
whose products CUDA rounds. What a framework does when asked is not what was asked: autocast on a device that lacks
the type only warns and computes in fp32, and one that has it may still not listen. So the products of a pass are
watched, and a case that ran in another precision than it says is no result.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Unsupported, _torch_products

if TYPE_CHECKING:
    from mldyno.records import Case

BY_HAND = {"fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
AUTOCAST = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
# Largest relative difference from fp32 on the CPU: of outputs in inference, of the loss after three steps in training.
TOLERANCE = {
    "fp32": 1e-3, "tf32": 1e-2, "fp16": 2e-2, "bf16": 1e-1, "amp-fp16": 2e-2, "amp-bf16": 1e-1, "fp64": 1e-3,
}  # fmt: skip
TRIAL = 256  # size of the product that shows whether a device has TF32


class PrecisionPolicy:
    """How the numbers of a case are handled on its device."""

    def __init__(self, torch: ModuleType, case: Case, device: Any) -> None:
        self.torch, self.device, self.precision = torch, device, case.precision or "fp32"
        by_hand, auto = BY_HAND.get(self.precision), AUTOCAST.get(self.precision)
        self.stored = getattr(torch, by_hand or "float32")
        """The type that weights and inputs have."""
        self.multiplied = getattr(torch, auto or by_hand or "float32")
        """The type that goes into products."""
        self.auto = auto is not None

    def cast(self, network: Any) -> Any:
        """The network, its weights in the type of this precision, where they lie now."""
        return network if self.stored is self.torch.float32 else network.to(self.stored)

    def moved(self, tensor: Any) -> Any:
        """A tensor on the device; numbers with a point in the type of this precision."""
        return tensor.to(self.device, self.stored) if tensor.is_floating_point() else tensor.to(self.device)

    def ready(self, tensor: Any) -> Any:
        """A tensor of a batch as it lies ready on the host."""
        return tensor.to(self.stored) if tensor.is_floating_point() else tensor

    def around(self, work: Callable[..., Any], caches: bool = True) -> Callable[..., Any]:
        """The work, under autocast where this precision is that; else the very same.

        `caches`: keep casts of weights until the work is done, as autocast does; not where it changes them.
        Raises Unsupported where the device has no autocast in this type: PyTorch only warns of that.
        """
        if not self.auto:
            return work
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            casting = self.torch.autocast(self.device.type, dtype=self.multiplied, cache_enabled=caches)
        if heard:
            raise Unsupported(" ".join(str(heard[0].message).split()))
        wrapped: Callable[..., Any] = casting(work)
        return wrapped

    def scaler(self) -> Any:
        """What keeps small gradients from becoming 0 in amp-fp16; None where none is needed."""
        return self.torch.amp.GradScaler(self.device.type) if self.precision == "amp-fp16" else None

    def steps(self) -> AbstractContextManager[None]:
        """Wherever steps run: a setting of the whole process, so that others beside it keep theirs."""
        return _tf32(self.torch) if self.precision == "tf32" else nullcontext()

    def flaw(self, network: Any, inputs: Any) -> tuple[str, dict[str, int]]:
        """Why this precision did not take effect, in words, or nothing; and the products by type.

        Raises Unsupported where the network has no products, so that a precision means nothing.
        """
        seen = products(self.torch, lambda: self.around(network)(inputs))
        if not seen:
            if self.precision != "fp32":
                raise Unsupported(f"it multiplies nothing, so that {self.precision} is no other case than fp32")
            return "", seen
        wanted = _name(self.multiplied)
        right = seen.get(wanted, 0)
        told = ", ".join(f"{count} in {name}" for name, count in seen.items())
        if right == 0 or (not self.auto and right < sum(seen.values())) or 2 * right < sum(seen.values()):
            return f"{self.precision} did not take effect: of the products of a pass, {told} ran", seen
        if self.precision == "tf32" and not _rounds(self.torch, self.device):
            return "tf32 did not take effect: it changes no bit of a product on this device", seen
        return "", seen


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def _tf32(torch: ModuleType) -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32 = convolutions.allow_tf32 = False


def _rounds(torch: ModuleType, device: Any) -> bool:
    """Whether TF32 changes the bits of a product on a device."""
    a, b = (torch.randn(TRIAL, TRIAL).to(device) for _ in range(2))
    with _tf32(torch):
        rounded = a @ b
    return not bool(torch.equal(rounded, a @ b))


def products(torch: ModuleType, work: Callable[[], Any]) -> dict[str, int]:
    """How many products, convolutions and the like the work does, by the type of the numbers that go in."""
    found: Counter[str] = Counter()
    with _torch_products.watched(torch) as ran, torch.no_grad():
        work()
    for (_, kind), count in ran.items():
        found[kind] += count
    return dict(found)


def backward_and_step(loss: Any, optimiser: Any, scaler: Any) -> None:
    """The way back, and the optimiser's step if one is given.

    A scaler leaves a step out where the scaled gradients overflowed, and scales less from then on.
    """
    if scaler is None:
        loss.backward()
        if optimiser is not None:
            optimiser.step()
        return
    scaler.scale(loss).backward()
    if optimiser is not None:
        scaler.step(optimiser)
        scaler.update()
