"""NVIDIA's counters, from a made-up library: no such card is here."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.hardware import nvidia
from mldyno.hardware.nvidia import Nvidia
from mldyno.records import Case, Device, Series

CASE = Case("mlp", device="cuda:0")
CARD = Device("cuda:0", "torch", facts={"uuid": "aaaa-1"})


class Library:
    """NVIDIA's, with one card whose clock heat has held down for so many ns, power for so many, and voltage."""

    def __init__(self) -> None:
        self.heat, self.power, self.voltage, self.clock = 5_000_000_000, 0, 0, 1500

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, card: Any) -> int:
        card._obj.value = {b"GPU-aaaa-1": 7, b"MIG-cccc-3": 9}.get(uuid, 0)
        return 0 if card._obj.value else 6

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Any, card: Any) -> int:
        card._obj.value = 7
        return 0 if part.value == 9 else 2

    def nvmlDeviceGetMigMode(self, card: Any, current: Any, pending: Any) -> int:
        return 3  # this card can't be partitioned

    def nvmlDeviceGetViolationStatus(self, card: Any, kind: int, status: Any) -> int:
        assert card.value == 7
        known = {0: self.power, 1: self.heat, 5: self.voltage}
        status._obj.violation = known.get(kind, 0)
        return 0 if kind in known else 3

    def nvmlDeviceGetClockInfo(self, card: Any, kind: int, clock: Any) -> int:
        assert card.value == 7
        clock._obj.value = self.clock
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(nvidia, "load", lambda: made)
    return made


def by_name(series: list[Series]) -> dict[str, tuple[float, ...]]:
    return {part.metric: part.values for part in series}


def test_only_what_the_counters_gain_belongs_to_the_case_and_clocks_are_noted(library: Library) -> None:
    meter = Nvidia()
    assert meter.start(CASE, CARD)
    meter.end_window()
    library.heat += 2_000_000_000
    library.clock = 1200
    meter.end_window()
    assert by_name(meter.stop()) == {
        "power_limit_time": (0.0,), "thermal_limit_time": (2.0,), "gpu_clock": (1.5e9, 1.2e9),
    }  # fmt: skip


@pytest.mark.parametrize("uuid", ["aaaa-1", "GPU-aaaa-1", "cccc-3", "MIG-cccc-3"])
def test_a_part_of_a_card_has_the_limits_and_clocks_of_its_card(uuid: str, library: Library) -> None:
    meter = Nvidia()
    assert meter.start(CASE, Device("cuda:0", "torch", facts={"uuid": uuid}))
    library.heat += 2_000_000_000
    meter.end_window()
    assert by_name(meter.stop()) == {
        "power_limit_time": (0.0,), "thermal_limit_time": (2.0,), "gpu_clock": (1.5e9,),
    }  # fmt: skip


@pytest.mark.parametrize(
    "device", [Device("cpu", "torch"), Device("mps", "torch"), Device("cuda:0", "torch"),
               Device("cuda:1", "torch", facts={"uuid": "bbbb-2"})],
)  # fmt: skip
def test_a_card_that_is_not_the_cases_own_is_never_asked(device: Device, library: Library) -> None:
    assert not Nvidia().start(CASE, device)


def test_a_card_at_its_highest_voltage_is_not_hot(library: Library) -> None:
    meter = Nvidia()
    assert meter.start(CASE, CARD)
    library.voltage += 9_000_000_000
    library.power += 3_000_000_000
    seen = by_name(meter.stop())
    assert (seen["thermal_limit_time"], seen["power_limit_time"]) == ((0.0,), (3.0,))


def test_without_nvidias_library_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "LIBRARIES", ("libthere-is-none.so.1",))
    assert nvidia.load() is None
    assert not Nvidia().start(CASE, CARD)
