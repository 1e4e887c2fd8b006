"""What a device can do in PyTorch: small computations by name, each held against the CPU in double precision.

A computation gets tensors that lie on its device and gives tensors that lie there. The truth is the
same computation on the CPU with the same inputs, widened; inputs are rounded to their type before
they part, so that only what is computed can differ.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import Trial, Unsupported

if TYPE_CHECKING:
    from mldyno.records import Fact

SEED = 20240229
SIZE = 64  # rows and columns of a matrix: enough for kernels that want multiples of 8 and more than 16 rows
FALLBACK = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
FALLS_BACK = re.compile(r"fall(s|ing)? ?back.*CPU|fallback from \w+ to CPU", re.DOTALL)
OPERATOR = re.compile(r"operator '([^']+)'")
Tensors = tuple[Any, ...]
Compute = Callable[..., Tensors]


@dataclass(frozen=True)
class Feature:
    """One computation: the type of its inputs, what is drawn, what is computed, and how far off it may be."""

    kind: str
    draw: Callable[[Any, Any], Tensors]
    compute: Compute
    tolerance: float
    plain: Compute | None = None
    """What gives the truth, where that is not the computation itself."""
    limit: float = 30.0
    """Time in s that it may take, the start of the process included."""


# -- what is drawn, on the CPU ---------------------------------------------------------------------


def _normal(torch: ModuleType, kind: Any, *shapes: tuple[int, ...]) -> Tensors:
    chance = torch.Generator().manual_seed(SEED)
    drawn_as = torch.complex64 if kind.is_complex else torch.float32
    return tuple(torch.randn(shape, generator=chance, dtype=drawn_as).to(kind) for shape in shapes)


def _matrices(torch: ModuleType, kind: Any) -> Tensors:
    return _normal(torch, kind, (SIZE, SIZE), (SIZE, SIZE))


def _integers(torch: ModuleType, kind: Any) -> Tensors:
    chance = torch.Generator().manual_seed(SEED)
    return tuple(torch.randint(-100, 100, (SIZE, SIZE), generator=chance, dtype=kind) for _ in range(2))


def _heads(torch: ModuleType, kind: Any) -> Tensors:
    """Queries, keys and values of 2 sequences, 4 heads, 32 tokens."""
    return _normal(torch, kind, *[(2, 4, 32, 16)] * 3)


def _pictures(torch: ModuleType, kind: Any) -> Tensors:
    """Pictures and the weights of a convolution."""
    return _normal(torch, kind, (4, 8, 16, 16), (16, 8, 3, 3))


def _volumes(torch: ModuleType, kind: Any) -> Tensors:
    return _normal(torch, kind, (2, 4, 8, 8, 8), (8, 4, 3, 3, 3))


def _definite(torch: ModuleType, kind: Any) -> Tensors:
    """A symmetric, positive definite matrix that is far from singular, and a right-hand side."""
    matrix, right = _matrices(torch, kind)
    return matrix @ matrix.T / SIZE + torch.eye(SIZE, dtype=kind), right


# -- what is computed, on the device ---------------------------------------------------------------


def _product(torch: ModuleType, a: Any, b: Any) -> Tensors:
    return (a @ b,)


def _product_of_bytes(torch: ModuleType, a: Any, b: Any) -> Tensors:
    return (torch._int_mm(a, b),)


def _autocast(kind: str) -> Compute:
    def compute(torch: ModuleType, a: Any, b: Any) -> Tensors:
        asked = getattr(torch, kind)
        with torch.autocast(a.device.type, dtype=asked):
            found = a @ b
        if found.dtype is not asked:  # the flag may be set and nothing happen
            raise Unsupported(f"under autocast the product was computed in {found.dtype}")
        return (found,)

    return compute


def _attention(torch: ModuleType, *heads: Any) -> Tensors:
    attend = torch.nn.functional.scaled_dot_product_attention
    return (attend(*heads), attend(*heads, is_causal=True))


def _convolution(name: str) -> Compute:
    """A convolution with its gradients."""

    def compute(torch: ModuleType, pictures: Any, weights: Any) -> Tensors:
        pictures, weights = pictures.detach().requires_grad_(), weights.detach().requires_grad_()
        found = getattr(torch.nn.functional, name)(pictures, weights, stride=2, padding=1)
        found.square().mean().backward()
        return (found.detach(), pictures.grad, weights.grad)

    return compute


def _solve(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    return (torch.linalg.solve(matrix, right),)


def _svd(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    """The values, and the matrix put together again: signs of the vectors are free."""
    left, values, above = torch.linalg.svd(right)
    return (values, (left * values) @ above)


def _qr(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    turned, upper = torch.linalg.qr(right)
    return (turned @ upper, upper.abs())


def _cholesky(torch: ModuleType, matrix: Any, right: Any) -> Tensors:
    return (torch.linalg.cholesky(matrix),)


def _waves(torch: ModuleType, a: Any, b: Any) -> Tensors:
    """A product with what a compiler would put into its loop."""
    return ((a @ b).sin() * b + a.relu(),)


def _compiled(torch: ModuleType, a: Any, b: Any) -> Tensors:
    def plain(a: Any, b: Any) -> Any:
        return _waves(torch, a, b)[0]

    fast = torch.compile(plain)
    statistics = torch._dynamo.utils.counters["stats"]
    before = statistics["unique_graphs"]
    with torch._inductor.config.patch(compile_threads=1):  # no processes beside this one
        found = fast(a, b)
    if statistics["unique_graphs"] == before:
        raise Unsupported("torch.compile returned without compiling anything")
    return (found,)


FEATURES: dict[str, Feature] = {
    "fp32": Feature("float32", _matrices, _product, 1e-4),
    "fp16": Feature("float16", _matrices, _product, 1e-2),
    "bf16": Feature("bfloat16", _matrices, _product, 5e-2),
    "fp64": Feature("float64", _matrices, _product, 1e-12),
    "complex64": Feature("complex64", _matrices, _product, 1e-4),
    "int8": Feature("int8", _integers, _product_of_bytes, 0.0, _product),
    "autocast-fp16": Feature("float32", _matrices, _autocast("float16"), 1e-2, _product),
    "autocast-bf16": Feature("float32", _matrices, _autocast("bfloat16"), 5e-2, _product),
    "attention": Feature("float32", _heads, _attention, 1e-3),
    "attention-fp16": Feature("float16", _heads, _attention, 1e-2),
    "convolution": Feature("float32", _pictures, _convolution("conv2d"), 1e-3),
    "convolution-3d": Feature("float32", _volumes, _convolution("conv3d"), 1e-3),
    "solve": Feature("float32", _definite, _solve, 1e-3),
    "svd": Feature("float32", _definite, _svd, 1e-3),
    "qr": Feature("float32", _definite, _qr, 1e-3),
    "cholesky": Feature("float32", _definite, _cholesky, 1e-3),
    "compile": Feature("float32", _matrices, _compiled, 1e-4, _waves, limit=90.0),
}


# -- trying ----------------------------------------------------------------------------------------


def examine(torch: ModuleType, name: str, device: str) -> Trial:
    """Compute with a feature on the device, and its truth on the CPU; what the framework says meanwhile is heard."""
    feature, place = FEATURES[name], torch.device(device)
    kind = getattr(torch, feature.kind)
    inputs = feature.draw(torch, kind)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else only the first operator of a process that falls back is named
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = feature.compute(torch, *(one.to(place) for one in inputs))
            mine = tuple(one.cpu() for one in found)
        except Unsupported as refusal:
            said = [str(one.message).partition("\n")[0] for one in heard]
            raise Unsupported(f"{refusal}; torch says: {said[-1]}" if said else str(refusal)) from None
        finally:
            torch.set_warn_always(always)
    wide = torch.complex128 if kind.is_complex else torch.float64 if kind.is_floating_point else torch.int64
    truth = (feature.plain or feature.compute)(torch, *(one.to(wide) for one in inputs))
    error = max(_relative(one.to(wide), true) for one, true in zip(mine, truth, strict=True))
    elsewhere = [str(one.device) for one in found if one.device.type != place.type]
    if elsewhere:
        return Trial(error, feature.tolerance, f"the result lies on {elsewhere[0]}")
    return Trial(error, feature.tolerance, _fell_back([str(one.message) for one in heard]))


def _relative(found: Any, truth: Any) -> float:
    """The largest difference over the largest value; not a number counts as infinitely far off."""
    error = float((found - truth).abs().max()) / float(truth.abs().max())
    return error if error == error else float("inf")  # noqa: PLR0124 (what is not a number is not itself)


def _fell_back(said: list[str]) -> str:
    """The operators that the CPU did instead, as the framework's warnings name them."""
    told = [OPERATOR.search(one) for one in said if FALLS_BACK.search(one)]
    return ", ".join(dict.fromkeys(one.group(1) if one else "an operator that is not named" for one in told))


def support(torch: ModuleType) -> dict[str, Fact]:
    """What this build of PyTorch can use, and why it has no accelerator now; never raises."""
    version = torch.version
    found: dict[str, Fact] = {name: getattr(version, name, None) for name in ("cuda", "xpu")}
    found |= {"rocm": getattr(version, "hip", None), "mps": bool(torch.backends.mps.is_built())}
    reason = ""
    try:
        if found["cuda"] and not torch.cuda.is_available():
            torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0]
    return found | {"reason": reason}
