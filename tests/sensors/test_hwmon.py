"""Sensors of cards, from a tree as a kernel shows it."""

from __future__ import annotations

from pathlib import Path

from tests.sensors.simulated import tree

from mldyno.sensors import Surroundings, hwmon


def test_a_card_has_its_counter_before_its_power(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon0/name": "amdgpu", "class/hwmon/hwmon0/power1_average": "45000000",
        "class/hwmon/hwmon1/name": "xe", "class/hwmon/hwmon1/energy1_input": "5000000",
        "class/hwmon/hwmon1/power1_average": "1", "class/hwmon/hwmon2/name": "k10temp",
    }  # fmt: skip
    sensors = hwmon.find(Surroundings(tree(tmp_path, files))).sensors
    assert [(each.name, each.method, each.read()) for each in sensors] == [
        ("amdgpu", "average", 45.0), ("xe", "counter", 5.0),
    ]  # fmt: skip
