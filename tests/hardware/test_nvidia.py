"""NVIDIA's cards are read from what the driver says, and a device is found among them."""

from __future__ import annotations

import pytest
from tests.conftest import Tool
from tests.hardware.trees import RECORDED, recorded

from mldyno import system_queries
from mldyno.hardware import Description, Facts, nvidia
from mldyno.hardware.nvidia import Driver

T4 = Description(
    "NVIDIA T4",
    15 << 30,
    {"driver": "535.104.05", "power_limit": 70.0, "clock": 1.59e9, "memory_clock": 5.001e9,
     "uuid": "GPU-3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f", "pci_bus": "00000000:00:04.0"},
)  # fmt: skip


def test_the_tool_describes_a_card() -> None:
    assert nvidia.from_smi(recorded("nvidia-smi.csv"))[0] == T4


def test_what_a_card_does_not_tell_is_left_out() -> None:
    few: Facts = {"driver": "535.104.05", "uuid": "GPU-0d0d0d0d-1111-2222-3333-444444444444"}
    card = nvidia.from_smi(recorded("nvidia-smi.csv"))[3]
    assert card == Description("NVIDIA GeForce GT 1030", 2 << 30, few | {"pci_bus": "00000000:65:00.0"})


@pytest.mark.parametrize(
    ("said", "title"),
    [("Tesla T4", "NVIDIA T4"), ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
     ("Tesla V100-SXM2-16GB", "NVIDIA V100-SXM2-16GB"), ("GeForce GTX 1080", "NVIDIA GeForce GTX 1080")],
)  # fmt: skip
def test_a_card_is_called_what_nvidia_calls_it_today(said: str, title: str) -> None:
    assert nvidia.current_name(said) == title


def test_a_device_is_found_by_its_uuid_whatever_its_number() -> None:
    cards = nvidia.from_smi(recorded("nvidia-smi.csv"))
    card = nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB", {"uuid": "a1b2c3d4-0002-4e5f-8a9b-001122334455"})
    assert card.facts["pci_bus"] == "00000000:0F:00.0"
    assert card.facts["power_limit"] == 300.0


def test_without_a_uuid_only_what_cards_of_that_name_share_is_known() -> None:
    cards = nvidia.from_smi(recorded("nvidia-smi.csv"))
    shared: Facts = {"driver": "535.104.05", "clock": 1.41e9, "memory_clock": 1.215e9}
    assert nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB", {}) == Description("NVIDIA A100-SXM4-40GB", facts=shared)
    assert nvidia.found_among(cards, "Tesla T4", {}).facts == T4.facts


def test_of_a_part_of_a_card_only_the_driver_is_known() -> None:
    cards = nvidia.from_smi(recorded("nvidia-smi.csv"))
    part = nvidia.found_among(cards, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", {"uuid": "5e5e5e5e-0000-0000-0000-0000"})
    assert part == Description(facts={"driver": "535.104.05"})
    assert nvidia.found_among([], "Tesla T4", {"uuid": "x"}) == Description()


@pytest.mark.parametrize(
    "nonsense",
    ["", "null", "3", "[3]", '[{"uuid": 3}]', "[" * 100_000, "\ufffd\x00, , , , , , , ", ", ".join("abcdefgh"),
     "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "No devices were found",
     recorded("nvidia-smi.csv").replace(", ", ","), recorded("nvidia-smi.csv").replace("GPU-", "")],
)  # fmt: skip
def test_nonsense_names_no_card(nonsense: str) -> None:
    assert nvidia.from_smi(nonsense) == []


def test_numbers_that_make_no_sense_are_left_out() -> None:
    line = f"3, {T4.facts['uuid']}, \x1b[31m, \x1b[31m, inf, True, 1{'0' * 400}, -1"
    assert nvidia.from_smi(line) == [Description("NVIDIA 3", facts={"uuid": T4.facts["uuid"]})]


def test_the_tool_is_asked_for_every_field(tool: Tool) -> None:
    tool("nvidia-smi", f'case "$1" in *clocks.max.sm*) cat {RECORDED}/nvidia-smi.csv;; *) exit 2;; esac')
    assert nvidia.cards()[0] == T4


@pytest.mark.parametrize("fault", ["sleep 3600", "kill -ABRT $$", "exit 1", "echo '{'"])
def test_a_tool_that_fails_names_no_card(fault: str, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("nvidia-smi", fault)
    monkeypatch.setattr(system_queries, "TOOL_TIMEOUT_S", 1.0)
    assert nvidia.cards() == []


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [("nvidia-smi-550.txt", "550.54.14", "12.4"), ("nvidia-smi-610.txt", "610.57.04", "13.3"),
     ("nvidia-version-470.txt", "470.256.02", ""), ("nvidia-version-open-580.txt", "580.65.06", "")],
)  # fmt: skip
def test_the_driver_and_its_cuda_are_in_the_tools_heading_and_the_kernels_file(
    name: str, version: str, cuda: str
) -> None:
    assert nvidia.from_heading(recorded(name)) == Driver(version, cuda)


def test_a_driver_that_answers_is_believed(tool: Tool) -> None:
    tool("nvidia-smi", f"cat {RECORDED}/nvidia-smi-550.txt")
    assert nvidia.driver() == Driver("550.54.14", "12.4")


def test_without_the_tool_the_kernel_is_asked(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(nvidia, "KERNELS_OWN", f"{RECORDED}/nvidia-version-470.txt")
    assert nvidia.driver() == Driver("470.256.02")
    monkeypatch.setattr(nvidia, "KERNELS_OWN", f"{RECORDED}/no-such-file")
    assert nvidia.driver() == Driver()


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
    monkeypatch.setattr(nvidia, "KERNELS_OWN", f"{RECORDED}/nvidia-version-470.txt")
    tool("nvidia-smi", script)
    driver = nvidia.driver()
    assert fault in driver.fault
    assert (driver.version, driver.cuda) == ("470.256.02", "")


@pytest.mark.parametrize("script", ["head -c 4096 /dev/urandom", ":"], ids=["nonsense", "nothing"])
def test_a_tool_that_prints_nonsense_or_nothing_says_nothing(script: str, tool: Tool) -> None:
    tool("nvidia-smi", script)
    assert nvidia.driver() == Driver()
