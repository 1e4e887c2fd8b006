"""`mldyno list`: devices as each framework sees them, in their vendors' words; nothing made up beside what is real."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.hardware.trees import recorded
from tests.views.report.made_records import BENCH, record

from mldyno.hardware import Description, nvidia
from mldyno.messages import FrameworkFacts, FrameworksProbed
from mldyno.records import Case, Device
from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]
T4: dict[str, Any] = {
    "name": "cuda:0", "framework": "torch", "title": "Tesla T4", "memory": 15 << 30,
    "facts": {"uuid": "3f1c9a52-7b0e-4d6a-9c55-0a1b2c3d4e5f", "compute_capability": "7.5", "multiprocessors": 40},
}  # fmt: skip
CPU: dict[str, Any] = {"name": "cpu", "framework": "torch", "title": "unknown", "memory": None, "facts": {}}


@pytest.fixture(autouse=True)
def another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a T4, of which one framework can't be started."""
    torch = FrameworkFacts(devices=(Device(**CPU), Device(**T4)))
    seen = FrameworksProbed("3.11", {"jax": FrameworkFacts("it is not installed"), "torch": torch})
    monkeypatch.setattr("mldyno.api.running.probe_frameworks", lambda *arguments, **options: seen)
    monkeypatch.setattr(nvidia, "cards", lambda: nvidia.from_smi(recorded("nvidia-smi.csv")))
    monkeypatch.setattr(
        "mldyno.hardware.linux.cpu", lambda: Description("AMD EPYC", facts={"cores": 4, "clock": 3.5e9})
    )
    monkeypatch.setattr("mldyno.machine.total_memory", lambda: 32 << 30)


def test_devices_are_listed_with_name_memory_and_facts(mldyno: Mldyno) -> None:
    code, out, _ = mldyno("list", "devices")
    assert code == 0
    assert out.splitlines() == [
        "jax           it is not installed",
        "torch cpu     AMD EPYC, 32.0 GiB, 4 cores, up to 3.50 GHz",
        "torch cuda:0  NVIDIA T4, 15.0 GiB, compute capability 7.5, 40 multiprocessors, driver 535.104.05, "
        "at most 70.0 W, up to 1.59 GHz, memory at up to 5.00 GHz",
    ]


def test_as_json_a_device_has_its_facts_in_si_units_and_its_labels(mldyno: Mldyno) -> None:
    broken, cpu, cuda = json.loads(mldyno("list", "devices", "--json")[1])["devices"]
    assert broken == {"name": "jax", "about": "it is not installed", "framework": "jax", "device": None}
    assert (cpu["name"], cpu["device"], cpu["title"]) == ("torch cpu", "cpu", "AMD EPYC")
    assert (cuda["framework"], cuda["device"], cuda["memory"]) == ("torch", "cuda:0", 15 << 30)
    assert cuda["about"].startswith("NVIDIA T4, ")
    assert (cuda["facts"]["power_limit"], cuda["facts"]["pci_bus"]) == (70.0, "00000000:00:04.0")


def test_devices_that_are_made_up_are_not_listed(mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def seen(names: list[str], **options: Any) -> FrameworksProbed:
        asked.extend(names)
        return FrameworksProbed("3.11", {})

    monkeypatch.setattr("mldyno.api.running.probe_frameworks", seen)
    assert mldyno("list", "devices")[0] == 0
    assert "torch" in asked
    assert "fake" not in asked


def test_machines_that_have_only_rehearsed_do_not_stand_beside_others(mldyno: Mldyno, store: Store) -> None:
    rehearsed = record(Case("mlp", framework="fake", batch=8), 2e-3, replace(BENCH, name="a rehearser"))
    store.append([rehearsed])
    code, out, err = mldyno("list", "machines")
    assert (code, err) == (0, "")
    assert "a rehearser" in out
    store.append([record(Case("mlp", batch=8), 2e-3, replace(BENCH, name="a worker"))])
    code, out, err = mldyno("list", "machines")
    assert (code, err) == (0, "machines with simulated records only (framework fake) are hidden\n")
    assert "a rehearser" not in out
    assert "a worker" in out
    assert "NVIDIA V100" in out


def test_a_list_of_many_machines_asks_the_store_no_more_often(
    mldyno: Mldyno, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = Store._read

    def counted(self: Store, sql: str, *more: Any) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return read(self, sql, *more)

    monkeypatch.setattr(Store, "_read", counted)
    store.append([record(Case("mlp", batch=8), 2e-3, replace(BENCH, name="bench 0"))])
    assert mldyno("list", "machines")[0] == 0
    of_one = len(asked)
    store.append([record(Case("mlp", batch=8), 2e-3, replace(BENCH, name=f"bench {n}")) for n in range(1, 30)])
    asked.clear()
    assert mldyno("list", "machines")[1].count("in your store") == 30
    assert len(asked) == of_one > 0
