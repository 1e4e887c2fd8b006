"""The contract of every framework: a known-long step is timed right, errors are told apart."""

from __future__ import annotations

import subprocess
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.datasets import Opened
from mldyno.frameworks import Framework, Unsupported
from mldyno.frameworks.fake import CLOCK
from mldyno.records import Case
from mldyno.timing.blocks import Blocks
from mldyno.workloads import Optimiser, Portable, Recipe

NAMES = plugins.names("frameworks")
KNOWN = 0.02  # s that the known-long step takes


def sleeper(module: ModuleType, case: Case) -> Recipe:
    """A torch model whose forward pass takes a known time of the fake clock."""

    class Sleeper(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any) -> Any:
            CLOCK.work(KNOWN, 0.0)
            return x * self.weight

    return Recipe(Sleeper(), lambda: (torch.rand(2), torch.rand(2)), torch.nn.functional.mse_loss, torch.optim.SGD)


def started(name: str) -> Framework:
    framework = plugins.framework(name)
    framework.start()
    return framework


def fake_call(words: list[str], **streams: Any) -> int:
    """A command that takes a known time of the fake clock."""
    assert words == ["known-long"]
    CLOCK.work(KNOWN, 0.0)
    return 0


def takes_time(x: Any) -> Any:
    CLOCK.work(KNOWN, 0.0)
    return x


def known_long(sleep: Any) -> Portable:
    """A portable workload whose forward pass takes a known time of the fake clock."""

    def network(nn: Any, case: Case) -> Any:
        layer = nn.linear("0", 2, 2)
        return lambda x: sleep(nn, layer(x))

    def examples(case: Case, draws: Any) -> Any:
        return draws.numbers((2, 2)), draws.labels((2,), 2)

    return Portable(network, examples, Optimiser("sgd", 0.1))


def in_jax(nn: Any, x: Any) -> Any:
    return nn.jax.pure_callback(takes_time, nn.jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def in_tensorflow(nn: Any, x: Any) -> Any:
    return nn.tf.ensure_shape(nn.tf.numpy_function(takes_time, [x], x.dtype), x.shape)


# How the step whose time is known is built, where that is not a model in PyTorch.
STEPS: dict[str, Any] = {
    "command": lambda: ["known-long"],
    "jax": known_long(in_jax),
    "tensorflow": known_long(in_tensorflow),
    "mlx": known_long(lambda nn, x: takes_time(x)),
    "numpy": known_long(lambda nn, x: takes_time(x)),
}
EXPORTED = ("onnxruntime", "openvino")  # engines that run no Python: what calls them takes the known time


def plain_linear(module: ModuleType, case: Case) -> Recipe:
    """A model that every engine can run."""
    return Recipe(torch.nn.Linear(2, 2), lambda: (torch.rand(2, 2), torch.rand(2)), sum, torch.optim.SGD)


STEPS |= dict.fromkeys(EXPORTED, plain_linear)


@pytest.mark.parametrize("name", NAMES)
def test_a_known_long_step_is_timed_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_FAKE", f'[{{"step": {KNOWN}, "slow": [0, 1.0]}}]')
    monkeypatch.setattr(subprocess, "call", fake_call)
    program = started(name).open(Case("mlp", framework=name, mode="infer", batch=2), STEPS.get(name, sleeper))
    if name in EXPORTED:
        engine: Any = program.engine  # type: ignore[attr-defined]
        run = engine.run
        monkeypatch.setattr(engine, "run", lambda batch: takes_time(run(batch)))
    blocks = Blocks(program, CLOCK)
    for steps in (1, 7):
        assert blocks.time(steps) / 1e9 == pytest.approx(steps * KNOWN, abs=1e-7)  # two looks at the clock


@pytest.mark.parametrize("name", NAMES)
def test_every_optional_member_can_be_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "call", fake_call)
    framework, case = started(name), Case("mlp", framework=name, mode="infer", batch=2)
    assert framework.layouts
    assert "fp32" in framework.precisions
    assert isinstance(framework.threads(), int | None)
    assert isinstance(framework.forecast_memory(case, None), int | None)
    assert "cpu" not in framework.support()
    program = framework.open(case, STEPS.get(name, sleeper))
    program.run(1)
    assert program.first_losses() is program.losses() is None
    assert (program.actual_device(), program.precision_flaw() or "") == ("cpu", "")
    assert program.effective_precision() in (None, "fp32")
    assert (program.device_peak(), program.device_time(1)) == (None, None)
    assert program.phases == {}
    assert isinstance(program.steady_counters(), tuple)
    assert isinstance(program.counts(), dict)
    assert isinstance(program.facts, dict)


@pytest.mark.parametrize("name", NAMES)
def test_it_names_its_versions_and_finds_the_cpu(name: str) -> None:
    framework = started(name)
    assert framework.name == name
    assert framework.versions()
    assert "cpu" in [device.name for device in framework.devices()]


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_told_apart(name: str) -> None:
    framework = started(name)
    assert framework.explain(MemoryError("no"))[0] == "oom"
    assert framework.explain(Unsupported("why"))[0] == "unsupported"
    assert framework.explain(ValueError("what"))[0] == "failed"


