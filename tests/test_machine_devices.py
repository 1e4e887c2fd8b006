"""What a framework has found gets its vendor's name and facts; whatever the vendor's tools do, nothing breaks."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import Tool
from tests.hardware.trees import RECORDED, grown

from mldyno import machine, system_queries
from mldyno.hardware import linux
from mldyno.machine import Vendors
from mldyno.records import Device, Fact

FOUND: dict[str, Fact] = {
    "uuid": "3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f",
    "compute_capability": "7.5",
    "multiprocessors": 40,
}
CUDA = Device("cuda:0", "torch", "Tesla T4", 15_634_661_376, FOUND)
MPS = Device("mps", "torch", memory=96 << 30)


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tools are asked here."""
    monkeypatch.setattr(system_queries, "TOOL_TIMEOUT_S", 0.5)


def test_the_cpu_is_this_machines() -> None:
    (cpu,) = Vendors().describe([Device("cpu", "torch")])
    here = machine.describe()
    assert (cpu.title, cpu.memory) == (here.cpu, here.memory)
    assert int(cpu.facts["threads"] or 0) >= int(cpu.facts["cores"] or 0) >= 1


def test_a_fake_runs_devices_and_those_of_unknown_kinds_stay_as_they_are() -> None:
    devices = (Device("cpu", "fake", "fake CPU"), Device("gpu", "fake", "fake accelerator", 8 << 30),
               Device("sim", "torch", "simulated accelerator", 1 << 30))  # fmt: skip
    assert Vendors().describe(devices) == devices


def test_a_card_of_nvidias_is_found_by_its_uuid(tool: Tool) -> None:
    tool("nvidia-smi", f"cat {RECORDED}/nvidia-smi.csv")
    (device,) = Vendors().describe([CUDA])
    assert (device.name, device.title, device.memory) == ("cuda:0", "NVIDIA T4", 15_634_661_376)
    assert device.facts == {
        "compute_capability": "7.5", "multiprocessors": 40, "driver": "535.104.05", "power_limit": 70.0,
        "clock": 1.59e9, "memory_clock": 5.001e9, "uuid": f"GPU-{FOUND['uuid']}", "pci_bus": "00000000:00:04.0",
    }  # fmt: skip


def test_a_mac_tells_of_its_chip(tool: Tool, on_a_mac: None) -> None:
    tool("sysctl", f"cat {RECORDED}/sysctl-m3-max.txt")
    tool("ioreg", f"cat {RECORDED}/ioreg-m3-max.txt")
    cpu, gpu = Vendors().describe([Device("cpu", "torch"), MPS])
    assert (cpu.title, cpu.facts["performance_cores"]) == ("Apple M3 Max 16-core CPU", 12)
    facts: dict[str, Fact] = {"driver": "macOS 14.4.1", "cores": 40}
    assert gpu == Device("mps", "torch", "Apple M3 Max 40-core GPU", 96 << 30, facts)


def test_intels_gpus_are_known_by_their_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = grown("tree-intel-gpus.txt", tmp_path)
    monkeypatch.setattr(linux, "intel_gpus", partial(linux.intel_gpus, root))
    two = [Device(name, "torch", "Intel(R) Arc(TM) A770 Graphics", 1 << 34, {"pci_product": "0x56a0"})
           for name in ("xpu", "xpu:1")]  # fmt: skip
    alike = {"pci_product": "0x56a0", "kernel_driver": "i915", "clock": 2.4e9}  # their power limits differ
    assert [device.facts for device in Vendors().describe(two)] == [alike, alike]
    other = Device("xpu", "torch", "Intel(R) Arc(TM) B580 Graphics", facts={"pci_product": "0xe20b"})
    (device,) = Vendors().describe([other])
    assert (device.facts["power_limit"], device.facts["pci_bus"]) == (190.0, "0000:08:00.0")
    (unnamed,) = Vendors().describe([Device("xpu", "torch")])
    assert unnamed.facts == {}


def test_a_tool_is_asked_once_and_only_where_such_a_device_is_there(tool: Tool, tmp_path: Path) -> None:
    tool("nvidia-smi", f"echo asked >> {tmp_path}/asked; cat {RECORDED}/nvidia-smi.csv")
    vendors = Vendors()
    vendors.describe([Device("cpu", "torch")])
    assert not (tmp_path / "asked").exists()
    for _ in range(3):
        vendors.describe([CUDA, CUDA])
    assert (tmp_path / "asked").read_text() == "asked\n"


NONSENSE = {
    "hangs": "exec sleep 3600",
    "fails": f"cat {RECORDED}/nvidia-smi.csv {RECORDED}/ioreg-m3-max.txt; exit 1",
    "prints nonsense": "echo 'NVIDIA-SMI has failed'; echo 1, 2, 3; echo '{}'",
    "prints what is not text": r"printf '\377\376\0\1, \377\n%s\n' 'machdep.cpu.brand_string: \377'",
    "prints without end": "exec yes ', , , , , , , '",
    "prints nothing": "exit 0",
}


@pytest.mark.parametrize("script", NONSENSE.values(), ids=NONSENSE)
def test_a_tool_that_is_no_use_leaves_a_device_as_it_was(
    script: str, tool: Tool, on_a_mac: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.hardware.apple.PROFILER_TIMEOUT_S", 0.5)
    for name in ("nvidia-smi", "sysctl", "ioreg", "system_profiler"):
        tool(name, script)
    vendors = Vendors()
    assert vendors.describe([CUDA, MPS]) == (CUDA, MPS)
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: started.append(words))
    assert vendors.describe([CUDA, MPS, CUDA]) == (CUDA, MPS, CUDA)
    assert started == []  # a tool that hangs costs its time once


def test_a_fault_of_our_own_leaves_a_device_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.hardware.nvidia.cards", lambda: 1 / 0)
    assert Vendors().describe([CUDA]) == (CUDA,)
