"""NVIDIA's counters of energy, by a library that speaks the real interface: no such card is here."""

from __future__ import annotations

from typing import Any

import pytest

from mldyno.hardware import Surroundings, Unreadable, nvidia
from mldyno.records import Device

CARD = Device("cuda:0", "torch", facts={"uuid": "aaaa-1"})


class Library:
    """NVIDIA's, with one card that may have no counter, or be partitioned; an old one knows nothing of parts."""

    def __init__(self, counts: bool = True, partitioned: bool | None = None) -> None:
        self.counts, self.fails, self.partitioned = counts, False, partitioned

    def nvmlDeviceGetMigMode(self, card: Any, current: Any, pending: Any) -> int:
        if self.partitioned is None:
            raise AttributeError("undefined symbol: nvmlDeviceGetMigMode")
        current._obj.value = int(self.partitioned)
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, card: Any) -> int:
        card._obj.value = {b"GPU-aaaa-1": 7, b"MIG-cccc-3": 9}.get(uuid, 0)
        return 0 if card._obj.value else 6

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Any, card: Any) -> int:
        card._obj.value = 7
        return 0

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


@pytest.mark.parametrize(("uuid", "partitioned"), [("cccc-3", None), ("MIG-cccc-3", True), ("aaaa-1", True)])
def test_the_energy_of_a_part_of_a_card_is_not_that_of_the_card(
    uuid: str, partitioned: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia, "load", lambda: Library(partitioned=partitioned))
    found = nvidia.find_cards(Surroundings(devices=[Device("cuda:0", "torch", facts={"uuid": uuid})]))
    assert found.sensors == []
    (closed,) = found.closed
    assert "cuda:0 is a part of a card (MIG)" in closed.reason
    assert "nvidia-smi -mig 0" in closed.cure


def test_a_card_that_could_be_partitioned_and_is_not_has_its_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "load", lambda: Library(partitioned=False))
    assert [card.device for card in nvidia.find_cards(Surroundings(devices=[CARD])).sensors] == ["cuda:0"]
