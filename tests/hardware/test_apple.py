"""A Mac's chip is read from what its tools print, as it was written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Tool
from tests.hardware.trees import RECORDED, recorded

from mldyno.hardware import Description, apple

M3_MAX = Description("Apple M3 Max 40-core GPU", facts={"cores": 40})


@pytest.mark.parametrize(
    ("mac", "description"),
    [
        ("m3-max", Description("Apple M3 Max 16-core CPU", facts={"cores": 16, "threads": 16, "performance_cores": 12,
                                                           "efficiency_cores": 4})),
        ("m1", Description("Apple M1 8-core CPU", facts={"cores": 8, "threads": 8, "performance_cores": 4,
                                                  "efficiency_cores": 4})),
        ("intel-mac", Description("Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz",
                           facts={"cores": 8, "threads": 16, "clock": 2.4e9})),
    ],
)  # fmt: skip
def test_the_cpu_is_told_with_its_kinds_of_cores(mac: str, description: Description) -> None:
    assert apple.cpu(apple.from_sysctl(recorded(f"sysctl-{mac}.txt"))) == description


def test_kinds_of_cores_are_called_what_the_system_calls_them() -> None:
    text = recorded("sysctl-m3-max.txt").replace("Performance", "Super").replace("Efficiency", "Performance")
    facts = apple.cpu(apple.from_sysctl(text)).facts
    assert (facts["super_cores"], facts["performance_cores"]) == (12, 4)


def test_the_gpu_is_told_with_its_cores_by_either_tool() -> None:
    assert apple.from_ioreg(recorded("ioreg-m3-max.txt")) == M3_MAX
    assert apple.from_system_profiler(recorded("system-profiler-m3-max.json")) == M3_MAX


def test_without_a_number_of_cores_it_is_the_chips_gpu() -> None:
    text = recorded("ioreg-m3-max.txt").replace("gpu-core-count", "something-else")
    assert apple.from_ioreg(text) == Description("Apple M3 Max GPU")


def test_of_two_gpus_nobody_says_which_one_is_meant() -> None:
    assert apple.from_system_profiler(recorded("system-profiler-intel-mac.json")) == Description()
    content = json.loads(recorded("system-profiler-intel-mac.json"))
    del content["SPDisplaysDataType"][0]
    assert apple.from_system_profiler(json.dumps(content)) == Description("AMD Radeon Pro 5500M")
    assert apple.from_ioreg(2 * recorded("ioreg-m3-max.txt")) == Description()


@pytest.mark.parametrize(
    "nonsense",
    ["", "null", "[]", "{}", '{"SPDisplaysDataType": 3}', '{"SPDisplaysDataType": [3]}', "\ufffd\x00", "[" * 100_000,
     '{"SPDisplaysDataType": [{"sppci_model": 7, "sppci_cores": []}]}', '"model" = "\x1b[31m"',
     '"model" = "' + "x" * 999 + '"',
     "machdep.cpu.brand_string: \x1b[31m\nhw.physicalcpu: many\nhw.perflevel0.physicalcpu: -3"],
)  # fmt: skip
def test_nonsense_says_nothing(nonsense: str) -> None:
    assert apple.from_ioreg(nonsense) == apple.from_system_profiler(nonsense) == Description()
    assert apple.cpu(apple.from_sysctl(nonsense)) == Description()


def test_the_slow_tool_is_asked_only_where_the_quick_one_knows_no_gpu(tool: Tool, tmp_path: Path) -> None:
    tool("ioreg", f"cat {RECORDED}/ioreg-m3-max.txt")
    tool("system_profiler", f"touch {tmp_path}/asked; exit 1")
    settings = apple.from_sysctl(recorded("sysctl-m3-max.txt"))
    assert apple.gpu(settings) == Description("Apple M3 Max 40-core GPU", facts={"driver": "macOS 14.4.1", "cores": 40})
    assert not (tmp_path / "asked").exists()
    tool("ioreg", "echo nothing")
    tool("system_profiler", f"cat {RECORDED}/system-profiler-m3-max.json")
    assert apple.gpu({}) == M3_MAX
