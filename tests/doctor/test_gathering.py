"""The facts of a machine for the doctor: never an error, whatever the system's tools do.

The outputs of NVIDIA's tools are written down from their documented form.
"""

from __future__ import annotations

import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil
import pytest

from mldyno import machine
from mldyno.analysis.symptoms import Facts, Gpu
from mldyno.doctor import facts
from mldyno.records import Machine

HEADING = """\
Thu Mar 14 12:00:00 2024
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.14              Driver Version: 550.54.14      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
KERNEL = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc 12"
)
OPEN_KERNEL = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder)"
LIST = """\
GPU 0: Tesla T4 (UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
"""


@pytest.fixture
def here() -> Machine:
    return machine.describe()


def put_tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi of our own, alone on the path."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_this_machine_has_its_facts(here: Machine) -> None:
    found = facts.gather(here)
    assert found.system == "Linux"
    assert found.cores == here.cores
    assert found.available is not None
    assert found.memory is not None
    assert 0 < found.available <= found.memory
    assert found.packages["torch"].startswith("2.")
    assert found.translated is False


def test_whatever_fails_is_unknown_and_no_error(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no")

    for place in ("platform.release", "os.getloadavg", "importlib.metadata.version", "subprocess.run"):
        monkeypatch.setattr(place, broken)
    monkeypatch.setattr(Path, "read_text", broken)
    monkeypatch.setattr(Path, "glob", broken)
    monkeypatch.setattr(psutil, "swap_memory", broken)
    monkeypatch.setattr(psutil, "sensors_battery", broken)
    monkeypatch.setattr(machine, "available_memory", broken)
    monkeypatch.setattr(facts, "_read", lambda path: "")
    found = facts.gather(here)
    assert (found.version, found.load, found.available, found.swap_used) == ("", None, None, None)
    assert (len(found.gpus), len(found.nodes)) == (0, 0)


def test_the_driver_and_its_cuda_are_read_from_the_tools_heading_and_from_the_kernels_file() -> None:
    assert facts.driver_of(HEADING) == ("550.54.14", "12.4")
    assert facts.driver_of(KERNEL) == ("470.256.02", "11.0")
    assert facts.driver_of(OPEN_KERNEL) == ("580.65.06", "13.0")
    assert facts.driver_of("") == facts.driver_of("nonsense \xff 12") == ("", "")


def test_gpus_are_listed_with_name_and_uuid() -> None:
    first, second = facts.listed(LIST)
    assert first == Gpu("nvidia", "Tesla T4", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")
    assert second.name == "NVIDIA A100-SXM4-40GB"
    assert facts.listed("No devices were found") == ()


def test_a_tool_that_works_is_believed(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heading").write_text(HEADING)
    (tmp_path / "list").write_text(LIST)
    put_tool(tmp_path, f'if [ "$1" = -L ]; then cat {tmp_path}/list; else cat {tmp_path}/heading; fi', monkeypatch)
    found = facts.gather(here)
    assert (found.driver, found.driver_cuda, found.driver_error) == ("550.54.14", "12.4", "")
    assert [gpu.name for gpu in found.gpus] == ["Tesla T4", "NVIDIA A100-SXM4-40GB"]


def test_a_tool_that_fails_is_quoted(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool(tmp_path, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", monkeypatch)
    assert "version mismatch" in facts.gather(here).driver_error


@pytest.mark.parametrize("script", ["head -c 4096 /dev/urandom", ":"])
def test_a_tool_that_prints_nonsense_or_nothing_says_nothing(
    script: str, here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tmp_path, script, monkeypatch)
    found = facts.gather(here)
    assert (found.driver_cuda, found.driver_error) == ("", "")


def test_a_tool_that_hangs_is_not_waited_for(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(command: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    put_tool(tmp_path, ":", monkeypatch)
    monkeypatch.setattr(subprocess, "run", hanging)
    found = facts.gather(here)
    assert found.driver_error == "nvidia-smi gives no answer"
    assert found.gpus == ()


def test_cards_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    bus = [("0000:00:02.0", "0x030000", "0x8086", "0x3e92"), ("0000:01:00.0", "0x030200", "0x10de", "0x1eb8"),
           ("0000:02:00.0", "0x120000", "0x1002", "0x74a1"), ("0000:03:00.0", "0x030000", "0x8086", "0x56a0"),
           ("0000:04:00.0", "0x020000", "0x10de", "0x1234")]  # fmt: skip
    for place, *values in bus:
        (tmp_path / place).mkdir()
        for name, value in zip(("class", "vendor", "device"), values, strict=True):
            (tmp_path / place / name).write_text(value + "\n")
    assert [gpu.vendor for gpu in facts._cards(tmp_path)] == ["nvidia", "amd", "intel"]
    assert facts._cards(tmp_path / "no-such-folder") == ()


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000", 1.5), ("max 100000", None), ("-1 100000", None), ("", None), ("100000 0", None), ("x y", None)],
)
def test_a_quota_is_read_in_cores(text: str, cores: float | None) -> None:
    assert facts.cores_of(text) == cores


def test_waiting_for_memory_is_read_as_a_share() -> None:
    text = "some avg10=1.10 avg60=12.50 avg300=0.90 total=102\nfull avg10=0.00 avg60=9.99 avg300=0.00 total=0"
    assert facts.waits(text) == pytest.approx(0.125)
    assert facts.waits("") is None


def test_packages_are_found_without_importing_them() -> None:
    assert facts.installed(["pytest", "no-such-package"]) == {"pytest": pytest.__version__}


def test_all_facts_have_a_value_for_what_is_not_known() -> None:
    assert all(getattr(Facts(), field.name) in (None, "", "unknown", False, (), {}) for field in fields(Facts))
