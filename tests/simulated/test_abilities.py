"""The simulated device does what is said of it, and the worker sees through what it only pretends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.simulated.conftest import HERE, ISSUE

from mldyno.analysis.breakdown import bound, shares
from mldyno.frameworks import TOLERANCE
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Series
from mldyno.runner.warnings import Evidence, of_measurement
from mldyno.selftest.device import measure
from mldyno.selftest.setup import TaskResult

KERNEL = 1e-3
ROOM, RATE = 64 << 20, 2e10
PER_ITEM = 2 * (1024 * 512 + 2 * 512 * 512 + 512 * 2)  # operations of a forward step of mlp
ARITHMETIC = 2 * PER_ITEM / RATE  # s of a step of two items
HALVES = ["bfloat16", "bfloat16", "float16", "float16"]
FULL = ["float32"] * 4


@pytest.fixture(scope="module")
def tried() -> dict[str, Any]:
    """What came of every trial, in one process."""
    paths = os.pathsep.join([str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    settings = {"virtual": True, "kernel": KERNEL, "rate": RATE, "issue": ISSUE, "capacity": ROOM}
    told = json.dumps({**settings, "cpu": {"kernel": KERNEL}})
    environment = {**os.environ, "PYTHONPATH": paths, "MLDYNO_SIM": told, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "abilities.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_operation_costs_its_launch_and_the_longer_of_arithmetic_and_bytes(tried: dict[str, Any]) -> None:
    operations, size = 2 * 64**3, 4 * 64**2
    assert tried["costs"] == pytest.approx(
        {
            "product": KERNEL + operations / 1e6, "half": KERNEL + operations / 4e6, "sum": KERNEL + 3 * size / 1e6,
            "in": KERNEL + size / 1e6, "out": KERNEL + size / 1e6,
        }
    )  # fmt: skip


@pytest.mark.parametrize(("placement", "copies", "size"), [("host", 1, 8192), ("roundtrip", 2, 8192 + 16)])
def test_the_harness_sees_what_a_copy_costs(placement: str, copies: int, size: int, tried: dict[str, Any]) -> None:
    found = tried["transfer"][placement]
    known = (7 + copies) * KERNEL + ARITHMETIC + size / 1e6 + 2 * ISSUE
    assert (found["status"], found["reason"]) == ("ok", "")
    assert found["step"] == pytest.approx(known, rel=0.005)


@pytest.mark.parametrize(("placement", "copies", "size"), [("device", 0, 0), ("host", 1, 8192), ("roundtrip", 2, 8208)])
@pytest.mark.parametrize("kernel", [0.2e-3, 5e-3, 0.5])
def test_the_harness_reports_the_known_truth_within_half_a_percent(
    kernel: float, placement: str, copies: int, size: int, tried: dict[str, Any]
) -> None:
    found = tried["truths"][f"{kernel} {placement}"]
    known = (7 + copies) * kernel + ARITHMETIC
    known += 2 * ISSUE if copies else 0.0  # the copy in, and then the first kernel, find an idle device
    assert (found["status"], found["reason"], found["device_seen"]) == ("ok", "", "sim:0")
    assert found["step"] == pytest.approx(known, rel=0.005)
    assert found["events_share"] == pytest.approx(1.0, abs=0.02)
    assert found["checks"]["agrees"] is True
    assert (found["late_changes"], found["copied_per_step"]) == (0, size)
    if placement != "host":
        assert (found["drained_share"] > 0.9) == (placement == "roundtrip")


def test_what_holds_a_case_up_is_known_and_is_told(tried: dict[str, Any]) -> None:
    told = {name: bound(record_of(found)) for name, found in tried["bounds"].items()}
    assert {name: one and one.kind for name, one in told.items()} == {name: name for name in told}
    known = 8192 / 5e5 / (8e-3 + ARITHMETIC + 8192 / 5e5)  # of a step, the copy of its batch
    share = shares(record_of(tried["bounds"]["copy"]))
    assert share is not None
    assert share.copy == pytest.approx(known, rel=0.01)
    for name in ("compute", "memory"):
        share = shares(record_of(tried["bounds"][name]))
        assert share is not None
        assert getattr(share, name) == pytest.approx(1.0, abs=0.02)


def record_of(found: dict[str, Any]) -> Record:
    """What the parent would make of a case that came out well."""
    assert (found["status"], found["reason"]) == ("ok", "")
    case = Case("mlp", device="sim", mode="infer", batch=2)
    series = (Series("step_time", "s", (found["step"],) * 20),)
    facts = {name: value for name, value in found.items() if name != "checks"} | {"load_time": 6.0}
    warnings = of_measurement(Evidence(case, series, facts, Machine("m"), 1))
    return Record(
        SCHEMA, "", "2026-01-01T00:00:00Z", "measured",
        Run("r"), case, "ok", "", Machine("m"), series=series, facts=facts,
        warnings=tuple(warnings),
    )  # fmt: skip


def test_a_full_queue_is_not_taken_for_a_host_that_holds_the_device_up(tried: dict[str, Any]) -> None:
    found = tried["queues"]["full"]
    assert found["drained_share"] > 0.9
    assert found["issued_share"] < 0.9
    assert [one.code for one in record_of(found).warnings] == []


def test_a_step_that_reads_its_result_back_waits_within_itself(tried: dict[str, Any]) -> None:
    found = tried["queues"]["read_back"]
    assert [one.code for one in record_of(found).warnings] == ["step-waits"]
    assert found["host_syncs_per_step"] == 1


def test_operations_that_the_device_lets_the_cpu_do_are_counted_and_said(tried: dict[str, Any]) -> None:
    found = tried["fallbacks"]
    assert found["fallbacks_per_step"] > 0
    assert "falls-back" in [one.code for one in record_of(found).warnings]


def test_a_wait_hidden_in_the_step_is_part_of_the_truth_and_is_seen(tried: dict[str, Any]) -> None:
    found = tried["waits"]["hidden"]
    assert found["step"] == pytest.approx(7 * 0.2e-3 + ARITHMETIC + ISSUE, rel=0.005)
    assert [one.code for one in record_of(found).warnings] == ["step-waits"]


def test_without_the_wait_the_harness_would_be_off_by_far_and_the_case_is_wrong(tried: dict[str, Any]) -> None:
    found = tried["waits"]
    assert found["waited_for"] == pytest.approx(35e-3 + ARITHMETIC, rel=0.005)
    assert found["not_waited_for"] == pytest.approx(7e-3, rel=0.01)
    assert found["case"]["status"] == "wrong"
    assert "was not waited for" in found["case"]["reason"]


def test_autocast_lowers_products_and_leaves_the_rest(tried: dict[str, Any]) -> None:
    lowered = {"linear", "mm", "addmm", "bmm", "conv2d", "attention"}
    assert tried["casts"] == {name: HALVES if name in lowered else FULL for name in tried["casts"]}


def test_a_deaf_autocast_is_on_and_changes_nothing(tried: dict[str, Any]) -> None:
    assert tried["deaf_casts"] == {"heard": "torch.bfloat16", "unheard": "torch.float32", "equal": True}


def test_gradients_pass_through_autocast(tried: dict[str, Any]) -> None:
    assert tried["backward_under_autocast"] == {"kind": "torch.float32", "place": "sim:0", "rounded": True}


def test_a_gradient_scaler_comes_down_to_where_gradients_are_finite_and_learns(tried: dict[str, Any]) -> None:
    scales, losses = tried["scaling"]["scales"], tried["scaling"]["losses"]
    assert scales == sorted(scales, reverse=True)
    assert scales[0] == 2.0**39
    assert 1 < scales[-1] < 2.0**20
    assert losses[-1] < losses[0]


def test_a_type_that_the_device_lacks_is_refused_in_the_frameworks_words(tried: dict[str, Any]) -> None:
    found = tried["refusals"]
    assert found["torch.float64"][0] == found["module"][0] == "TypeError"
    assert "doesn't support float64" in found["torch.float64"][1]
    assert found["torch.bfloat16"] == ["TypeError", "bfloat16 is not supported on SIM"]
    assert found["supported"] == ["torch.float16"]


TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "amp-fp16": "float16", "amp-bf16": "bfloat16",
         "fp64": "float64"}  # fmt: skip


def test_every_precision_takes_effect_on_the_device_and_agrees_with_the_cpu(tried: dict[str, Any]) -> None:
    ran = {name.split()[0]: found for name, found in tried["precisions"].items() if found["status"] == "ok"}
    assert set(ran) == set(TYPES)
    for name, found in tried["precisions"].items():
        precision, mode = name.split()
        if precision == "tf32":
            told = ("unsupported", "tf32 is a mode of CUDA's matmuls; sim has none")
            assert (found["status"], found["reason"]) == told
            continue
        assert (found["status"], found["reason"], found["device_seen"]) == ("ok", "", "sim:0"), name
        assert found["products_in"] == TYPES[precision], name
        assert found["checks"]["learned"] is (True if mode == "train" else None), name
        assert 0 <= found["checks"]["error"] <= TOLERANCE[precision], name
        assert (found["checks"]["error"] > 0) == (precision != "fp32"), name


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16"])
def test_an_autocast_that_does_nothing_on_the_device_is_no_result(
    precision: str, mode: str, tried: dict[str, Any]
) -> None:
    found = tried["precisions_that_fail"][f"deaf {precision} {mode}"]
    told = f"{precision} did not take effect: of the matmuls of a forward pass, 4 in float32 ran"
    assert (found["status"], found["reason"], found["step"]) == ("wrong", told, None)


def test_a_precision_that_the_device_lacks_is_unsupported_in_the_frameworks_words(tried: dict[str, Any]) -> None:
    found = {name: (one["status"], one["reason"]) for name, one in tried["precisions_that_fail"].items()}
    assert found["lacks fp64"][0] == "unsupported"
    assert "the SIM framework doesn't support float64" in found["lacks fp64"][1]
    assert found["lacks bf16"] == ("unsupported", "bfloat16 is not supported on SIM")
    assert found["lacks amp-bf16"] == (
        "unsupported",
        "In sim autocast, but the target dtype is not supported. Disabling autocast. "
        "sim Autocast only supports dtypes of torch.float16 currently.",
    )
    assert found["lacks amp-fp16"] == found["lacks fp32"] == ("ok", "")


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_device_whose_products_are_wrong_is_found_out(mode: str, tried: dict[str, Any]) -> None:
    found = tried["precisions_that_fail"]
    assert found[f"wrong {mode}"]["status"] == "wrong"
    assert "results differ from fp32 on the CPU by 0." in found[f"wrong {mode}"]["reason"]
    assert "at most 0.001 is allowed in fp32" in found[f"wrong {mode}"]["reason"]


def test_memory_is_counted_reserved_in_segments_and_its_peaks_begin_anew(tried: dict[str, Any]) -> None:
    found = tried["peaks"]
    size = 3 << 20
    assert (found["taken"], found["peak"], found["left"], found["after_reset"]) == (size, size, 0, 0)
    assert size <= found["reserved"] < size + (2 << 20)
    assert (found["total"], found["not_free"]) == (ROOM, 0)


@pytest.mark.parametrize("where", ["forward", "backward", "optimiser"])
def test_memory_that_runs_out_is_an_error_wherever_it_does_and_the_process_lives_on(
    where: str, tried: dict[str, Any]
) -> None:
    kind, words = tried["overflows"][where]
    assert kind == "OutOfMemoryError"
    assert "out of memory" in words
    assert tried["overflows"]["lives"] is True


def test_the_peak_of_a_case_is_that_of_its_tensors(tried: dict[str, Any]) -> None:
    weights = 4 * (1024 * 512 + 2 * 512 * 512 + 512 * 2 + 3 * 512 + 2)
    inference, training = (tried["precisions"][f"fp32 {mode}"]["peak"] for mode in ("infer", "train"))
    halved = tried["precisions"]["fp16 infer"]["peak"]
    assert weights < inference < 1.2 * weights
    assert 2 * weights < training < 3.5 * weights
    assert halved == pytest.approx(inference / 2, rel=0.1)


def test_a_worker_tells_an_oom_in_training_as_one(tried: dict[str, Any]) -> None:
    assert tried["overflows"]["training"]["status"] == "oom"


def test_two_devices_have_time_lines_and_memory_of_their_own(tried: dict[str, Any]) -> None:
    found = tried["two_devices"]
    assert (found["gradient"], found["between"]) == ("sim:1", "sim:0")
    assert found["busy"] == pytest.approx(KERNEL + ISSUE, rel=1e-4)
    assert found["idle"] == pytest.approx(ISSUE)
    assert found["held"] > 0
    for one in ("mixed", "from_host"):
        assert "Expected all tensors to be on the same device" in found[one][1]


def test_a_case_on_the_second_device_is_there_and_timed_by_its_events(tried: dict[str, Any]) -> None:
    found = tried["two_devices"]["worker"]
    assert (found["status"], found["reason"], found["device_seen"]) == ("ok", "", "sim:1")
    assert found["events_share"] == pytest.approx(1.0, abs=0.02)


def test_a_device_that_is_not_here_is_unsupported_and_those_that_are_are_named(tried: dict[str, Any]) -> None:
    found = tried["two_devices"]
    assert (found["first"]["status"], found["first"]["device_seen"]) == ("ok", "sim:0")
    assert (found["tenth"]["status"], found["tenth"]["reason"]) == (
        "unsupported", "no device 'sim:9' here; torch sees cpu, sim, sim:1",
    )  # fmt: skip
    assert found["contract"] == ["Unsupported", "no device 'sim' here any more; torch sees cpu"]
    assert found["nowhere"] == ["RuntimeError", "SIM error: invalid device ordinal 0"]
    assert (found["absent"]["status"], found["absent"]["reason"]) == (
        "unsupported", "no device 'sim' here; torch sees cpu",
    )  # fmt: skip


def test_a_lost_device_fails_in_everything_and_nothing_is_done_elsewhere(tried: dict[str, Any]) -> None:
    found = tried["losses_of_the_device"]
    case = found["case"]
    assert (case["status"], case["reason"]) == ("failed", "RuntimeError: SIM error: the device was lost")
    errors = [error for name, error in found.items() if name != "case"]
    assert errors == [["RuntimeError", "SIM error: the device was lost"]] * 6


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("everything", "the case asks for sim, the tensors lie on cpu"),
        ("outputs", "the case asks for sim, the tensors lie on sim:0, the output on cpu"),
        ("state", "the case asks for sim, the tensors lie on sim:0, the optimiser's momentum_buffer on cpu"),
        ("gradients", "the case asks for sim, the tensors lie on sim:0, matmuls or gradients on cpu"),
    ],
)
def test_what_lies_elsewhere_than_asked_is_wrong(what: str, told: str, tried: dict[str, Any]) -> None:
    assert (tried["astray"][what]["status"], tried["astray"][what]["reason"]) == ("wrong", told)


def test_the_doctors_features_work_on_the_device(tried: dict[str, Any]) -> None:
    found = tried["probes"]["well"]
    assert {name: (one["result"], one["reason"]) for name, one in found.items()} == dict.fromkeys(found, ("works", ""))
    assert {"fp32", "fp16", "autocast-bf16", "attention", "convolution", "svd"} <= set(found)


def test_a_feature_that_is_wrong_or_done_elsewhere_or_lost_is_told_as_that(tried: dict[str, Any]) -> None:
    found = tried["probes"]
    assert (found["spoilt"]["result"], found["spoilt"]["fit"]) == ("wrong", True)
    assert found["spoilt"]["error"] == pytest.approx(0.05, rel=0.01)
    assert (found["astray"]["result"], found["astray"]["reason"]) == ("fallback", "the result lies on cpu")
    assert (found["lost"]["result"], found["lost"]["fit"]) == ("unsupported", False)
    assert "the device was lost" in found["lost"]["reason"]


def test_the_contract_sees_whether_the_wait_waits(tried: dict[str, Any]) -> None:
    heard, unheard = (measure("wait", TaskResult(tried["waiting"][name]), "sim") for name in ("heard", "unheard"))
    assert heard.ok
    assert heard.value == pytest.approx(1.0, abs=0.01)
    assert not unheard.ok
    assert unheard.value < 0.5
