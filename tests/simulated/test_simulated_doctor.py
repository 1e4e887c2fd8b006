"""The doctor's probes on the simulated accelerator, in a process of their own: what it really lacks is found."""

from __future__ import annotations

from tests.simulated.conftest import Simulated

from mldyno.doctor.checkup import examine, feature_names


def test_types_that_a_device_lacks_and_autocast_that_does_nothing_are_seen(simulated: Simulated) -> None:
    simulated({"kernel": 1e-5, "virtual": True, "autocast": "deaf", "refuses": ["float64", "bfloat16"]})
    tried = examine(lambda: None, "torch", "sim", feature_names("torch", quick=True))
    found = {one.feature: one for one in tried}
    lacking = {name: one.reason for name, one in found.items() if one.outcome != "works"}
    assert {found[name].outcome for name in lacking} == {"unsupported"}
    assert set(lacking) == {"fp64", "bf16", "autocast-fp16", "autocast-bf16"}
    assert "doesn't support float64" in lacking["fp64"]
    assert lacking["bf16"] == "bfloat16 is not supported on SIM"
    assert lacking["autocast-fp16"] == "under autocast the matmul was computed in torch.float32"
    assert "Disabling autocast" in lacking["autocast-bf16"]
