"""The devices that PyTorch finds, with their facts, and features to try on them: small computations by name.

The parent adds titles and facts of vendors, which it looks up by a device's UUID or product from here.
A feature takes tensors on its device and returns tensors there. They are compared with the same computation on the CPU
in double precision. Inputs are rounded to their type before that, so that only the computation can differ.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from mldyno.frameworks import Trial, Unsupported
from mldyno.records import Device, Fact
from mldyno.system_queries import is_stub
from mldyno.values import SEED

# Facts from the properties of a device, in SI units.
FACTS: dict[str, dict[str, Callable[[Any], Fact]]] = {
    "cuda": {
        "compute_capability": lambda its: f"{its.major}.{its.minor}",
        "multiprocessors": lambda its: int(its.multi_processor_count),
        "clock": lambda its: its.clock_rate * 1e3,  # from kHz
        "memory_clock": lambda its: its.memory_clock_rate * 1e3,
        "uuid": lambda its: str(its.uuid),
    },
    "xpu": {
        "driver": lambda its: str(its.driver_version),
        "compute_units": lambda its: int(its.max_compute_units),
        "uuid": lambda its: str(its.uuid),
        "pci_product": lambda its: f"0x{its.device_id:04x}",
    },
}


def list_devices(torch: Any) -> list[Device]:
    """Return the CPU, and every accelerator that torch.accelerator reports."""
    devices = [Device("cpu", "torch")]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type
        devices += [_accelerator(torch, kind, index) for index in range(torch.accelerator.device_count())]
    return devices


def _accelerator(torch: Any, kind: str, index: int) -> Device:
    name = f"{kind}:{index}" if index or kind == "cuda" else kind
    module: Any = getattr(torch, kind, None)
    try:
        properties = module.get_device_properties(index)
        readers = {} if getattr(torch.version, "hip", None) else FACTS.get(kind, {})  # AMD's GPUs are called cuda too
        return Device(name, "torch", str(properties.name), int(properties.total_memory), _facts(properties, readers))
    except (AttributeError, RuntimeError, AssertionError):
        title, memory = Device.title, None
    with suppress(AttributeError, RuntimeError):  # this version of PyTorch may not report Metal's name
        title = str(torch.backends.mps.get_name()) if kind == "mps" else title
    with suppress(AttributeError, RuntimeError, AssertionError):  # of the shared memory, as a process's limit
        memory = int(module.recommended_max_memory())
    return Device(name, "torch", title, memory=memory)


def _facts(properties: Any, readers: dict[str, Callable[[Any], Fact]]) -> dict[str, Fact]:
    """Read the properties; older versions of PyTorch lack some."""
    facts: dict[str, Fact] = {}
    for name, read in readers.items():
        with suppress(AttributeError, TypeError, ValueError, RuntimeError):
            facts |= {name: value} if (value := read(properties)) else {}
    return facts


def counted_memory(torch: Any, device: Any, counter: str) -> int | None:
    """Read a memory counter of a device in B: from torch.accelerator, or before 2.9 from the device's module.

    Return None on the CPU, and if neither has the counter.
    """
    if device.type == "cpu":
        return None
    for module in (torch.accelerator, getattr(torch, device.type, None)):
        with suppress(AttributeError, RuntimeError, ValueError, TypeError):
            return int(getattr(module, counter)(device))
    return None


# -- features of a device --------------------------------------------------------------------------


MATRIX_SIZE = 64  # rows and columns: enough for kernels that need multiples of 8 and more than 16 rows
FALLBACK = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
FALLS_BACK = re.compile(r"fall(s|ing)? ?back.*CPU|fallback from \w+ to CPU", re.DOTALL)
OPERATOR = re.compile(r"operator '([^']+)'")
Tensors = tuple[Any, ...]
Draw = Callable[[Any, Any], Tensors]
Compute = Callable[..., Tensors]


@dataclass(frozen=True)
class Feature:
    """A computation to try: the type of its inputs, how to draw them, the computation, the largest relative error."""

    dtype: str
    draw: Draw
    compute: Compute
    tolerance: float
    reference: Compute | None = None  # computes the expected result; None: `compute` does
    timeout: float = 30.0  # time limit in s, with the start of the process


def _normal(shapes: Sequence[tuple[int, ...]], torch: ModuleType, dtype: Any) -> Tensors:
    generator = torch.Generator().manual_seed(SEED)
    drawn_type = torch.complex64 if dtype.is_complex else torch.float32
    return tuple(torch.randn(shape, generator=generator, dtype=drawn_type).to(dtype) for shape in shapes)


_matrices = partial(_normal, [(MATRIX_SIZE, MATRIX_SIZE)] * 2)
_heads = partial(_normal, [(2, 4, 32, 16)] * 3)  # queries, keys and values: 2 sequences, 4 heads, 32 tokens
_images = partial(_normal, [(4, 8, 16, 16), (16, 8, 3, 3)])  # with the weights of a convolution
_volumes = partial(_normal, [(2, 4, 8, 8, 8), (8, 4, 3, 3, 3)])


def _integers(torch: ModuleType, dtype: Any) -> Tensors:
    drawn = torch.randint(-100, 100, (2, MATRIX_SIZE, MATRIX_SIZE), generator=torch.Generator().manual_seed(SEED))
    return tuple(drawn.to(dtype))


def _definite(torch: ModuleType, dtype: Any) -> Tensors:
    """Draw a well-conditioned, symmetric, positive definite matrix and a right-hand side."""
    matrix, right = _matrices(torch, dtype)
    return matrix @ matrix.T / MATRIX_SIZE + torch.eye(MATRIX_SIZE, dtype=dtype), right


def _matmul(torch: ModuleType, a: Any, b: Any) -> Tensors:
    return (a @ b,)


def _autocast(name: str, torch: ModuleType, a: Any, b: Any) -> Tensors:
    dtype = getattr(torch, name)
    with torch.autocast(a.device.type, dtype=dtype):
        result = a @ b
    if result.dtype is not dtype:  # autocast may be on without effect
        raise Unsupported(f"under autocast the matmul was computed in {result.dtype}")
    return (result,)


def _attention(torch: ModuleType, *heads: Any) -> Tensors:
    attend = torch.nn.functional.scaled_dot_product_attention
    return (attend(*heads), attend(*heads, is_causal=True))


def _convolution(name: str, torch: ModuleType, images: Any, weights: Any) -> Tensors:
    """Compute a convolution with its gradients."""
    images, weights = images.detach().requires_grad_(), weights.detach().requires_grad_()
    output = getattr(torch.nn.functional, name)(images, weights, stride=2, padding=1)
    output.square().mean().backward()
    return (output.detach(), images.grad, weights.grad)


def _svd(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    """Return the singular values, and the matrix recomposed: the signs of the vectors are arbitrary."""
    left, values, above = torch.linalg.svd(right)
    return (values, (left * values) @ above)


def _qr(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    turned, upper = torch.linalg.qr(right)
    return (turned @ upper, upper.abs())


def _fusible(torch: ModuleType, a: Any, b: Any) -> Tensors:
    """Compute a matmul and pointwise operations that a compiler fuses."""
    return ((a @ b).sin() * b + a.relu(),)


def check_compiler() -> None:
    """Refuse to compile where that opens a dialog on the user's screen."""
    if is_stub(os.environ.get("CXX") or "clang++"):
        raise Unsupported("torch.compile needs a C++ compiler; run xcode-select --install")


