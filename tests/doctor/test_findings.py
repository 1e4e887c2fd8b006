"""The closed list of findings: each can be found, and a healthy machine has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mldyno.doctor.findings import CODES, best_setting, of
from mldyno.doctor.symptoms import Checkup, Facts, Gpu, Installed, Noise, SensorState, Setting, StoreState, Trial, Tried
from mldyno.records import Device
from mldyno.units import Interval

CPU, CUDA = Device("cpu", "torch"), Device("cuda:0", "torch")
TORCH = Installed("torch", "", {"torch": "2.13.0"}, 4, (CPU, CUDA), {"cuda": "12.6", "mps": False})
UNUSED = replace(TORCH, devices=(CPU,))
HEALTHY = Facts(
    system="Linux", version="6.8", arch="x86_64", virtualised=False, gpus=(Gpu("nvidia", "Tesla T4"),),
    nodes=("nvidia0",), driver="550.54", driver_cuda="12.4", packages={"torch": "2.13.0"}, cores=4, load=0.1,
    memory=16 << 30, available=12 << 30, memory_waits=0.0, swap_used=0, power="mains", low_power=False,
    governor="schedutil", scaling="acpi-cpufreq", throttles=0.0,
)  # fmt: skip
QUIET = Noise(60.0, "quiet", 0.01, waiting=0.0, detectable_paired=0.001, detectable_separate=0.01)
FAST = Setting("OMP_WAIT_POLICY=PASSIVE", 0.001, Interval(2.0, 1.6, 2.5))


def seen(**changes: Any) -> Checkup:
    """A healthy machine but for what is named: a field of the check-up, or one of its facts."""
    whole = Checkup(
        facts=HEALTHY, frameworks=(TORCH,), tried=(tried("fp32"),), free=3.9, noise=QUIET, store=StoreState("here")
    )
    own = {name: value for name, value in changes.items() if name in Checkup.__dataclass_fields__}
    facts = {name: value for name, value in changes.items() if name not in own}
    return replace(whole, facts=replace(HEALTHY, **facts), **own)


def tried(feature: str, outcome: Any = "works", reason: str = "", device: str = "cuda:0") -> Tried:
    return Tried("torch", device, feature, outcome, reason, 0.5 if outcome == "wrong" else 0.0, 1e-4)


def threads(*settings: Setting) -> Trial:
    return Trial("torch", "mlp", 4, 0.002, settings)


MAC = {"system": "Darwin", "arch": "arm64", "gpus": (Gpu("apple", "GPU of Apple M2"),)}
EXAMPLES: dict[str, dict[str, Any]] = {
    "no-framework": {"frameworks": (Installed("torch", error="torch is not installed"),), "packages": {}},
    "framework-fails": {"frameworks": (Installed("torch", error="OSError: libcudart.so.12"),)},
    "rosetta": {"translated": True},
    "cpu-only-build": {"frameworks": (replace(UNUSED, support={"cuda": None}),)},
    "other-build": {"frameworks": (replace(UNUSED, support={"rocm": "6.4"}),)},
    "container-without-gpu": {"container": "docker", "nodes": ()},
    "no-driver": {"driver": "", "driver_cuda": ""},
    "driver-fails": {"driver_error": "NVIDIA-SMI has failed"},
    "driver-too-old": {"frameworks": (replace(UNUSED, support={"cuda": "13.0"}),)},
    "no-permission": {"barred": ("nvidia0",), "frameworks": (UNUSED,)},
    "visible-devices": {"env": {"CUDA_VISIBLE_DEVICES": ""}},
    "old-macos": {**MAC, "version": "13.5", "frameworks": (replace(UNUSED, support={"mps": True}),)},
    "mps-unavailable": {**MAC, "version": "15.0", "frameworks": (replace(UNUSED, support={"mps": True}),)},
    "tensorflow-metal-breaks": {"system": "Darwin", "packages": {"tensorflow": "2.21.0", "tensorflow-metal": "1.2.0"}},
    "no-tensorflow-metal": {"system": "Darwin", "packages": {"tensorflow": "2.19.1"}, "python": "3.12.4"},
    "tensorflow-without-gpu": {"system": "Darwin", "packages": {"tensorflow": "2.21.0"}},
    "gpu-not-found": {"frameworks": (UNUSED,)},
    "device-broken": {"tried": (tried("fp32", "unsupported", "no kernel image is available"),)},
    "wrong-numbers": {"tried": (tried("fp32"), tried("fp16", "wrong"))},
    "crashes": {"tried": (tried("fp32"), tried("svd", "crashed"), tried("qr", "timeout"))},
    "cpu-fallback": {"tried": (tried("fp32"), tried("svd", "fallback", "aten::linalg_svd"))},
    "fallback-on": {"system": "Darwin", "env": {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}},
    "no-compiler": {"tried": (tried("fp32"), tried("compile", "unsupported", "no C++ compiler"))},
    "cores-busy": {"free": 2.0},
    "sensors-closed": {"sensors": (SensorState("powercap", "psys", "system", reason="root's", cure="chmod"),)},
    "sensor-fails": {"sensors": (SensorState("powercap", "psys", "system", error="psys stands still"),)},
    "slow-blas": {"frameworks": (replace(TORCH, versions={"blas": "the reference BLAS"}),)},
    "cpu-quota": {"quota": 1.5, "free": 1.5},
    "threads-hurt": {"threads": threads(FAST)},
    "allocator-slow": {"allocators": threads(FAST)},
    "niced": {"niceness": 15},
    "few-cores": {"cores_present": 64},
    "on-battery": {"power": "battery"},
    "low-power": {"low_power": True},
    "memory-short": {"available": 1 << 30},
    "swapped": {"swap_used": 4 << 30},
    "throttled": {"throttles": 3.0},
    "slow-governor": {"governor": "powersave"},
    "noisy": {"noise": replace(QUIET, verdict="very noisy", variation=0.3)},
    "store-unreadable": {"store": StoreState("here", "store here: file is not a database")},
}


def test_a_healthy_machine_has_no_findings() -> None:
    assert of(seen()) == []


def test_nothing_known_is_nothing_found() -> None:
    assert of(Checkup()) == []


@pytest.mark.parametrize("code", CODES)
def test_every_finding_can_be_found_and_comes_alone(code: str) -> None:
    found = of(seen(**EXAMPLES[code]))
    assert [one.code for one in found] == [code]
    assert found[0].message
    assert found[0].cure


def test_a_noisy_machine_is_blamed_on_what_it_was_judged_by() -> None:
    (finding,) = of(seen(noise=replace(QUIET, verdict="very noisy", variation=0.022, waiting=0.3)))
    assert finding.message.startswith("the machine is very noisy: the work waited for its core 30 % of the time")
    assert "2.2 %" not in finding.message


def test_speeds_far_apart_are_not_given_in_percent() -> None:
    (finding,) = of(seen(noise=replace(QUIET, verdict="very noisy", two_speeds=32.0)))
    assert finding.message.startswith("the machine is very noisy: the same work had two speeds, 33x apart;")
    (finding,) = of(seen(noise=replace(QUIET, verdict="very noisy", two_speeds=0.5)))
    assert "two speeds, 50 % apart" in finding.message


def test_what_timed_out_on_a_busy_machine_is_to_be_tried_again_first() -> None:
    hangs = {"tried": (tried("fp32"), tried("compile", "timeout"))}
    (finding,) = of(seen(**hangs))
    assert finding.message == "torch on cuda:0 crashes or hangs in: compile (timed out)"
    assert finding.cure.startswith("omit these, ")
    finding, busy = of(seen(**hangs, free=0.2))
    assert (finding.code, busy.code) == ("crashes", "cores-busy")
    assert finding.cure.startswith("few cores were free: end other programs and look again; only then omit these, ")
    crashed, _ = of(seen(tried=(tried("fp32"), tried("svd", "crashed")), free=0.2))
    assert crashed.cure.startswith("omit these, ")


def test_there_is_no_example_of_what_is_not_in_the_list() -> None:
    assert set(EXAMPLES) == set(CODES)


def test_a_wrong_number_is_told_with_its_error() -> None:
    (found,) = of(seen(tried=(tried("fp32"), tried("fp16", "wrong"), tried("svd", "wrong"))))
    assert "fp16 (off by 0.5, 0.0001 allowed), svd" in found.message


def test_what_a_device_lacks_is_a_fact_and_no_finding() -> None:
    assert of(seen(tried=(tried("fp32"), tried("fp64", "unsupported", "no fp64")))) == []


def test_a_device_that_is_broken_is_told_once() -> None:
    (found,) = of(seen(tried=(tried("fp32", "crashed", "the worker was ended by SIGSEGV"),)))
    assert found.code == "device-broken"
    assert "SIGSEGV" in found.message


@pytest.mark.parametrize(("low", "clear"), [(0.9, False), (1.04, False), (1.06, True)])
def test_a_setting_of_threads_is_named_only_where_it_clearly_helps(low: float, clear: bool) -> None:
    found = of(seen(threads=threads(replace(FAST, gain=Interval(1.5, low, 2.5)))))
    assert [one.code for one in found] == (["threads-hurt"] if clear else [])


def test_of_several_settings_the_best_is_named_with_its_ratio_and_interval() -> None:
    better = Setting("OMP_NUM_THREADS=2", 0.0007, Interval(3.0, 2.5, 3.6), "--threads 2")
    checkup = seen(threads=threads(FAST, better))
    assert best_setting(checkup.threads) is better
    (found,) = of(checkup)
    assert "3.0x (2.5-3.6) as fast" in found.message
    assert found.cure == "export OMP_NUM_THREADS=2 (mldyno: --threads 2)"


def test_the_milder_setting_is_named_where_another_is_not_clearly_better() -> None:
    other = Setting("OMP_NUM_THREADS=1", 0.0009, Interval(2.2, 1.5, 3.2))
    assert best_setting(threads(FAST, other)) is FAST


def test_an_allocator_that_clearly_helps_is_named_with_its_option() -> None:
    keeps = Setting("MALLOC_MMAP_MAX_=0", 0.06, Interval(1.2, 1.1, 1.3), "--allocator steady")
    (found,) = of(seen(allocators=Trial("torch", "bert-tiny", 2, 0.07, (keeps,))))
    assert found.code == "allocator-slow"
    assert "a training step of bert-tiny was 1.20x (1.10-1.30) as fast" in found.message
    assert found.cure == "export MALLOC_MMAP_MAX_=0 (mldyno: --allocator steady)"
    assert (
        of(seen(allocators=Trial("torch", "bert-tiny", 2, 0.07, (replace(keeps, gain=Interval(1.2, 0.98, 1.3)),))))
        == []
    )


def test_cores_are_busy_only_beyond_what_a_quota_takes() -> None:
    assert [one.code for one in of(seen(quota=2.0, free=1.9))] == ["cpu-quota"]
    assert [one.code for one in of(seen(quota=2.0, free=1.0))] == ["cores-busy", "cpu-quota"]


@pytest.mark.parametrize(
    ("facts", "codes"),
    [({"governor": "powersave", "scaling": "intel_pstate"}, []),  # there it is the usual one, and not slow
     ({"governor": "powersave", "scaling": "intel_pstate", "preference": "power"}, ["slow-governor"]),
     ({"memory_waits": 0.2}, ["memory-short"]), ({"memory_state": "critical"}, ["memory-short"]),
     ({"memory_state": "normal"}, []), ({"speed_limit": 0.6}, ["throttled"]), ({"speed_limit": 1.0}, []),
     ({"swap_used": 1 << 20}, []), ({"env": {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}, "system": "Darwin"}, [])],
    ids=str,
)  # fmt: skip
def test_the_state_of_the_machine(facts: dict[str, Any], codes: list[str]) -> None:
    assert [one.code for one in of(seen(**facts))] == codes
