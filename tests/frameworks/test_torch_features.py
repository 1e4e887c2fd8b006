"""PyTorch's features: what is heard and seen of them beside the numbers. That they all run, a doctor's test shows."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from mldyno.frameworks import Unsupported
from mldyno.frameworks.torch import Torch, devices
from mldyno.frameworks.torch.devices import FEATURES, support, try_feature
from mldyno.records import Case

# Warnings as PyTorch's sources have them, for MPS and for XPU.
MPS = "The operator '{}' is not currently supported on the MPS backend and will fall back to run on the CPU. This may …"
XPU = "Aten Op fallback from XPU to CPU happends. This may have performance implications."


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts another computation into a feature."""

    def put(name: str, **changes: Any) -> None:
        monkeypatch.setitem(FEATURES, name, replace(FEATURES[name], **changes))

    return put


def saying(*words: str) -> Any:
    """A product during which the framework says something."""

    def compute(torch: Any, a: Any, b: Any) -> Any:
        for word in words:
            warnings.warn(word, stacklevel=1)
        return (a @ b,)

    return compute


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp64", "complex64", "int8"])
def test_a_type_is_as_far_off_as_it_must_be_and_no_further(name: str) -> None:
    trial = try_feature(torch, name, "cpu")
    assert trial.error <= trial.tolerance
    assert trial.fallback == ""
    least = {"fp16": 1e-5, "bf16": 1e-4}.get(name, 0.0)  # less would mean that it was not computed in that type
    assert trial.error >= least


def test_a_device_that_computes_in_less_than_fp64_is_seen_by_its_numbers(altered: Any) -> None:
    altered("fp64", compute=lambda torch, a, b: ((a.float() @ b.float()).double(),), reference=FEATURES["fp64"].compute)
    trial = try_feature(torch, "fp64", "cpu")
    assert trial.error > trial.tolerance


def test_what_is_not_a_number_is_infinitely_far_off(altered: Any) -> None:
    altered("fp32", compute=lambda torch, a, b: (a @ b * float("nan"),), reference=FEATURES["fp32"].compute)
    assert try_feature(torch, "fp32", "cpu").error == float("inf")


def test_operators_that_fall_back_are_named_each_once(altered: Any) -> None:
    words = (MPS.format("aten::linalg_svd"), MPS.format("aten::x"), MPS.format("aten::x"), "ha")
    altered("svd", compute=saying(*words), reference=FEATURES["fp32"].compute)
    assert try_feature(torch, "svd", "cpu").fallback == "aten::linalg_svd, aten::x"


def test_a_fall_back_without_a_name_is_told_too(altered: Any) -> None:
    altered("qr", compute=saying(XPU), reference=FEATURES["fp32"].compute)
    assert try_feature(torch, "qr", "cpu").fallback == "an operator that is not named"


def test_a_result_that_lies_elsewhere_is_a_fall_back(altered: Any) -> None:
    truth = FEATURES["fp32"].draw(torch, torch.float32)
    altered("fp32", compute=lambda torch, a, b: (truth[0] @ truth[1],), reference=lambda torch, a, b: (a @ b,))
    assert try_feature(torch, "fp32", "meta").fallback == "the result lies on cpu"


@pytest.mark.parametrize("name", ["autocast-fp16", "autocast-bf16"])
def test_autocast_that_does_nothing_is_seen_by_what_was_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert try_feature(torch, name, "cpu").error > 0
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())
    with pytest.raises(Unsupported, match=r"under autocast the matmul was computed in torch\.float32"):
        try_feature(torch, name, "cpu")


def test_what_the_framework_says_of_it_is_part_of_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def disabled(*arguments: Any, **options: Any) -> Any:
        warnings.warn("the target dtype is not supported. Disabling autocast.\nmore", stacklevel=1)
        return nullcontext()

    monkeypatch.setattr(torch, "autocast", disabled)
    with pytest.raises(Unsupported, match=r"torch says: the target dtype is not supported. Disabling autocast\.$"):
        try_feature(torch, "autocast-fp16", "cpu")


def test_a_compiler_that_compiles_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", partial(real, backend="eager"))
    assert try_feature(torch, "compile", "cpu").error <= 1e-4
    monkeypatch.setattr(torch, "compile", lambda function: function)
    with pytest.raises(Unsupported, match="without compiling anything"):
        try_feature(torch, "compile", "cpu")


def test_where_a_compiler_would_open_a_dialog_it_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    framework = Torch()
    framework.start()
    monkeypatch.setenv("CXX", "/usr/bin/g++")
    monkeypatch.setattr(devices, "is_stub", lambda tool: tool == "/usr/bin/g++")
    monkeypatch.setattr(torch, "compile", started.append)
    with pytest.raises(Unsupported, match="xcode-select --install"):
        try_feature(torch, "compile", "cpu")
    with pytest.raises(Unsupported, match="xcode-select --install"):
        framework.check(Case("mlp", batch=2, compile=True), lambda *_: None, None)
    assert started == []


def test_a_build_says_what_it_is_for() -> None:
    backends = support(torch)
    assert set(backends) == {"cuda", "rocm", "xpu", "mps", "reason"}
    assert backends["cuda"] == torch.version.cuda
    assert backends["mps"] is torch.backends.mps.is_built()


def test_why_cuda_can_not_be_used_is_told_in_pytorchs_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (backends version 11040).\nPlease update")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "init", refuse)
    assert support(torch)["reason"] == "The NVIDIA driver on your system is too old (backends version 11040)."