def _compiled(torch: ModuleType, a: Any, b: Any) -> Tensors:
    check_compiler()
    compiled = torch.compile(lambda a, b: _fusible(torch, a, b))
    statistics = torch._dynamo.utils.counters["stats"]
    before = statistics["unique_graphs"]
    with torch._inductor.config.patch(compile_threads=1):  # in this process only
        result: Tensors = compiled(a, b)
    if statistics["unique_graphs"] == before:
        raise Unsupported("torch.compile returned without compiling anything")
    return result


FEATURES: dict[str, Feature] = {
    "fp32": Feature("float32", _matrices, _matmul, 1e-4),
    "fp16": Feature("float16", _matrices, _matmul, 1e-2),
    "bf16": Feature("bfloat16", _matrices, _matmul, 5e-2),
    "fp64": Feature("float64", _matrices, _matmul, 1e-12),
    "complex64": Feature("complex64", _matrices, _matmul, 1e-4),
    "int8": Feature("int8", _integers, lambda torch, a, b: (torch._int_mm(a, b),), 0.0, _matmul),
    "autocast-fp16": Feature("float32", _matrices, partial(_autocast, "float16"), 1e-2, _matmul),
    "autocast-bf16": Feature("float32", _matrices, partial(_autocast, "bfloat16"), 5e-2, _matmul),
    "attention": Feature("float32", _heads, _attention, 1e-3),
    "attention-fp16": Feature("float16", _heads, _attention, 1e-2),
    "convolution": Feature("float32", _images, partial(_convolution, "conv2d"), 1e-3),
    "convolution-3d": Feature("float32", _volumes, partial(_convolution, "conv3d"), 1e-3),
    "solve": Feature("float32", _definite, lambda torch, matrix, right: (torch.linalg.solve(matrix, right),), 1e-3),
    "svd": Feature("float32", _definite, _svd, 1e-3),
    "qr": Feature("float32", _definite, _qr, 1e-3),
    "cholesky": Feature("float32", _definite, lambda torch, matrix, right: (torch.linalg.cholesky(matrix),), 1e-3),
    "compile": Feature("float32", _matrices, _compiled, 1e-4, _fusible, timeout=90.0),
}


