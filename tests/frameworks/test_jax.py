"""JAX with several devices: a model and its device stay together, whatever the process's default device is.

And the platforms of its plug-ins.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.separate_process import facts_of

from mldyno.frameworks import Unsupported
from mldyno.frameworks.jax import Jax
from mldyno.records import Case

SCRIPT = Path(__file__).with_name("jax_on_devices.py")
NONE = {"cuda": None, "rocm": False, "mps": False}


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


@pytest.mark.parametrize(
    ("module", "platforms"),
    [("xla_cuda13", {**NONE, "cuda": "13"}), ("xla_cuda12", {**NONE, "cuda": "12"}),
     ("xla_rocm7", {**NONE, "rocm": True}), ("mps", {**NONE, "mps": True}), ("something", NONE)],
)  # fmt: skip
@pytest.mark.parametrize("way", ["package", "entry point"])
def test_it_says_which_gpus_its_plug_ins_are_for(
    module: str, platforms: dict[str, Any], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "package":
        (tmp_path / "jax_plugins" / module).mkdir(parents=True)
        (tmp_path / "jax_plugins" / module / "__init__.py").touch()
    else:
        (tmp_path / "some-1.0.dist-info").mkdir()
        (tmp_path / "some-1.0.dist-info" / "METADATA").write_text("Name: some\nVersion: 1.0\n")
        (tmp_path / "some-1.0.dist-info" / "entry_points.txt").write_text(f"[jax_plugins]\nit = jax_plugin.{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "jax_plugins", raising=False)
    assert Jax().support() == platforms


def test_without_plug_ins_it_is_for_the_cpu_only() -> None:
    assert Jax().support() == NONE


@pytest.mark.parametrize(
    ("chosen", "set_to"), [("cuda", "cuda,cpu"), ("cuda,cpu", None), ("cpu", None), ("", None), (None, None)]
)
def test_the_cpu_is_added_to_the_platforms_of_the_user(
    chosen: str | None, set_to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("JAX_PLATFORMS", chosen)
    assert Jax().environment(Case("mlp", framework="jax")).get("JAX_PLATFORMS") == set_to


def test_a_device_that_the_process_lacks_is_unsupported_with_the_setting_to_look_at() -> None:
    gpu = SimpleNamespace(platform="cuda", local_hardware_id=0)

    def devices(platform: str = "") -> list[Any]:
        if platform:
            raise RuntimeError(f"Unknown backend {platform}")
        return [gpu]

    its = Jax()
    its.jax = SimpleNamespace(devices=devices)
    assert its.device(Case("mlp", framework="jax", device="cuda:0")) is gpu
    with pytest.raises(Unsupported, match="jax has no cpu here; JAX_PLATFORMS may leave it out"):
        its.device(Case("mlp", framework="jax", device="cpu"))
