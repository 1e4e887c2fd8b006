"""Thermal pressure of a Mac, from a made-up system."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from mldyno.hardware import system
from mldyno.hardware.system import Throttling
from mldyno.records import Case, Device


class System:
    """macOS's, whose thermal pressure goes up and down again."""

    def __init__(self, levels: Iterator[int]) -> None:
        self.levels = levels

    def notify_register_check(self, name: bytes, token: Any) -> int:
        assert name == b"com.apple.system.thermalpressurelevel"
        token._obj.value = 3
        return 0

    def notify_get_state(self, token: Any, level: Any) -> int:
        assert token.value == 3
        level._obj.value = next(self.levels)
        return 0


def test_the_highest_thermal_pressure_of_all_windows_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: System(iter([0, 2, 0])))
    meter = Throttling()
    meter.start(Case("mlp", device="mps"), Device("mps", "torch"))
    for _ in range(3):
        meter.end_window()
    assert {part.metric: part.values for part in meter.stop()}["thermal_pressure"] == (2.0,)


def test_elsewhere_there_is_no_thermal_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert system.pressure_reader() is None
