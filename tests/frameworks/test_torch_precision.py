"""Precisions in PyTorch: each takes effect, agrees with fp32 as far as it can, or is no result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.frameworks.test_every_framework import started

from mldyno import plugins
from mldyno.axes import PRECISIONS
from mldyno.frameworks import TOLERANCE, Unsupported
from mldyno.frameworks.torch.precision import PrecisionPolicy, fp32_mode, matmul_types, set_fp32_mode
from mldyno.records import Case
from mldyno.worker import peaks
from mldyno.worker.checks import Wrong, check_precision, failure
from mldyno.worker.session import CaseSession, open_case
from mldyno.workloads import Recipe

TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "amp-fp16": "float16", "amp-bf16": "bfloat16",
         "fp64": "float64"}  # fmt: skip
ON_CPU = tuple(TYPES)


@pytest.fixture(autouse=True)
def no_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the device's peaks, which take long and are tested elsewhere."""
    monkeypatch.setattr(peaks, "exceeded", lambda *_: (1e15, False))
    monkeypatch.setattr(peaks, "copy_rate", lambda *_: 1e12)


def opened(workload: str, precision: str, mode: str = "infer", **axes: Any) -> CaseSession:
    return open_case(Case(workload, mode=mode, precision=precision, **axes))  # type: ignore[arg-type]


def measured(case: CaseSession) -> dict[str, Any]:
    """What a worker says of a case, after a few steps."""
    case.warm_up(0.1)
    case.turn(0.0, 2)
    closed = case.close()
    return {"facts": closed.facts, "checks": vars(closed.checks)}


def test_every_precision_has_a_tolerance() -> None:
    assert set(TOLERANCE) == set(PRECISIONS)


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("precision", ON_CPU)
def test_a_precision_takes_effect_and_agrees_with_fp32(precision: str, mode: str) -> None:
    answer = measured(opened("mlp", precision, mode, batch=16))
    assert answer["facts"]["products_in"] == TYPES[precision]
    assert answer["checks"]["learned"] is (True if mode == "train" else None)
    if precision == "fp32":
        assert answer["checks"]["error"] is None
    else:
        assert answer["checks"]["agrees"] is True
        assert 0 < answer["checks"]["error"] <= TOLERANCE[precision]


HALVES = [(workload, precision) for workload in ("mnist-cnn", "attention", "bert-tiny")
          for precision in ("bf16", "amp-bf16", "fp16", "amp-fp16")]  # fmt: skip


# On CPUs without instructions for it, PyTorch has no autocast for recurrent nets: it says so by an error.
@pytest.mark.parametrize(("workload", "precision"), [*HALVES, ("lstm", "bf16"), ("lstm", "fp16")])
def test_convolutions_attention_and_recurrent_nets_run_in_half_precision(workload: str, precision: str) -> None:
    case = opened(workload, precision, batch=2)
    case.program.run(1)
    assert case.program.precision_flaw() == ""
    assert case.program.facts["products_in"] == TYPES[precision]
    error, tolerance = case.program.error_vs_reference() or (0.0, 0.0)
    assert 0 < error <= tolerance


@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16"])
def test_an_autocast_that_does_nothing_is_no_result(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(*given: Any, **named: Any) -> Callable[[Any], Any]:
        return lambda work: work

    monkeypatch.setattr(torch, "autocast", deaf)
    with pytest.raises(
        Wrong, match=f"{precision} did not take effect: of the matmuls of a forward pass, 4 in float32 ran"
    ):
        measured(opened("mlp", precision, batch=4))


def test_results_that_are_those_of_fp32_to_the_last_bit_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    case = opened("mlp", "bf16", batch=4)
    monkeypatch.setattr(case.program, "error_vs_reference", lambda: (0.0, 0.1))
    with pytest.raises(Wrong, match="bf16 did not take effect: results are those of fp32 to the last bit"):
        measured(case)


def test_results_too_far_from_fp32_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    case = opened("mlp", "fp16", batch=4)

    def spoilt(policy: PrecisionPolicy, tensor: Any) -> Any:
        is_reference = policy.storage_type is torch.float32
        return tensor if is_reference else torch.ones_like(tensor, dtype=policy.storage_type)

    monkeypatch.setattr(PrecisionPolicy, "to_device", spoilt)
    with pytest.raises(Wrong, match=r"results differ from fp32 on the CPU by .*; at most 0.02 is allowed in fp16"):
        measured(case)


def test_what_autocast_leaves_in_fp32_is_counted_apart() -> None:
    a, b = torch.randn(4, 4), torch.randn(4, 4)

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a @ b
        a @ b
        a @ b

    assert matmul_types(torch, work) == {"bfloat16": 1, "float32": 2}


def test_attention_that_widens_half_precision_itself_does_not_make_a_case_wrong() -> None:
    """As on devices without a fused kernel for it."""
    heads = torch.randn(1, 2, 4, 8, dtype=torch.bfloat16)
    case = opened("bert-tiny", "bf16", batch=2, seq=4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        types = matmul_types(torch, lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads))
        assert types == {"float32 in attention": 2}
        assert case.program.precision_flaw() == ""
    assert case.program.facts["products_in"] == "bfloat16, float32 in attention"


def test_a_gradient_scaler_that_leaves_steps_out_does_not_make_a_case_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrecisionPolicy, "scaler", lambda policy: torch.amp.GradScaler("cpu", init_scale=2.0**24))
    case = opened("mlp", "amp-fp16", "train", batch=8)
    case.program.run(1)
    assert case.program.backend.scaler.get_scale() < 2.0**24  # type: ignore[attr-defined]
    error, tolerance = case.program.error_vs_reference() or (0.0, 0.0)
    assert 0 < error <= tolerance


