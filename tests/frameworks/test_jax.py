"""JAX with several devices: a model and its device stay together, whatever the process's default device is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.separate_process import facts_of

SCRIPT = Path(__file__).with_name("jax_on_devices.py")


@pytest.fixture
def facts() -> dict[str, Any]:
    """What a separate process says of JAX on four devices, of which the default one belongs to nobody."""
    return facts_of(SCRIPT, "jax")


def test_two_models_on_two_devices_take_turns_and_each_stays_on_its_own(facts: dict[str, Any]) -> None:
    assert facts["in_turns"]["places"] == {device: [device, device] for device in ("cuda:0", "cuda:1")}
    assert facts["in_turns"]["agrees"]


def test_a_wait_ends_when_the_device_of_its_case_is_done(facts: dict[str, Any]) -> None:
    assert facts["in_turns"]["done"]


def test_memory_is_taken_on_the_device_of_the_case_and_none_on_the_default_device(facts: dict[str, Any]) -> None:
    assert facts["in_turns"]["memory"] == ["cuda:0"]
    assert facts["in_turns"]["arrays_on_default"] == 0


def test_a_model_of_the_user_is_made_and_draws_on_the_device_of_its_case(facts: dict[str, Any]) -> None:
    assert facts["own"] == ["cuda:1", ["cuda:1"]]


def test_all_products_have_the_precision_of_the_case_whatever_the_default_is(facts: dict[str, Any]) -> None:
    for precision, name in (("fp32", "HIGHEST"), ("tf32", "HIGH")):
        products = [f"cuda:0 conv_general_dilated {name}", f"cuda:0 dot_general {name}"]
        assert facts["precisions"][precision] == [precision, "", products]


def test_a_model_with_a_lower_precision_than_the_case_is_seen(facts: dict[str, Any]) -> None:
    assert facts["precisions"]["own"] == "tf32"


def test_tf32_is_for_devices_that_have_it(facts: dict[str, Any]) -> None:
    assert facts["precisions"]["here"] == "fp32"
    assert "changes no bit of a product on this GPU" in facts["precisions"]["without"]
    assert facts["precisions"]["refused"] == "tf32 is a mode of CUDA's matmuls; cpu has none"
