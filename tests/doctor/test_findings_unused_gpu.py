"""Why a GPU that is there is not used: one cause for each set of facts, and its cure."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.doctor.findings import Finding, of
from mldyno.doctor.symptoms import Checkup, Facts, Gpu, Installed
from mldyno.records import Device

T4 = Gpu("nvidia", "Tesla T4", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
M2 = Gpu("apple", "GPU of Apple M2")
CPU, CUDA, MPS = (Device(name, "torch", name) for name in ("cpu", "cuda:0", "mps"))
LINUX = {"system": "Linux", "arch": "x86_64", "gpus": (T4,), "nodes": ("nvidia0",), "driver": "550.54.14",
         "driver_cuda": "12.4"}  # fmt: skip
MAC = {"system": "Darwin", "arch": "arm64", "version": "15.1", "gpus": (M2,)}


def torch(version: str = "2.13.0+cpu", devices: tuple[Device, ...] = (CPU,), **support: Any) -> Installed:
    """PyTorch of a version, built for what is named."""
    built = {"cuda": None, "rocm": None, "xpu": None, "mps": False, "reason": "", **support}
    return Installed("torch", "", {"torch": version}, 2, devices, built)


def findings(framework: Installed, **facts: Any) -> list[Finding]:
    return of(Checkup(facts=Facts(**facts), frameworks=(framework,)))


def codes(framework: Installed, **facts: Any) -> list[str]:
    return [finding.code for finding in findings(framework, **facts)]


def test_a_gpu_that_is_used_needs_no_finding() -> None:
    assert codes(torch("2.13.0+cu126", (CPU, CUDA), cuda="12.6"), **LINUX) == []
    assert codes(torch("2.13.0", (CPU, MPS), mps=True), **MAC) == []


def test_a_machine_without_a_gpu_needs_no_finding() -> None:
    assert codes(torch(), system="Linux", arch="x86_64") == []


def test_intel_python_on_an_apple_chip_is_told_as_that_alone() -> None:
    (found,) = findings(torch(), **{**MAC, "arch": "x86_64", "translated": True})
    assert found.code == "rosetta"
    assert "arm64" in found.cure


def test_a_build_for_the_cpu_beside_an_nvidia_gpu() -> None:
    (found,) = findings(torch(), **LINUX)
    assert found.code == "cpu-only-build"
    assert "torch 2.13.0+cpu" in found.message
    assert "Tesla T4" in found.message
    assert "CUDA" in found.cure


def test_a_build_for_the_cpu_on_a_mac() -> None:
    (found,) = findings(torch("2.13.0"), **MAC)
    assert found.code == "cpu-only-build"
    assert "MPS" in found.cure


def test_a_build_for_another_vendor() -> None:
    amd = {"system": "Linux", "gpus": (Gpu("amd", "AMD 0x744c"),), "nodes": ("kfd",)}
    (found,) = findings(torch("2.13.0+cu126", cuda="12.6"), **amd)
    assert found.code == "other-build"
    assert "ROCm" in found.cure


def test_with_two_vendors_a_build_for_one_of_them_is_no_other_build() -> None:
    both = {**LINUX, "gpus": (Gpu("intel", "Intel 0x56a0"), T4)}
    assert codes(torch("2.13.0+cu126", (CPU, CUDA), cuda="12.6"), **both) == []


@pytest.mark.parametrize(
    ("wheel", "driver", "limit", "old"),
    [("13.0", "535.183.01", "12.2", True), ("12.8", "470.256.02", "11.4", True), ("12.8", "535.183.01", "12.2", False),
     ("12.8", "580.65.06", "13.0", False), ("12.8", "470.256.02", "", True), ("12.8", "525.60.13", "", False)],
)  # fmt: skip
def test_only_a_newer_major_version_of_cuda_is_too_new_for_a_driver(
    wheel: str, driver: str, limit: str, old: bool
) -> None:
    told = findings(torch(cuda=wheel), **{**LINUX, "driver": driver, "driver_cuda": limit})
    assert [one.code for one in told] == (["driver-too-old"] if old else ["gpu-not-found"])
    if old:
        assert f"CUDA {wheel}" in told[0].message
        assert f"driver {driver}" in told[0].message
        assert not limit or f"CUDA {limit}" in told[0].message


def test_the_driver_that_a_cuda_needs_is_named() -> None:
    (found,) = findings(torch(cuda="13.0"), **{**LINUX, "driver": "535.183.01", "driver_cuda": "12.2"})
    assert "driver 580 or newer" in found.cure
    assert "CUDA 12" in found.cure


def test_what_can_not_be_explained_is_told_with_the_frameworks_own_reason() -> None:
    (found,) = findings(torch(cuda="12.6", reason="CUDA unknown error"), **LINUX)
    assert found.code == "gpu-not-found"
    assert found.message.endswith("CUDA unknown error")


@pytest.mark.parametrize(
    ("macos", "version", "code"),
    [("13.6.9", "2.13.0", "old-macos"), ("13.6.9", "2.8.0", "old-macos"), ("13.6.9", "2.7.1", "mps-unavailable"),
     ("12.7", "2.6.0", "old-macos"), ("14.0", "2.13.0", "mps-unavailable"), ("26.3.1", "2.13.0", "mps-unavailable")],
)  # fmt: skip
def test_an_old_macos_is_told_from_one_that_should_do(macos: str, version: str, code: str) -> None:
    assert codes(torch(version, mps=True), **{**MAC, "version": macos}) == [code]


@pytest.mark.parametrize("package", ["tensorflow", "tensorflow-macos"])
@pytest.mark.parametrize(
    ("release", "python", "alone", "with_plug_in"),
    [("2.18.1", "3.12.4", "no-tensorflow-metal", None), ("2.19.1", "3.10.14", "no-tensorflow-metal", None),
     ("2.19.1", "3.13.1", "tensorflow-without-gpu", None), ("2.17.1", "3.12.4", "tensorflow-without-gpu", None),
     ("2.20.0", "3.12.4", "tensorflow-without-gpu", "tensorflow-metal-breaks"),
     ("2.21.0", "3.11.9", "tensorflow-without-gpu", "tensorflow-metal-breaks")],
)  # fmt: skip
def test_apples_plug_in_is_advised_only_where_tensorflow_loads_it(
    release: str, python: str, alone: str, with_plug_in: str | None, package: str
) -> None:
    mine = torch("2.13.0", (CPU, MPS), mps=True)
    (advice,) = findings(mine, **MAC, packages={package: release}, python=python)
    assert advice.code == alone
    assert advice.cure == (
        "pip install tensorflow-metal" if alone == "no-tensorflow-metal" else "measure the GPU with torch or mlx"
    )
    beside = findings(mine, **MAC, packages={package: release, "tensorflow-metal": "1.2.0"}, python=python)
    assert [each.code for each in beside] == ([with_plug_in] if with_plug_in else [])
    assert all("uninstall tensorflow-metal" in each.cure for each in beside)
    assert codes(torch(), system="Linux", packages={package: release}, python=python) == []


AMD: dict[str, Any] = {"system": "Linux", "gpus": (Gpu("amd", "AMD 0x744c"),), "nodes": ("kfd",)}
INTEL = Gpu("intel", "Intel 0x56a0")
ON_CPU: dict[str, Any] = {"cuda": None, "rocm": False, "mps": False}


@pytest.mark.parametrize(
    ("name", "support", "facts", "code", "cure"),
    [("tensorflow", ON_CPU, LINUX, "cpu-only-build", "tensorflow[and-cuda]"),
     ("tensorflow", {**ON_CPU, "cuda": "12.4"}, LINUX, "gpu-not-found", "tensorflow[and-cuda]"),
     ("tensorflow", ON_CPU, {**LINUX, "gpus": (INTEL, T4)}, "cpu-only-build", "tensorflow[and-cuda]"),
     ("tensorflow", ON_CPU, AMD, "cpu-only-build", "tensorflow-rocm"),
     ("tensorflow", ON_CPU, {**LINUX, "gpus": (INTEL,)}, None, ""), ("tensorflow", ON_CPU, MAC, None, ""),
     ("jax", ON_CPU, LINUX, "cpu-only-build", "jax[cuda13]"),
     ("jax", ON_CPU, AMD, "cpu-only-build", "jax[rocm7-local]"),
     ("jax", {**ON_CPU, "mps": True}, MAC, "mps-unavailable", "virtual machine"),
     ("jax", {**ON_CPU, "cuda": "13"}, LINUX, "driver-too-old", "jax[cuda12]"),
     ("jax", ON_CPU, MAC, "cpu-only-build", "torch or mlx"), ("mlx", {}, LINUX, "gpu-not-found", "mlx[cuda13]"),
     ("onnxruntime", {}, LINUX, "gpu-not-found", "onnxruntime-gpu"), ("openvino", {}, LINUX, None, "")],
)  # fmt: skip
def test_a_framework_without_the_gpu_has_the_cure_of_its_own(
    name: str, support: dict[str, Any], facts: dict[str, Any], code: str | None, cure: str
) -> None:
    without = findings(Installed(name, "", {name: "1.0"}, 2, (CPU,), support), **facts)
    assert [each.code for each in without] == ([code] if code else [])
    assert all(cure in each.cure for each in without)


def test_the_build_of_one_framework_does_not_hide_that_another_finds_no_gpu() -> None:
    facts: dict[str, Any] = LINUX
    two = (Installed("jax", "", {}, 2, (CPU,), ON_CPU), torch(cuda="12.4"))
    both = of(Checkup(facts=Facts(**facts), frameworks=two))
    assert [each.code for each in both] == ["cpu-only-build", "gpu-not-found"]


def test_a_framework_that_fails_is_installed_whatever_its_package_is_called() -> None:
    failing = Installed("tensorflow", error="NotFoundError: libmetal_plugin.dylib")
    assert codes(failing, system="Linux", packages={"tensorflow-cpu": "2.21.0"}) == ["framework-fails"]
    assert codes(failing, system="Linux", packages={"keras": "3.15.1"}) == ["no-framework"]


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "hides every GPU"), ("  ", "hides every GPU"), ("-1", "no GPU is visible"), ("1", "no GPU is visible"),
     ("0,1", "it and those after it are hidden"), ("GPU-ffff", "no GPU is visible"),
     ("NoDevFiles", "no GPU is visible")],
)  # fmt: skip
def test_a_setting_that_hides_gpus_is_named(value: str, words: str) -> None:
    hidden = torch("2.13.0+cu126", cuda="12.6")
    (found,) = findings(hidden, **LINUX, env={"CUDA_VISIBLE_DEVICES": value})
    assert found.code == "visible-devices"
    assert words in found.message


@pytest.mark.parametrize("value", ["0", "GPU-8932f937", "MIG-8932f937/1/0", " 0 "])
def test_a_setting_that_names_a_gpu_hides_none(value: str) -> None:
    used = torch("2.13.0+cu126", (CPU, CUDA), cuda="12.6")
    assert codes(used, **LINUX, env={"CUDA_VISIBLE_DEVICES": value}) == []


def test_without_a_gpu_of_nvidia_the_setting_does_not_matter() -> None:
    assert codes(torch(), system="Linux", env={"CUDA_VISIBLE_DEVICES": ""}) == []


@pytest.mark.parametrize(
    ("gpu", "nodes", "words"),
    [(T4, ("dri/renderD128",), "--gpus all"), (Gpu("amd", "AMD 0x744c"), ("dri/renderD128",), "--device /dev/kfd")],
)
def test_a_container_that_was_not_given_the_gpu(gpu: Gpu, nodes: tuple[str, ...], words: str) -> None:
    inside = {"system": "Linux", "gpus": (gpu,), "nodes": nodes, "container": "docker"}
    found = findings(torch(cuda="12.6", rocm="6.4"), **inside)
    assert [one.code for one in found] == ["container-without-gpu"]
    assert words in found[0].cure


def test_a_container_with_its_gpu_is_left_in_peace() -> None:
    assert codes(torch("2.13.0+cu126", (CPU, CUDA), cuda="12.6"), **LINUX, container="docker") == []


def test_a_card_without_a_driver() -> None:
    assert codes(torch(cuda="12.6"), system="Linux", gpus=(T4,)) == ["no-driver"]


def test_a_driver_that_fails_is_told_in_its_own_words() -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    (found,) = findings(torch(cuda="12.6"), system="Linux", gpus=(T4,), nodes=("nvidia0",), driver_error=said)
    assert found.code == "driver-fails"
    assert said in found.message
    assert "restart" in found.cure


def test_a_gpu_that_the_user_may_not_open_is_named_with_its_file_and_the_groups() -> None:
    amd: dict[str, Any] = {"system": "Linux", "gpus": (Gpu("amd", "AMD 0x74a1"),), "nodes": ("kfd",)}
    (found,) = findings(torch("2.13.0+rocm6.4", rocm="6.4"), **amd, barred=("kfd", "nvidia0"))
    assert found.code == "no-permission"
    assert found.message.endswith("may not open /dev/kfd")
    assert "render,video" in found.cure


def test_a_file_that_leads_to_another_gpu_is_no_cause() -> None:
    assert codes(torch(), **LINUX, barred=("dri/renderD128",)) == ["cpu-only-build"]
    assert codes(torch("2.13.0+cu126", cuda="12.6"), **LINUX, barred=("dri/renderD128",)) == ["gpu-not-found"]


def test_the_reference_blas_is_told_with_its_cure() -> None:
    slow = Installed("mlx", versions={"mlx": "0.32", "blas": "the reference BLAS"}, devices=(CPU,))
    (found,) = findings(slow, system="Linux", arch="x86_64")
    assert (found.code, "MLDYNO_MLX_PRELOAD" in found.cure) == ("slow-blas", True)
    assert findings(Installed("mlx", versions={"blas": "OpenBLAS"}, devices=(CPU,)), system="Linux") == []
