"""Precisions in PyTorch: the types in which a case's numbers are stored and multiplied, and the check of these types.

Cast (fp16, bf16, fp64): the model and its floating-point inputs have that type. Autocast (amp-fp16, amp-bf16): the
model stays in fp32 and PyTorch casts the inputs of matmuls; training in amp-fp16 scales the loss. tf32: CUDA rounds
fp32 numbers in matmuls. PyTorch may not do what it was asked for: autocast on a device that lacks the type only warns
and computes in fp32, and one that has it may still ignore it. So the matmuls of a forward pass are watched, and a case
that ran in another precision is no result. How fp32 numbers are multiplied is a setting of the process, which a user's
code may change: it is set again after a network is built, and read back.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

from mldyno.frameworks import Unsupported
from mldyno.frameworks.torch.operations import WIDENED, watch_matmuls
from mldyno.records import Case
from mldyno.values import IMAGE_DIMENSIONS

CAST = {"fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
AUTOCAST = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}
MATMUL_PRECISIONS = {"high": {"cuda": "tf32"}, "medium": {"cuda": "tf32", "cpu": "bf16"}}
"""How matmuls of fp32 numbers run under each value of `torch.get_float32_matmul_precision`, by kind of device."""
TF32_TRIAL_SIZE = 256  # of the matmul that shows whether a device has TF32


class PrecisionPolicy:
    """The types in which the numbers of a case are stored and multiplied on its device."""

    def __init__(self, torch: ModuleType, case: Case, device: Any) -> None:
        self.torch, self.device, self.precision = torch, device, case.precision or "fp32"
        cast, autocast = CAST.get(self.precision), AUTOCAST.get(self.precision)
        self.storage_type = getattr(torch, cast or "float32")  # the type of weights and inputs
        self.compute_type = getattr(torch, autocast or cast or "float32")  # the type of the inputs of matmuls
        self.autocasts = autocast is not None
        self.memory_format = torch.channels_last if case.layout == "channels-last" else torch.preserve_format
        """That of weights and inputs with four dimensions."""

    @property
    def emulated(self) -> bool:
        """Return whether the device has no matmuls in this type, so that PyTorch emulates them: bf16 before Ampere."""
        if self.device.type != "cuda" or self.compute_type is not self.torch.bfloat16:
            return False
        return not self.torch.cuda.is_bf16_supported(including_emulation=False)

    def cast(self, network: Any) -> Any:
        """Cast a network's weights to the type and layout of the case, on the device where they are."""
        if self.memory_format is self.torch.channels_last:
            network = network.to(memory_format=self.memory_format)
        return network if self.storage_type is self.torch.float32 else network.to(self.storage_type)

    def to_device(self, tensor: Any) -> Any:
        """Copy a tensor to the device; floating-point numbers in the type of the case, images in its layout."""
        return self._cast_to(self.device, tensor)

    def on_host(self, tensor: Any) -> Any:
        """Return a tensor where it is, in the type and the layout of the case."""
        return self._cast_to(tensor.device, tensor)

    def _cast_to(self, device: Any, tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor.to(device)
        memory_format = self.memory_format if tensor.dim() == IMAGE_DIMENSIONS else self.torch.preserve_format
        return tensor.to(device, self.storage_type, memory_format=memory_format)

    def around(self, work: Callable[..., Any], caches: bool = True) -> Callable[..., Any]:
        """Wrap the work in autocast if the precision asks for it; else return it unchanged.

        `caches`: cache casts of weights until the work is done; not for work that changes weights.
        Raise Unsupported if the device has no autocast in this type, of which PyTorch only warns.
        """
        if not self.autocasts:
            return work
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            autocast = self.torch.autocast(self.device.type, dtype=self.compute_type, cache_enabled=caches)
        if caught:
            raise Unsupported(" ".join(str(caught[0].message).split()))
        wrapped: Callable[..., Any] = autocast(work)
        return wrapped

    def scaler(self) -> Any:
        """Return the gradient scaler of amp-fp16; None for other precisions."""
        return self.torch.amp.GradScaler(self.device.type) if self.precision == "amp-fp16" else None

    def steps(self) -> AbstractContextManager[None]:
        """Return the context for steps: TF32 is a setting of the process, so it is on within steps only."""
        return _tf32(self.torch) if self.precision == "tf32" else nullcontext()

    def flaw(self, network: Any, inputs: Any) -> tuple[str, dict[str, int]]:
        """Return why this precision did not take effect, or an empty text; and the matmuls of a forward pass by type.

        Raise Unsupported if the network has no matmul, so that a precision changes nothing.
        """
        matmuls = matmul_types(self.torch, lambda: self.around(network)(inputs))
        if not matmuls:
            if self.precision != "fp32":
                raise Unsupported(f"it multiplies nothing, so that {self.precision} is no other case than fp32")
            return "", matmuls
        judged = {name: count for name, count in matmuls.items() if not name.endswith(WIDENED)}
        right, total = judged.get(_name(self.compute_type), 0), sum(judged.values())
        if right == 0 or (not self.autocasts and right < total) or 2 * right < total:
            types = ", ".join(f"{count} in {name}" for name, count in matmuls.items())
            return f"{self.precision} did not take effect: of the matmuls of a forward pass, {types} ran", matmuls
        if self.precision == "tf32" and not _rounds(self.torch, self.device):
            if self.torch.version.hip:  # few of AMD's GPUs have TF32
                raise Unsupported("tf32 changes no bit of a matmul on this GPU: it has no such mode")
            return "tf32 did not take effect: it changes no bit of a matmul on this device", matmuls
        return "", matmuls


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def set_fp32_mode(torch: ModuleType, mode: str) -> None:
    """Multiply fp32 numbers in fp32 or, with CUDA, in tf32 from now on, in matmuls, convolutions and recurrent layers.

    Since 2.9 there is a setting for each kind of operation, and above it for the library and for all. The older
    settings are set as well: PyTorch's own code reads them, which raises if they contradict the new ones.
    """
    backends = torch.backends
    torch.set_float32_matmul_precision("highest" if mode == "fp32" else "high")
    backends.cudnn.allow_tf32 = mode == "tf32"
    if getattr(torch.version, "xpu", None):
        backends.mkldnn.allow_tf32 = False
    if hasattr(backends.cudnn, "conv"):
        cuda, mkldnn = backends.cudnn, backends.mkldnn
        for setting in (backends, mkldnn.conv, mkldnn.rnn):
            setting.fp32_precision = "ieee"
        for setting in (cuda, cuda.conv, cuda.rnn):
            setting.fp32_precision = "ieee" if mode == "fp32" else mode


def fp32_mode(torch: ModuleType, kind: str) -> str | None:
    """Return the lowest precision in which fp32 numbers are multiplied on a kind of device: fp32, tf32, bf16.

    None if there is no setting for it, as on MPS.
    """
    backends = torch.backends
    if kind == "xpu":
        return "tf32" if getattr(backends.mkldnn, "allow_tf32", False) else "fp32"
    if kind not in ("cuda", "cpu"):
        return None
    if not hasattr(backends.cudnn, "conv"):
        matmuls = MATMUL_PRECISIONS.get(torch.get_float32_matmul_precision(), {}).get(kind, "fp32")
        return "tf32" if kind == "cuda" and backends.cudnn.allow_tf32 else matmuls
    library, matmul = (
        (backends.cudnn, backends.cuda.matmul) if kind == "cuda" else (backends.mkldnn, backends.mkldnn.matmul)
    )
    modes = {setting.fp32_precision for setting in (matmul, library.conv, library.rnn)}
    return next((mode for mode in ("bf16", "tf32") if mode in modes), "fp32")


@contextmanager
def _tf32(torch: ModuleType) -> Iterator[None]:
    set_fp32_mode(torch, "tf32")
    try:
        yield
    finally:
        set_fp32_mode(torch, "fp32")


def _rounds(torch: ModuleType, device: Any) -> bool:
    """Return whether TF32 changes the bits of a matmul on a device."""
    a, b = (torch.randn(TF32_TRIAL_SIZE, TF32_TRIAL_SIZE).to(device) for _ in range(2))
    with _tf32(torch):
        rounded = a @ b
    return not bool(torch.equal(rounded, a @ b))


def matmul_types(torch: ModuleType, work: Callable[[], Any]) -> dict[str, int]:
    """Count the matmuls of the work by the type of their inputs."""
    counts: Counter[str] = Counter()
    with watch_matmuls(torch) as matmuls, torch.no_grad():
        work()
    for (_, dtype), count in matmuls.items():
        counts[dtype] += count
    return dict(counts)


def backward_and_step(loss: Any, optimiser: Any, scaler: Any) -> None:
    """Run the backward pass, and the optimiser's step if an optimiser is given.

    A scaler skips the step if the scaled gradients overflowed, and reduces its scale.
    """
    (loss if scaler is None else scaler.scale(loss)).backward()
    if optimiser is not None and scaler is None:
        optimiser.step()
    elif optimiser is not None:
        scaler.step(optimiser)
        scaler.update()
