"""NVIDIA's cards are read from what the driver says, and a device is found among them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.machine.conftest import Tool
from tests.machine.trees import RECORDED, recorded

from mldyno import system_queries
from mldyno.machine import _nvidia, _nvml
from mldyno.machine._facts import Description, Facts
from mldyno.machine._nvidia import Driver

T4 = Description(
    "NVIDIA T4",
    15 << 30,
    {"driver": "535.104.05", "power_limit": 70.0, "clock": 1.59e9, "memory_clock": 5.001e9,
     "uuid": "GPU-3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f", "pci_bus": "00000000:00:04.0"},
)  # fmt: skip


class NotSupported(Exception):
    """As pynvml raises it."""


class FakeNvml:
    """The part of pynvml that is used: a T4, a card that is lost, and one that tells only what it is."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    driver: Any = "535.104.05"
    running = False

    def nvmlInit(self) -> None:
        self.running = True

    def nvmlShutdown(self) -> None:
        self.running = False

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index if index != 1 else self._refuse()

    def _refuse(self) -> int:
        raise NotSupported("Not Supported")

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return b"Tesla T4" if handle == 0 else "NVIDIA GeForce GT 1030"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return "GPU-3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f" if handle == 0 else "GPU-0d0d0d0d-1111-2222-3333-444444444444"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=b"00000000:00:04.0" if handle == 0 else self._refuse())

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 70_000 if handle == 0 else self._refuse()

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return {1: 1590, 2: 5001}[kind] if handle == 0 else self._refuse()

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=15 << 30 if handle == 0 else self._refuse())


def test_library_and_tool_say_the_same() -> None:
    nvml = FakeNvml()
    by_library = _nvidia.from_nvml(json.dumps(_nvml.cards(nvml)))
    by_tool = _nvidia.from_smi(recorded("nvidia-smi.csv"))
    assert by_library[0] == by_tool[0] == T4
    assert not nvml.running


def test_what_a_card_does_not_tell_is_left_out_and_a_lost_card_too() -> None:
    few: Facts = {"driver": "535.104.05", "uuid": "GPU-0d0d0d0d-1111-2222-3333-444444444444"}
    assert _nvidia.from_nvml(json.dumps(_nvml.cards(FakeNvml())))[1:] == [
        Description("NVIDIA GeForce GT 1030", None, few)
    ]
    card = _nvidia.from_smi(recorded("nvidia-smi.csv"))[3]
    assert card == Description("NVIDIA GeForce GT 1030", 2 << 30, few | {"pci_bus": "00000000:65:00.0"})


@pytest.mark.parametrize(
    ("said", "title"),
    [("Tesla T4", "NVIDIA T4"), ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
     ("Tesla V100-SXM2-16GB", "NVIDIA V100-SXM2-16GB"), ("GeForce GTX 1080", "NVIDIA GeForce GTX 1080")],
)  # fmt: skip
def test_a_card_is_called_what_nvidia_calls_it_today(said: str, title: str) -> None:
    assert _nvidia.called(said) == title


def test_a_device_is_found_by_its_uuid_whatever_its_number() -> None:
    cards = _nvidia.from_smi(recorded("nvidia-smi.csv"))
    card = _nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB", {"uuid": "a1b2c3d4-0002-4e5f-8a9b-001122334455"})
    assert card.facts["pci_bus"] == "00000000:0F:00.0"
    assert card.facts["power_limit"] == 300.0


def test_without_a_uuid_only_what_cards_of_that_name_share_is_known() -> None:
    cards = _nvidia.from_smi(recorded("nvidia-smi.csv"))
    shared: Facts = {"driver": "535.104.05", "clock": 1.41e9, "memory_clock": 1.215e9}
    assert _nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB", {}) == Description("NVIDIA A100-SXM4-40GB", facts=shared)
    assert _nvidia.found_among(cards, "Tesla T4", {}).facts == T4.facts


def test_of_a_part_of_a_card_only_the_driver_is_known() -> None:
    cards = _nvidia.from_smi(recorded("nvidia-smi.csv"))
    part = _nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", {"uuid": "5e5e5e5e-0000-0000-0000-0000"})
    assert part == Description(facts={"driver": "535.104.05"})
    assert _nvidia.found_among([], "Tesla T4", {"uuid": "x"}) == Description()


@pytest.mark.parametrize(
    "nonsense",
    ["", "null", "3", "[3]", '[{"uuid": 3}]', "[" * 100_000, "\ufffd\x00, , , , , , , ", ", ".join("abcdefgh"),
     "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "No devices were found",
     recorded("nvidia-smi.csv").replace(", ", ","), recorded("nvidia-smi.csv").replace("GPU-", "")],
)  # fmt: skip
def test_nonsense_names_no_card(nonsense: str) -> None:
    assert _nvidia.from_smi(nonsense) == _nvidia.from_nvml(nonsense) == []


