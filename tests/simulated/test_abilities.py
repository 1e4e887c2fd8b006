"""The simulated device does what is said of it, and the worker sees through what it only pretends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.simulated.conftest import HERE, ISSUE

from mldyno.selftest import on_device
from mldyno.selftest.contract import Heard

KERNEL = 1e-3
ROOM, RATE = 64 << 20, 2e10
PER_ITEM = 2 * (1024 * 512 + 2 * 512 * 512 + 512 * 2)  # operations of a forward step of mlp
HALVES = ["bfloat16", "bfloat16", "float16", "float16"]
FULL = ["float32"] * 4


@pytest.fixture(scope="module")
def tried() -> dict[str, Any]:
    """What came of every trial, in one process."""
    paths = os.pathsep.join([str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    settings = {"virtual": True, "kernel": KERNEL, "rate": RATE, "issue": ISSUE, "capacity": ROOM}
    told = json.dumps({**settings, "cpu": {"kernel": KERNEL}})
    environment = {**os.environ, "PYTHONPATH": paths, "MLDYNO_SIM": told}
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
    known = (7 + copies) * KERNEL + 2 * PER_ITEM / RATE + size / 1e6 + 2 * ISSUE
    assert (found["status"], found["reason"]) == ("ok", "")
    assert found["step"] == pytest.approx(known, rel=0.005)


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
    told = (found["unnumbered"]["status"], found["unnumbered"]["reason"])
    assert told == ("unsupported", "no device 'sim' here; torch sees cpu, sim:0, sim:1")
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
        ("gradients", "the case asks for sim, the tensors lie on sim:0, products or gradients on cpu"),
    ],
)
def test_what_lies_elsewhere_than_asked_is_wrong(what: str, told: str, tried: dict[str, Any]) -> None:
    assert (tried["astray"][what]["status"], tried["astray"][what]["reason"]) == ("wrong", told)


def test_the_contract_sees_whether_the_wait_waits(tried: dict[str, Any]) -> None:
    (heard,), (unheard,) = (on_device.wait(Heard(tried["waiting"][name])) for name in ("heard", "unheard"))
    assert heard.ok
    assert heard.value == pytest.approx(1.0, abs=0.01)
    assert not unheard.ok
    assert unheard.value < 0.5
