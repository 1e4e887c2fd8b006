"""Devices in plain words."""

from __future__ import annotations

import pytest

from mldyno.records import SCHEMA, Case, Device, Fact, Machine, Record, Run, Series
from mldyno.views.records import device_line, record_text


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


@pytest.mark.parametrize(("by", "words"), [
    ("driver", "3.00 GiB of 12.0 GiB, 25 %, all that its driver has allocated"),
    ("allocator", "3.00 GiB of 12.0 GiB, 25 %"),
])  # fmt: skip
def test_a_peak_that_the_driver_counts_is_named_as_such(by: str, words: str) -> None:
    machine = Machine("m", devices=(Device("mps", "torch", memory=12 << 30),))
    peak = Series("peak_device_memory", "B", (float(3 << 30),), stage="process")
    case = Case("mlp", device="mps")
    record = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r"), case, "ok", "", machine,
                    series=(peak,), facts={"device_peak_by": by})  # fmt: skip
    (line,) = [line for line in record_text(record).splitlines() if line.startswith("peak device memory")]
    assert line.removeprefix("peak device memory").strip() == words


def test_what_is_special_about_ones_own_model_is_shown() -> None:
    facts: dict[str, Fact] = {"inference_without": "targets", "same_batch": "a sparse tensor", "draws_random": False}
    record = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r"), Case("my_model.py"), "ok", "",
                    Machine("m"), facts=facts)  # fmt: skip
    (line,) = (line for line in record_text(record).splitlines() if line.startswith("model"))
    assert line.removeprefix("model").strip() == (
        "inference is measured without targets, which only the loss needs; "
        "every step has the same batch, since a sparse tensor can't be rolled"
    )