def test_numbers_that_make_no_sense_are_left_out() -> None:
    raw = {"uuid": T4.facts["uuid"], "name": 3, "memory": -1, "power_limit": float("inf"), "clock": True,
           "memory_clock": 10**400, "driver": "\x1b[31m"}  # fmt: skip
    assert _nvidia.from_nvml(json.dumps([raw])) == [Description(facts={"uuid": T4.facts["uuid"]})]


def test_without_the_package_the_tool_is_asked(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvidia, "PACKAGE", "no_such_package")
    tool("nvidia-smi", f'case "$1" in *clocks.max.sm*) cat {RECORDED}/nvidia-smi.csv;; *) exit 2;; esac')
    assert _nvidia.cards()[0] == T4


def library(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package pynvml that this Python finds, and the processes that it starts."""
    (folder / "pynvml.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)


LIBRARY = """
from tests.machine.test_nvidia import FakeNvml

fake = FakeNvml()
globals().update({name: getattr(fake, name) for name in dir(fake) if name.lower().startswith("nvml")})
"""
STUB = """
def __getattr__(name):
    raise AttributeError(name)
def nvmlInit():
    {}
"""


def test_the_library_is_asked_in_a_process_of_its_own(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path, LIBRARY, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{RECORDED.parents[2]}:{RECORDED.parents[2]}/src")
    tool("nvidia-smi", "exit 1")
    assert _nvidia.cards()[0] == T4
    assert "pynvml" not in sys.modules


@pytest.mark.parametrize(
    "fault",
    ["import time; time.sleep(3600)", "import os; os.abort()", "raise RuntimeError('driver not loaded')", "print('{')"],
    ids=["hangs", "crashes", "is not there", "prints"],
)
def test_a_library_that_fails_takes_nothing_with_it_and_the_tool_is_asked(
    fault: str, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path, STUB.format(fault), monkeypatch)
    tool("nvidia-smi", f"cat {RECORDED}/nvidia-smi.csv")
    monkeypatch.setattr(system_queries, "TOOL_TIMEOUT_S", 1.0)
    assert _nvidia.cards()[0] == T4


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [("nvidia-smi-550.txt", "550.54.14", "12.4"), ("nvidia-smi-610.txt", "610.57.04", "13.3"),
     ("nvidia-version-470.txt", "470.256.02", ""), ("nvidia-version-open-580.txt", "580.65.06", "")],
)  # fmt: skip
def test_the_driver_and_its_cuda_are_in_the_tools_heading_and_the_kernels_file(
    name: str, version: str, cuda: str
) -> None:
    assert _nvidia.from_heading(recorded(name)) == Driver(version, cuda)


def test_a_driver_that_answers_is_believed(tool: Tool) -> None:
    tool("nvidia-smi", f"cat {RECORDED}/nvidia-smi-550.txt")
    assert _nvidia.driver() == Driver("550.54.14", "12.4")


def test_without_the_tool_the_kernel_is_asked(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_nvidia, "KERNELS_OWN", f"{RECORDED}/nvidia-version-470.txt")
    assert _nvidia.driver() == Driver("470.256.02")
    monkeypatch.setattr(_nvidia, "KERNELS_OWN", f"{RECORDED}/no-such-file")
    assert _nvidia.driver() == Driver()


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    ("script", "fault"),
    [(f"echo '{MISMATCH}'; echo 'NVML library version: 550.54'; exit 18", MISMATCH),
     ("echo 'Failed to initialize NVML: Insufficient Permissions'; exit 4", "Insufficient Permissions"),
     (r"printf '\377\001'; exit 9", "nvidia-smi ended with exit code 9"),
     ("exit 255", "nvidia-smi ended with exit code 255"),
     ("exec sleep 60", "nvidia-smi gave no answer within"), ("exec yes", "nvidia-smi gave no answer within")],
    ids=["mismatch", "no permission", "nonsense", "silent", "hangs", "talks on"],
)  # fmt: skip
def test_a_driver_that_fails_is_told_in_its_own_words(
    script: str, fault: str, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_queries, "TOOL_TIMEOUT_S", 0.3)
    monkeypatch.setattr(_nvidia, "KERNELS_OWN", f"{RECORDED}/nvidia-version-470.txt")
    tool("nvidia-smi", script)
    driver = _nvidia.driver()
    assert fault in driver.fault
    assert (driver.version, driver.cuda) == ("470.256.02", "")


@pytest.mark.parametrize("script", ["head -c 4096 /dev/urandom", ":"], ids=["nonsense", "nothing"])
def test_a_tool_that_prints_nonsense_or_nothing_says_nothing(script: str, tool: Tool) -> None:
    tool("nvidia-smi", script)
    assert _nvidia.driver() == Driver()