def try_feature(torch: ModuleType, name: str, device: str) -> Trial:
    """Compute a feature on the device, and the expected result on the CPU; warnings name operators that fell back."""
    feature, target = FEATURES[name], torch.device(device)
    dtype = getattr(torch, feature.dtype)
    inputs = feature.draw(torch, dtype)
    with every_warning(torch) as caught:
        try:
            results = feature.compute(torch, *(tensor.to(target) for tensor in inputs))
            actual = tuple(result.cpu() for result in results)
        except Unsupported as refusal:
            messages = [str(warning.message).partition("\n")[0] for warning in caught]
            raise Unsupported(f"{refusal}; torch says: {messages[-1]}" if messages else str(refusal)) from None
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    expected = (feature.reference or feature.compute)(torch, *(tensor.to(wide) for tensor in inputs))
    error = max(relative_error(value.to(wide), truth) for value, truth in zip(actual, expected, strict=True))
    elsewhere = [str(result.device) for result in results if result.device.type != target.type]
    if elsewhere:
        return Trial(error, feature.tolerance, f"the result lies on {elsewhere[0]}")
    return Trial(error, feature.tolerance, ", ".join(dict.fromkeys(fallen_back(caught))))


def relative_error(actual: Any, expected: Any) -> float:
    """Return the largest difference of two tensors over the largest value; infinite if one is not a number."""
    error = float((actual - expected).abs().max()) / max(1e-6, float(expected.abs().max()))
    return math.inf if math.isnan(error) else error


@contextmanager
def every_warning(torch: ModuleType) -> Iterator[list[warnings.WarningMessage]]:
    """Collect all warnings in the block; by default PyTorch warns of the first operator that falls back only."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        torch.set_warn_always(always)


def fallen_back(caught: list[warnings.WarningMessage]) -> list[str]:
    """Return the operators that fell back to the CPU, by the framework's warnings."""
    messages = [str(warning.message) for warning in caught]
    matches = [OPERATOR.search(message) for message in messages if FALLS_BACK.search(message)]
    return [match.group(1) if match else "an operator that is not named" for match in matches]


def support(torch: ModuleType) -> dict[str, Fact]:
    """Return the platforms of this build of PyTorch, and why no accelerator is available; never raise."""
    version = torch.version
    backends: dict[str, Fact] = {name: getattr(version, name, None) for name in ("cuda", "xpu")}
    backends |= {"rocm": getattr(version, "hip", None), "mps": bool(torch.backends.mps.is_built())}
    reason = ""
    try:
        if backends["cuda"] and not torch.cuda.is_available():
            torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0]
    return backends | {"reason": reason}
