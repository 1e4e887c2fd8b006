"""The facts of a machine for the doctor: never an error, whatever the system does."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from mldyno import machine
from mldyno.doctor import checkup
from mldyno.doctor.symptoms import Facts, Gpu
from mldyno.hardware import Description
from mldyno.hardware.nvidia import Driver
from mldyno.machine import Vendors
from mldyno.records import Machine


@pytest.fixture
def here() -> Machine:
    return machine.describe()


def test_this_machine_has_its_facts(here: Machine) -> None:
    found = checkup.gather_facts(here, Vendors())
    assert found.system == "Linux"
    assert found.cores == here.cores
    assert found.available is not None
    assert found.memory is not None
    assert 0 < found.available <= found.memory
    assert found.packages["torch"].startswith("2.")
    assert found.translated is False


def test_whatever_fails_is_unknown_and_no_error(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise PermissionError("no")

    for place in (
        "platform.release",
        "os.getloadavg",
        "importlib.metadata.version",
        "subprocess.Popen",
        "builtins.open",
    ):
        monkeypatch.setattr(place, broken)
    monkeypatch.setattr(Path, "glob", broken)
    monkeypatch.setattr(psutil, "swap_memory", broken)
    monkeypatch.setattr(psutil, "sensors_battery", broken)
    monkeypatch.setattr(machine, "available_memory", broken)
    found = checkup.gather_facts(here, Vendors())
    assert (found.version, found.load, found.available, found.swap_used) == ("", None, None, None)
    assert (len(found.gpus), len(found.nodes)) == (0, 0)


class NoVendors(Vendors):
    """Nobody knows anything of a GPU."""

    nvidia_driver = Driver()
    nvidia_cards: list[Description] = []  # noqa: RUF012 (never changed)
    metal = Description()


class OneT4(NoVendors):
    """A driver that answers."""

    nvidia_driver = Driver("550.54.14", "12.4")
    nvidia_cards = [Description("NVIDIA T4", facts={"uuid": "GPU-8932f937"})]  # noqa: RUF012


def test_cards_that_their_driver_knows_have_its_names_and_those_on_the_bus_are_not_told_twice(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cards_on_bus", lambda: [("nvidia", "0x1eb8"), ("amd", "0x74a1")])
    found = checkup.gather_facts(here, OneT4())
    assert (found.driver, found.driver_cuda, found.driver_error) == ("550.54.14", "12.4", "")
    assert found.gpus == (Gpu("nvidia", "NVIDIA T4", "GPU-8932f937"), Gpu("amd", "AMD 0x74a1"))
    assert checkup.gather_facts(here, NoVendors()).gpus == (Gpu("nvidia", "NVIDIA 0x1eb8"), Gpu("amd", "AMD 0x74a1"))


def test_a_driver_that_fails_is_not_asked_for_its_cards(here: Machine) -> None:
    class Broken(NoVendors):
        nvidia_driver = Driver(fault="nvidia-smi gave no answer within 5 s")

        @property
        def nvidia_cards(self) -> list[Description]:  # type: ignore[override]
            raise AssertionError("it would hang again")

    found = checkup.gather_facts(here, Broken())
    assert (found.driver_error, found.gpus) == ("nvidia-smi gave no answer within 5 s", ())


@pytest.mark.parametrize(
    ("title", "name"), [("Apple M3 Max 40-core GPU", "Apple M3 Max 40-core GPU"), (None, "GPU of Apple M3 Max")]
)
def test_a_mac_with_an_apple_chip_has_a_gpu(title: str | None, name: str, here: Machine) -> None:
    class Mac(NoVendors):
        metal = Description(title)

    mac = replace(here, system="Darwin", arch="arm64", cpu="Apple M3 Max")
    assert checkup.gather_facts(mac, Mac()).gpus == (Gpu("apple", name),)
    assert checkup.gather_facts(replace(mac, arch="x86_64"), Mac()).gpus == ()


def test_waiting_for_memory_is_read_as_a_share() -> None:
    text = "some avg10=1.10 avg60=12.50 avg300=0.90 total=102\nfull avg10=0.00 avg60=9.99 avg300=0.00 total=0"
    assert checkup.waiting_share(text) == pytest.approx(0.125)
    assert checkup.waiting_share("") is None


def test_packages_are_found_without_importing_them() -> None:
    assert checkup.installed(["pytest", "no-such-package"]) == {"pytest": pytest.__version__}


def test_all_facts_have_a_value_for_what_is_not_known() -> None:
    assert all(getattr(Facts(), field.name) in (None, "", "unknown", False, (), {}) for field in fields(Facts))
