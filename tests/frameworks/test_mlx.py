"""MLX with a pretended GPU: a model and its device stay together, whatever the process's default device is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx
import mlx.core as mx
import mlx.nn
import mlx.optimizers
import pytest
from tests.frameworks.pretended_mlx_gpu import PretendedGpu

from mldyno import plugins, system_queries
from mldyno.frameworks import Unsupported
from mldyno.frameworks.mlx import Mlx
from mldyno.records import Case, recorded_environment
from mldyno.tracking import process
from mldyno.worker import checks
from mldyno.worker.client import settings_of
from mldyno.workloads import Recipe, gpt2

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
DEVICES = ("cpu", "mps")
IDLE_S = 0.05  # of CPU time: what the thread of an idle device may take


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedGpu]:
    before = mx.default_stream(mx.cpu)
    pretended = PretendedGpu()
    monkeypatch.setattr(mlx, "core", pretended)
    yield pretended
    mx.set_default_stream(before)


@pytest.fixture
def framework(gpu: PretendedGpu) -> Mlx:
    started = Mlx()
    started.start()
    return started


def opened(framework: Mlx, device: str, build: Any = None, **axes: Any) -> Any:
    given: dict[str, Any] = {"mode": "train", "batch": 128} | axes
    case = Case("mlp", framework="mlx", device=device, **given)
    return framework.open(case, build or framework.version_of(plugins.workload("mlp")))


def work(gpu: PretendedGpu, program: Any, seconds: float = 0.2) -> dict[str, float]:
    """Run a program until it has worked for that many s of CPU time; return those of each device."""
    before, spent = gpu.worked(), dict.fromkeys(DEVICES, 0.0)
    while sum(spent.values()) < seconds:
        program.run(1)
        program.synchronize()
        spent = {name: now - before[name] for name, now in gpu.worked().items()}
    return spent


@pytest.mark.parametrize(
    "axes", [{}, {"compile": True}, {"mode": "infer", "batch": 1024}, {"placement": "roundtrip"}], ids=str
)
def test_two_models_on_two_devices_take_turns_and_each_works_on_its_own(
    gpu: PretendedGpu, framework: Mlx, axes: dict[str, Any]
) -> None:
    programs = {device: opened(framework, device, **axes) for device in DEVICES}
    for default in (mx.cpu, mx.gpu):
        gpu.set_default_device(default)
        for device, program in programs.items():
            spent = work(gpu, program)
            (other,) = {*DEVICES} - {device}
            assert spent[other] < IDLE_S < spent[device]
            assert program.actual_device() == device


def test_the_phases_of_a_step_run_on_the_device_of_their_case(
    gpu: PretendedGpu, framework: Mlx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpt2, "SHAPE", replace(gpt2.SHAPE, layers=2, width=192, heads=2))
    build = framework.version_of(plugins.workload("gpt2"))
    program = opened(framework, "cpu", build, mode="infer", batch=1, seq=64)
    gpu.set_default_device(mx.gpu)
    for name in program.phases:
        program.run_phase(name)
        program.synchronize()
    assert gpu.worked()["mps"] < IDLE_S
    assert program.actual_device() == "cpu"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("default", [mx.cpu, mx.gpu])
def test_a_case_and_its_checks_leave_the_default_device_as_it_was(
    gpu: PretendedGpu, framework: Mlx, device: str, default: Any
) -> None:
    gpu.set_default_device(default)
    program = opened(framework, device, batch=4)
    program.run(1)
    agreement = program.error_vs_reference()
    assert (agreement is None) == (device == "cpu")
    framework.matmul(program.case, 64).run(1)
    framework.allocate(program.case, 1 << 10)
    program.losses()
    checks.check_device(program.case, program)
    assert gpu.default_device().type == default


def test_the_device_of_a_model_that_chooses_another_one_is_named(gpu: PretendedGpu, framework: Mlx) -> None:
    def on_the_cpu(_: Any, case: Case) -> Recipe:
        def model(x: Any) -> Any:
            gpu.set_default_device(mx.cpu)
            return x * 2

        return Recipe(model, lambda: (mx.ones((4, 4)), None), lambda output, _: output, lambda _: None)

    program = opened(framework, "mps", on_the_cpu, mode="infer")
    program.run(1)
    with pytest.raises(checks.Wrong, match="asks for mps, the tensors lie on cpu"):
        checks.check_device(program.case, program)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_of_the_user_is_made_and_draws_on_the_device_of_its_case(
    gpu: PretendedGpu, framework: Mlx, device: str
) -> None:
    seen = []

    def look(result: Any) -> Any:
        seen.append({mx.cpu: "cpu", mx.gpu: "mps"}[gpu.default_device().type])
        return result

    def build(_: Any, case: Case) -> Recipe:
        layer = look(mlx.nn.Linear(4, 4))
        batch = mx.ones((2, 4)), mx.zeros((2, 4))
        return Recipe(
            layer, lambda: look(batch), lambda output, targets: look(output - targets).square(),
            lambda _: look(mlx.optimizers.SGD(0.1)),
        )  # fmt: skip

    program = opened(framework, device, build)
    program.run(1)
    assert {*seen} == {device}
    assert len(seen) == 1 + 4 + 1 + 1  # the model, the batches, the optimiser, the loss


@pytest.mark.parametrize("device", DEVICES)
def test_a_wait_ends_when_the_device_of_its_case_is_done(gpu: PretendedGpu, framework: Mlx, device: str) -> None:
    def finish() -> float:
        """Wait for all devices; return the CPU time that the one of the case has spent."""
        for stream in gpu.streams.values():
            mx.synchronize(stream)
        return gpu.worked()[device]

    program = opened(framework, device, mode="infer", batch=2048)
    kernel = framework.matmul(program.case, 512)
    for steps, times in ((program, 1), (kernel, 8)):
        gpu.set_default_device(mx.gpu if device == "cpu" else mx.cpu)
        began = finish()
        steps.run(times)
        steps.synchronize()
        at_return, in_all = gpu.worked()[device] - began, finish() - began
        assert in_all > 3 * IDLE_S
        assert in_all - at_return < IDLE_S


@pytest.mark.parametrize("placement", ["host", "roundtrip"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_batches_of_every_precision_are_copied_from_the_host(framework: Mlx, placement: str, precision: str) -> None:
    program = opened(framework, "mps", mode="infer", precision=precision, placement=placement, batch=4)
    program.run(2)
    program.synchronize()
    assert program.precision_flaw() == ""
    backend, stored = program.backend, program.backend.stored
    batch = mx.array([[1.5, -2.0], [0.25, 3.0]]), {"ids": mx.array([7, 65535], mx.uint16), "one": mx.array(0.5)}
    inputs, others = backend.copy_in(backend.on_host(batch))
    assert (inputs.dtype, inputs.tolist()) == (stored, batch[0].tolist())
    assert (others["ids"].dtype, others["ids"].tolist()) == (mx.uint16, [7, 65535])
    assert (others["one"].dtype, others["one"].tolist()) == (stored, 0.5)
    assert list(backend.flat(inputs)) == [1.5, -2.0, 0.25, 3.0]


def test_fp32_is_fp32_on_all_devices_and_the_record_says_by_what() -> None:
    environment = settings_of(Case("mlp", framework="mlx"))
    assert environment["MLX_ENABLE_TF32"] == "0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLX_ENABLE_TF32", "1")
        assert recorded_environment()["MLX_ENABLE_TF32"] == "1"
        assert settings_of(Case("mlp", framework="mlx"))["MLX_ENABLE_TF32"] == "0"


@pytest.mark.parametrize(("kept", "mode"), [(23, "fp32"), (10, "tf32"), (7, "bf16")])
def test_how_fp32_is_multiplied_is_read_from_a_product_on_the_device(
    framework: Mlx, monkeypatch: pytest.MonkeyPatch, kept: int, mode: str
) -> None:
    program = opened(framework, "mps", batch=1)
    full = mx.full
    monkeypatch.setattr(framework.mx, "full", lambda shape, x: full(shape, round(x * 2**kept) / 2**kept), raising=False)
    assert program.backend.fp32_mode() == mode


def test_a_compiler_that_only_asks_to_be_installed_is_none(
    framework: Mlx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub = tmp_path / "g++"
    stub.write_text("#!/bin/sh\necho 'no developer tools were found'\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Unsupported, match=r"g\+\+ --version fails; install g\+\+"):
        opened(framework, "cpu", compile=True)
    opened(framework, "mps", compile=True)


def test_where_a_compiler_would_open_a_dialog_it_is_not_started(
    framework: Mlx, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(system_queries, "is_stub", lambda tool: tool == "g++")
    monkeypatch.setattr(system_queries, "ask", lambda *words: asked.extend(words))
    with pytest.raises(Unsupported, match="xcode-select --install"):
        opened(framework, "cpu", compile=True)
    assert asked == []


def test_a_tracked_loop_is_waited_for_on_both_devices(gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setitem(sys.modules, "mlx.core", gpu)
    monkeypatch.setattr(gpu, "synchronize", waited.append)
    place = process.place()
    assert place.device == "mps"
    assert place.wait is not None
    place.wait()
    assert waited == [gpu.streams[mx.cpu], gpu.streams[mx.gpu]]


def test_the_extra_takes_no_mlx_that_can_not_describe_a_device() -> None:
    """`mx.device_info` is new in MLX 0.31."""
    (extra,) = re.findall(r"^mlx = (.*)$", PYPROJECT.read_text(), re.MULTILINE)
    oldest = re.findall(r">=(\d+)\.(\d+)", extra)
    assert len(oldest) == extra.count("sys_platform")
    assert min((int(major), int(minor)) for major, minor in oldest) >= (0, 31)
