"""An Apple chip, by a stand-in with the interface of zeus-apple-silicon."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from mldyno.hardware import Surroundings, Unreadable, apple


def test_an_apple_chip_adds_up_what_does_not_contain_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = SimpleNamespace(cpu_total_mj=2000, gpu_mj=3000, dram_mj=500, ane_mj=None, efficiency_cores_mj=[900])
    module = ModuleType("zeus_apple_silicon")
    module.AppleEnergyMonitor = lambda: SimpleNamespace(get_cumulative_energy=lambda: counted)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", module)
    monkeypatch.setattr(sys, "platform", "darwin")
    (chip,) = apple.find_counted_chip(Surroundings()).sensors
    assert (chip.scope, chip.method, chip.read()) == ("package", "counter", 5.5)
    counted.cpu_total_mj = counted.gpu_mj = counted.dram_mj = None
    with pytest.raises(Unreadable, match="counts nothing"):
        chip.read()
