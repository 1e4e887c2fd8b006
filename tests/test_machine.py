"""The facts of a machine: never an error, unknown where unknown."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.conftest import Tool

from mldyno import machine


def test_a_machine_describes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLDYNO_MACHINE")
    described = machine.describe()
    assert described.cores == len(os.sched_getaffinity(0))
    assert described.memory is not None
    assert described.memory > 2**28
    assert described.cpu in described.name
    assert os.uname().nodename not in described.name


def test_the_user_may_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE", "the big one")
    assert machine.describe().name == "the big one"


def test_what_can_not_be_found_out_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError("no")

    monkeypatch.delenv("MLDYNO_MACHINE")
    for name in ("_cpu_name", "total_memory", "_power", "_virtualised"):
        monkeypatch.setattr(machine, name, broken)
    monkeypatch.setattr("platform.system", broken)
    monkeypatch.setattr(os, "sched_getaffinity", broken)
    described = machine.describe()
    assert (described.cpu, described.cores, described.memory, described.power) == ("unknown", None, None, "unknown")
    assert described.virtualised is None
    assert described.system == "unknown"


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("lowpowermode 1", True),
        ("lowpowermode 0", False),
        ("sleep 1", None),
        ("powermode 1", True),
        ("powermode 2", False),
        ("powermode 0", False),
    ],
)
def test_a_mac_says_whether_it_saves_power(said: str, known: bool | None, on_a_mac: None, tool: Tool) -> None:
    tool("pmset", f"echo 'System-wide power settings:'; echo ' {said}'")
    tool("sysctl", "echo 'Apple M3 Max'")
    described = machine.describe()
    assert (described.low_power, described.cpu) == (known, "Apple M3 Max")


def test_memory_in_use_is_seen() -> None:
    mine = machine.resident_memory(os.getpid())
    assert mine is not None
    assert mine > 2**20
    assert machine.resident_memory(2**22 + 1) is None
    left = machine.available_memory()
    assert left is not None
    assert left > 0
