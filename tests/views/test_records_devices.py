"""Devices in plain words."""

from __future__ import annotations

from mldyno.records import Device, Fact
from mldyno.views.records import device_line


def test_a_device_is_told_by_name_memory_and_facts_but_not_by_its_labels() -> None:
    facts: dict[str, Fact] = {
        "compute_capability": "7.5", "multiprocessors": 40, "driver": "535.104.05", "power_limit": 70.0,
        "clock": 1.59e9, "memory_clock": 5.001e9, "uuid": "GPU-3f1c", "pci_bus": "0000:00:04.0",
    }  # fmt: skip
    assert device_line(Device("cuda:0", "torch", "NVIDIA T4", 15 << 30, facts)) == (
        "NVIDIA T4, 15.0 GiB, compute capability 7.5, 40 multiprocessors, driver 535.104.05, at most 70.0 W, "
        "up to 1.59 GHz, memory at up to 5.00 GHz"
    )


def test_a_number_of_cores_is_counted_and_a_slow_clock_is_in_megahertz() -> None:
    device = Device("cpu", "torch", "a CPU", facts={"cores": 1, "performance_cores": 12, "clock": 4.05e8, "odd": None})
    assert device_line(device) == "a CPU, 1 core, 12 performance cores, up to 405 MHz"


def test_of_an_unknown_device_that_is_all() -> None:
    assert device_line(Device("mps", "torch")) == "unknown"