def test_tf32_is_on_within_steps_only() -> None:
    policy = PrecisionPolicy(torch, Case("mlp", precision="tf32"), torch.device("cuda:0"))
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn)
    with policy.steps():
        assert [setting.allow_tf32 for setting in settings] == [True, True]
        assert fp32_mode(torch, "cuda") == "tf32"
    assert [setting.allow_tf32 for setting in settings] == [False, False]
    assert fp32_mode(torch, "cuda") == "fp32"


OF_OPERATIONS = ("cudnn.conv", "cudnn.rnn", "cuda.matmul", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn", "older")
ABOVE = ("", "cudnn", "mkldnn")  # settings for operations that have none set


def lower(name: str) -> None:
    """Do as a user who wants fast fp32: by a setting of that name, or by the older ones."""
    if name == "older":
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.allow_tf32 = True
    else:
        operator.attrgetter(f"backends.{name}".rstrip("."))(torch).fp32_precision = "tf32"


def lowering(name: str, when: str) -> Any:
    """A model that lowers the precision of fp32 while it is built, or in its forward pass."""

    class Model(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if when == "forward":
                lower(name)
            return super().forward(x)

    def build(torch: Any, case: Case) -> Recipe:
        if when == "build":
            lower(name)
        draw = lambda: (torch.randn(2, 4), torch.randn(2, 4))  # noqa: E731
        return Recipe(Model(4, 4), draw, torch.nn.functional.mse_loss, torch.optim.SGD)

    program = started("torch").open(Case("mlp", mode="infer", batch=2), build)
    program.run(1)
    return program


@pytest.fixture
def _own_settings() -> Iterator[None]:
    yield
    set_fp32_mode(torch, "fp32")


@pytest.mark.usefixtures("_own_settings")
@pytest.mark.parametrize("name", [*OF_OPERATIONS, *ABOVE])
def test_a_users_model_that_lowers_fp32_is_measured_in_fp32(name: str) -> None:
    program = lowering(name, "build")
    assert check_precision(program.case, program) == "fp32"
    assert fp32_mode(torch, "cuda") == "fp32"
    older = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    assert older == ("highest", False, False)


@pytest.mark.usefixtures("_own_settings")
@pytest.mark.parametrize(("name", "effective"), [("older", "bf16"), ("mkldnn.conv", "tf32")])
def test_a_users_model_that_lowers_fp32_in_its_steps_is_no_result(name: str, effective: str) -> None:
    program = lowering(name, "forward")
    with pytest.raises(Wrong, match=f"fp32 did not take effect: the framework computes matmuls in {effective}"):
        check_precision(program.case, program)


@pytest.mark.usefixtures("_own_settings")
@pytest.mark.parametrize("name", [*OF_OPERATIONS, *ABOVE])
def test_the_precision_of_fp32_can_be_read_whatever_was_set(name: str) -> None:
    lower(name)
    modes = {fp32_mode(torch, "cuda"), fp32_mode(torch, "cpu")}
    assert (modes == {"fp32"}) == (name in ABOVE)
    assert fp32_mode(torch, "mps") is None


@pytest.mark.parametrize(("matmuls", "convolutions", "on_cuda", "on_cpu"), [
    ("highest", False, "fp32", "fp32"), ("high", False, "tf32", "fp32"), ("highest", True, "tf32", "fp32"),
    ("medium", False, "tf32", "bf16"),
])  # fmt: skip
def test_before_2_9_fp32_is_set_and_read_by_the_older_settings(
    matmuls: str, convolutions: bool, on_cuda: str, on_cpu: str
) -> None:
    older = SimpleNamespace(cudnn=SimpleNamespace(allow_tf32=convolutions), mkldnn=SimpleNamespace())
    old: Any = SimpleNamespace(backends=older, version=SimpleNamespace(cuda="12.4"))
    settings = [matmuls]
    old.get_float32_matmul_precision, old.set_float32_matmul_precision = lambda: settings[-1], settings.append
    assert (fp32_mode(old, "cuda"), fp32_mode(old, "cpu")) == (on_cuda, on_cpu)
    set_fp32_mode(old, "fp32")
    assert (fp32_mode(old, "cuda"), settings[-1], older.cudnn.allow_tf32) == ("fp32", "highest", False)


def test_intels_gpus_have_a_setting_of_their_own() -> None:
    mkldnn, cudnn = SimpleNamespace(allow_tf32=True), SimpleNamespace(allow_tf32=False)
    made: Any = SimpleNamespace(version=SimpleNamespace(xpu="20250302"), set_float32_matmul_precision=lambda mode: None)
    made.backends = SimpleNamespace(mkldnn=mkldnn, cudnn=cudnn)
    assert fp32_mode(made, "xpu") == "tf32"
    set_fp32_mode(made, "fp32")
    assert fp32_mode(made, "xpu") == "fp32"


def test_tf32_is_unsupported_off_cuda() -> None:
    with pytest.raises(Unsupported, match="tf32 is a mode of CUDA's matmuls; cpu has none"):
        opened("mlp", "tf32")


def test_what_multiplies_nothing_has_no_other_precision_than_fp32() -> None:
    with pytest.raises(Unsupported, match="multiplies nothing, so that bf16 is no other case than fp32"):
        measured(opened("copy", "bf16", batch=1))


def test_phases_with_optimisers_of_their_own_can_have_no_gradient_scaler() -> None:
    with pytest.raises(Unsupported, match=r"environment, policy.* which no gradient scaler serves"):
        opened("venv-ppo", "amp-fp16", "train", batch=16)


def test_a_step_in_phases_is_not_compiled() -> None:
    with pytest.raises(Unsupported, match=r"phases \(prefill, decode\) of changing shapes"):
        opened("gpt2", "fp32", batch=1, seq=8, compile=True)


@pytest.mark.parametrize(
    "words",
    ["\"addmm_impl_cpu_\" not implemented for 'Half'",
     "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Use float32 instead.",
     "could not create a primitive descriptor for the LSTM forward propagation primitive.",
     "Current CUDA Device does not support bfloat16. Please switch dtype to float16."],
)  # fmt: skip
def test_a_type_that_a_device_lacks_is_unsupported_in_the_frameworks_own_words(words: str) -> None:
    assert failure("torch", RuntimeError(words)) == ("unsupported", words)


def test_products_of_the_peak_are_in_the_precision_of_the_case() -> None:
    framework: Any = plugins.framework("torch")
    framework.start()
    for precision, name in TYPES.items():
        product = framework.matmul(Case("matmul", precision=precision), 8)  # type: ignore[arg-type]
        product.run(1)
        assert str(product.issue.keywords["out"].dtype) == f"torch.{name}"


def test_memory_is_foreseen_by_the_size_of_the_numbers() -> None:
    framework: Any = plugins.framework("torch")
    framework.start()
    build = plugins.workload("mlp").build["torch"]

    def foreseen(precision: str, device: str) -> int:
        case = Case("mlp", mode="infer", batch=8, device=device, precision=precision)  # type: ignore[arg-type]
        return int(framework.forecast_memory(case, build))

    on_device = {precision: foreseen(precision, "cuda:0") for precision in ("fp64", "fp32", "bf16")}
    assert on_device["fp64"] == pytest.approx(2 * on_device["fp32"], rel=0.01)
    assert on_device["bf16"] == pytest.approx(on_device["fp32"] / 2, rel=0.02)  # a batch is drawn in fp32
    assert foreseen("bf16", "cpu") > on_device["fp32"]  # there it is built in fp32, and cast


def test_recurrent_layers_are_unsupported_under_autocast_on_metal() -> None:
    backend = opened("lstm", "fp32", batch=2, seq=4).program.backend  # type: ignore[attr-defined]
    backend.check_recurrent()
    backend.device = torch.device("mps")
    backend.check_recurrent()
    backend.policy.autocasts = True
    with pytest.raises(Unsupported, match="can't run under autocast on MPS; take fp32; fp16 and bf16 are untested"):
        backend.check_recurrent()


@pytest.mark.parametrize(("capable", "precision", "emulated"), [
    (False, "bf16", True), (False, "amp-bf16", True), (False, "fp16", False), (True, "bf16", False),
])  # fmt: skip
def test_a_card_that_only_emulates_bf16_is_known(
    capable: bool, precision: str, emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: capable)
    case = Case("mlp", precision=precision)  # type: ignore[arg-type]
    assert PrecisionPolicy(torch, case, torch.device("cuda:0")).emulated is emulated
    assert PrecisionPolicy(torch, case, torch.device("cpu")).emulated is False


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
def test_images_may_lie_channels_last_and_give_the_same_results(precision: str, mode: str) -> None:
    case = opened("mnist-cnn", precision, mode, batch=4, layout="channels-last")
    program: Any = case.program
    assert program.fixed[0].is_contiguous(memory_format=torch.channels_last)
    weights = [each for each in program.network.parameters() if each.dim() == 4]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    answer = measured(case)
    assert answer["checks"]["agrees"] is True
    assert answer["checks"]["error"] <= TOLERANCE[precision]


def test_what_has_no_images_has_no_other_layout() -> None:
    with pytest.raises(Unsupported, match="no images, so that channels-last is no other case than contiguous"):
        opened("mlp", "fp32", batch=2, layout="channels-last")
