"""Devices as their vendors know them: what a framework has found, with the vendor's name and facts added."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from mldyno.machine import _apple, _linux, _memory, _nvidia
from mldyno.machine._facts import Description, Facts, agreed
from mldyno.records import Device

UNNAMED = Device.title  # of a device that its framework has no name for


class Vendors:
    """What the system and the vendors' tools say of the devices of this machine.

    Each is asked at most once in the life of this object, and only where such a device was found. Asking
    may take seconds: never while a case is measured.
    """

    def describe(self, devices: Iterable[Device]) -> tuple[Device, ...]:
        """The devices with the best name, and all that is known of them; those of other kinds as they are."""
        return tuple(self._described(device) for device in devices)

    def _described(self, device: Device) -> Device:
        try:
            description = self._description(device)
        except Exception:  # facts are never worth a run
            return device
        return replace(
            device,
            title=description.title or device.title,
            memory=device.memory or description.memory,
            facts={**device.facts, **description.facts},
        )

    def _description(self, device: Device) -> Description:
        kind = device.name.partition(":")[0]
        if kind == "cpu" and device.title == UNNAMED:  # one with a name is the fake framework's
            return self._cpu
        if kind == "mps":
            return self.metal
        if kind == "cuda":
            return _nvidia.found_among(self.nvidia_cards, device.title, device.facts)
        if kind == "xpu":
            return Description(facts=self._of_product(device.facts))
        return Description()

    def _of_product(self, facts: Facts) -> Facts:
        """What all of Intel's GPUs of one product have in common; of all, where the framework does not name it."""
        product = facts.get("pci_product")
        return agreed([card for card in self._intel if product in (None, card.facts.get("pci_product"))])

    @cached_property
    def _cpu(self) -> Description:
        description = _apple.cpu(self._settings) if sys.platform == "darwin" else _linux.cpu()
        return replace(description, memory=_memory.total_memory())

    @cached_property
    def _settings(self) -> dict[str, str]:
        return _apple.settings()

    @cached_property
    def metal(self) -> Description:
        """The GPU of this Mac."""
        return _apple.gpu(self._settings)

    @cached_property
    def nvidia_driver(self) -> _nvidia.Driver:
        """NVIDIA's driver, and what is wrong with it."""
        return _nvidia.driver()

    @cached_property
    def nvidia_cards(self) -> list[Description]:
        """NVIDIA's cards, as their driver knows them."""
        return _nvidia.cards()

    @cached_property
    def _intel(self) -> list[Description]:
        return _linux.intel_gpus()
