"""NVIDIA's counters of energy, by a library that speaks the real interface: no such card is here."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.hardware import Surroundings, Unreadable, nvidia
from mldyno.records import Device

CARD = Device("cuda:0", "torch", facts={"uuid": "aaaa-1"})


class Library:
    """NVIDIA's, with one card that may have no counter."""

    def __init__(self, counts: bool = True) -> None:
        self.counts, self.fails = counts, False

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, card: Any) -> int:
        card._obj.value = 7
        return 0 if uuid == b"GPU-aaaa-1" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, card: Any, millijoules: Any) -> int:
        millijoules._obj.value = 5_000_250
        return (0 if not self.fails else 15) if self.counts else 3

    def nvmlDeviceGetPowerUsage(self, card: Any, milliwatts: Any) -> int:
        milliwatts._obj.value = 71_500
        return 0


def test_a_card_tells_its_counter_and_a_failed_read_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(nvidia, "load", lambda: library)
    (card,) = nvidia.find_cards(Surroundings(devices=[CARD, Device("cpu", "torch")])).sensors
    assert (card.method, card.scope, card.device, card.read()) == ("counter", "board", "cuda:0", 5000.25)
    library.fails = True
    with pytest.raises(Unreadable, match="error 15"):
        card.read()


def test_a_card_without_a_counter_tells_moments_of_its_power(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "load", lambda: Library(counts=False))
    (card,) = nvidia.find_cards(Surroundings(devices=[CARD])).sensors
    assert (card.method, card.read()) == ("sample", 71.5)
