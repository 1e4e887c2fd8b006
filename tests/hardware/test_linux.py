"""The kernel's description of the CPU and of GPUs is read from trees that were written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.hardware.trees import grown

from mldyno.hardware import Description, linux


def test_a_chip_with_two_kinds_of_cores_is_told_in_full(tmp_path: Path) -> None:
    assert linux.cpu(grown("tree-core-i5-1235u.txt", tmp_path)) == Description(
        "12th Gen Intel(R) Core(TM) i5-1235U",
        facts={
            "cores": 10, "threads": 12, "clock": 4.4e9, "governor": "powersave", "power_limit": 15.0,
            "performance_cores": 2, "efficiency_cores": 8,
        },
    )  # fmt: skip


def test_a_virtual_machine_tells_what_it_has(tmp_path: Path) -> None:
    root = grown("tree-epyc-virtual.txt", tmp_path)
    assert linux.cpu(root) == Description("AMD EPYC 7763 64-Core Processor", facts={"cores": 2, "threads": 4})
    cpuinfo = (root / "proc/cpuinfo").read_text()
    assert linux.virtualised(cpuinfo) is True
    assert linux.virtualised(cpuinfo.replace("hypervisor", "")) is False
    assert linux.virtualised("processor : 0") is None


def test_governors_that_differ_are_all_named_and_a_cpu_that_is_off_does_not_count(tmp_path: Path) -> None:
    root = grown("tree-core-i5-1235u.txt", tmp_path)
    (root / "sys/devices/system/cpu/cpu4/cpufreq/scaling_governor").write_text("performance\n")
    (root / "sys/devices/system/cpu/online").write_text("0-9\n")
    facts = linux.cpu(root).facts
    assert facts["governor"] == "performance, powersave"
    assert (facts["cores"], facts["threads"], facts["efficiency_cores"]) == (8, 10, 6)


def test_intels_gpus_are_told_apart_from_other_cards_and_from_connectors(tmp_path: Path) -> None:
    own, first, second, xe = (card.facts for card in linux.intel_gpus(grown("tree-intel-gpus.txt", tmp_path)))
    assert own == {"kernel_driver": "i915", "clock": 1.55e9, "pci_bus": "0000:00:02.0", "pci_product": "0xa780"}
    assert first == {"kernel_driver": "i915", "clock": 2.4e9, "power_limit": 190.0, "pci_bus": "0000:03:00.0",
                     "pci_product": "0x56a0"}  # fmt: skip
    assert second["power_limit"] == 150.0
    assert (xe["kernel_driver"], xe["clock"], xe["power_limit"]) == ("xe", 2.85e9, 190.0)  # a limit of 0 is none


@pytest.mark.parametrize(
    ("text", "known"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-", set()), ("a-b", set()), ("3-1", set()),
     ("0-99999999999999", set()), ("0-²", set()), ("\ufffd", set())],
)  # fmt: skip
def test_a_list_of_cpus_is_read_or_is_none(text: str, known: set[int]) -> None:
    assert linux.numbers(text) == known


def test_where_nothing_is_there_nothing_is_known(tmp_path: Path) -> None:
    assert linux.cpu(tmp_path) == Description()
    assert linux.intel_gpus(tmp_path) == []


def test_where_nothing_may_be_read_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    root = grown("tree-core-i5-1235u.txt", tmp_path)
    monkeypatch.setattr("builtins.open", refused)
    assert linux.cpu(root) == Description()


@pytest.mark.parametrize("nonsense", [b"", b"\xff\xfe\x00\x01", b"-1", b"1e999", b"nan", b"x" * (2 << 20)])
def test_a_file_full_of_nonsense_says_nothing(nonsense: bytes, tmp_path: Path) -> None:
    root = grown("tree-core-i5-1235u.txt", tmp_path)
    for path in root.rglob("*"):
        if path.is_file() and path.name != "online":
            path.write_bytes(nonsense)
    cpu = linux.cpu(root)
    assert cpu.title is None
    assert not {"clock", "power_limit", "performance_cores"} & cpu.facts.keys()


def test_cards_that_could_compute_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    cards = linux.cards(grown("tree-pci-bus.txt", tmp_path))
    assert cards == [("nvidia", "0x1eb8"), ("amd", "0x74a1"), ("intel", "0x56a0")]
    assert linux.cards(tmp_path / "no-such-folder") == []
