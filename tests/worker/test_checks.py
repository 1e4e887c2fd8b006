"""A record names what its framework gives no means to check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mldyno import plugins
from mldyno.frameworks import Program
from mldyno.records import Case, Checks
from mldyno.worker.checks import Wrong, check_precision, failure, unchecked


class Core(Program):
    """Nothing but the core."""

    def run(self, steps: int) -> None: ...

    def synchronize(self) -> None: ...

    def losses(self) -> Mapping[str, float] | None: ...

    def error_vs_reference(self) -> tuple[float, float] | None: ...


class Checked(Core):
    """All that can be checked."""

    params = 7

    def actual_device(self) -> str:
        return "cpu"

    def precision_flaw(self) -> str:
        return ""

    def effective_precision(self) -> str:
        return "tf32"


MPS = Case("mlp", mode="infer", device="mps")
NOTHING = Checks()
ALL = Checks(learned=True, agrees=True, error=0.0)


@pytest.mark.parametrize(
    ("case", "program", "facts", "checks", "names"),
    [
        (Case("mlp"), Core(), {"flops_per_step": 9.0}, NOTHING, "parameters, learning, device, peak"),
        (Case("mlp", mode="infer"), Core(), {"flops_per_step": 0.0}, NOTHING, "parameters, device"),
        (MPS, Checked(), {"flops_per_step": 0.0}, NOTHING, "agreement with the CPU"),
        (Case("mlp", precision="bf16"), Core(), {"flops_per_step": 0.0}, ALL, "parameters, precision, device"),
        (Case("mlp", precision="bf16"), Checked(), {"flops_per_step": 9.0, "peak_flops": 1.0}, ALL, None),
        (Case("true"), Core(), {"flops_per_step": 0.0, "end_to_end": True}, NOTHING, None),
    ],
)  # fmt: skip
def test_what_could_not_be_checked_is_named(
    case: Case, program: Program, facts: dict[str, Any], checks: Checks, names: str | None
) -> None:
    assert unchecked(case, plugins.framework("torch"), program, facts, checks).get("not_checked") == names


def test_in_fake_time_there_is_nothing_to_check() -> None:
    assert unchecked(Case("mlp"), plugins.framework("fake"), Core(), {"flops_per_step": 9.0}, NOTHING) == {}


def test_a_case_is_wrong_if_the_framework_reports_another_precision_than_it_asks_for() -> None:
    with pytest.raises(Wrong, match="fp32 did not take effect: the framework computes matmuls in tf32"):
        check_precision(Case("mlp", precision="fp32"), Checked())
    assert check_precision(Case("mlp", precision="tf32"), Checked()) == "tf32"
    assert check_precision(Case("mlp", precision="fp32"), Core()) is None


def test_autocast_asks_for_the_type_of_the_matmuls() -> None:
    case = Case("mlp", framework="fake", precision="amp-bf16")
    assert check_precision(case, plugins.framework("fake").open(case, None)) == "bf16"


def test_a_framework_that_is_missing_is_named_with_its_cure_before_there_is_a_case_too() -> None:
    missing = ModuleNotFoundError("No module named 'torch'", name="torch")
    cure = ("failed", "torch is not installed for this Python; pip install 'mldyno[torch]'")
    assert failure(None, missing) == failure("torch", missing) == cure
    theirs = ModuleNotFoundError("No module named 'their_code'", name="their_code")
    assert failure(None, theirs) == ("failed", "ModuleNotFoundError: No module named 'their_code'")
    part = ModuleNotFoundError("No module named 'torch.new'", name="torch.new")
    assert failure("torch", part) == ("failed", "ModuleNotFoundError: No module named 'torch.new'")