@pytest.mark.parametrize("name", NAMES)
def test_a_device_that_is_not_here_is_unsupported_and_never_replaced(name: str) -> None:
    with pytest.raises(Unsupported, match="xpu"):
        started(name).open(Case("mlp", framework=name, device="xpu", batch=2), STEPS.get(name, sleeper))


@pytest.mark.parametrize("placement", ["device", "host", "roundtrip"])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_torch_runs_the_step_that_a_plain_loop_would(mode: Any, placement: Any) -> None:
    framework = started("torch")
    case = Case("mlp", mode=mode, placement=placement, batch=4)
    program: Any = framework.open(case, plugins.workload("mlp").build["torch"])
    before = [parameter.clone() for parameter in program.network.parameters()]
    outputs = []
    forward = program.network.register_forward_hook(lambda *step: outputs.append(weakref.ref(step[-1])))
    program.run(3)
    forward.remove()
    changed = any(not torch.equal(a, b) for a, b in zip(before, program.network.parameters(), strict=True))
    assert changed == (mode == "train")
    assert program.network.training == (mode == "train")
    assert len(outputs) == 3
    assert all(output() is None for output in outputs)  # one would take the next out of the cache
    assert program.actual_device() == "cpu"
    assert program.error_vs_reference() is None


def test_placement_loader_needs_a_data_set() -> None:
    with pytest.raises(Unsupported, match="mlp has no data set on disk"):
        started("torch").open(Case("mlp", batch=2, placement="loader"), plugins.workload("mlp").build["torch"])


@pytest.mark.parametrize("axes", [{"loader_workers": 1}, {"pin_memory": True}], ids=["workers", "pinned"])
def test_a_framework_that_loads_in_its_own_process_has_no_loader_workers(axes: dict[str, Any]) -> None:
    none: Any = None  # of its items: it is refused before
    build, data = plugins.workload("mnist-cnn").portable, Opened("few", "synthetic", none, none, (0.1,), (0.3,))
    case = Case("mnist-cnn", framework="jax", batch=2, placement="loader", **axes)
    with pytest.raises(Unsupported, match="jax's batches are loaded in its own process; torch has loader workers"):
        plugins.framework("jax").open(case, build, data)


def test_torch_knows_a_memory_error_by_its_words_where_it_has_no_type() -> None:
    framework = started("torch")
    assert framework.explain(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))[0] == "oom"
    assert framework.explain(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))[0] == "oom"
    assert framework.explain(torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"))[0] == "oom"
    assert framework.explain(RuntimeError("Invalid buffer size: 58.07 GiB"))[0] == "oom"
    for library in ("CUBLAS", "CUDNN", "HIPBLAS"):
        trouble = f"CUDA error: {library}_STATUS_ALLOC_FAILED when calling `{library.lower()}Create(handle)`"
        assert framework.explain(RuntimeError(trouble))[0] == "oom"
    for memory in ("DEVICE", "HOST"):
        trouble = f"cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_{memory}_ALLOCATION_FAILED"
        assert framework.explain(RuntimeError(trouble))[0] == "oom"


@pytest.mark.parametrize(("trouble", "cure"), [
    ("CUDA error: no kernel image is available for execution on the device", "https://download.pytorch.org/whl/cu126"),
    ("HIP error: no kernel image is available for execution on the device", "HIP error"),
    ("backend='inductor' raised:\nRuntimeError: Failed to find C compiler. Please specify via CC environment variable",
     "install gcc or clang"),
])  # fmt: skip
def test_what_torch_lacks_for_a_device_is_unsupported_with_the_cure(trouble: str, cure: str) -> None:
    status, reason = started("torch").explain(RuntimeError(trouble))
    assert status == "unsupported"
    assert cure in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("name", "words"), [("TritonMissing", "pip install triton"), ("GPUTooOldForTriton", "too old")]
)
def test_a_device_that_torch_can_not_compile_for_is_unsupported_with_words(name: str, words: str) -> None:
    status, reason = started("torch").explain(type(name, (RuntimeError,), {})("trouble"))
    assert status == "unsupported"
    assert words in reason


def test_ranks_in_a_process_by_itself_are_refused_with_a_reason() -> None:
    with pytest.raises(Unsupported, match="ranks are started together"):
        started("torch").open(Case("mlp", batch=2, ranks=2), plugins.workload("mlp").build["torch"])


@pytest.mark.parametrize("name", NAMES)
def test_memory_that_is_not_there_is_refused_and_told_as_what_it_is(name: str) -> None:
    framework = started(name)
    with pytest.raises(Exception, match=r"(?i)memory|alloc") as refused:
        framework.allocate(Case("mlp", framework=name), 1 << 60)
    assert framework.explain(refused.value)[0] == ("unsupported" if name in ("command", *EXPORTED) else "oom")
