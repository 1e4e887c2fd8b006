"""Sensors of trees of sysfs, as kernels show them: what each sees, and what is closed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sensors.simulated import RAPL, tree

from mldyno.records import Device
from mldyno.sensors import Surroundings, Unreadable, battery, hwmon, jetson, powercap


def around(root: Path, *devices: Device) -> Surroundings:
    return Surroundings(root, devices)


def test_domains_of_rapl_say_what_they_see_and_none_is_there_twice(tmp_path: Path) -> None:
    sensors = powercap.find(around(tree(tmp_path, RAPL))).sensors
    assert [(each.name, each.scope) for each in sensors] == [
        ("package-0", "package"), ("core", "cores"), ("dram", "memory"), ("psys", "system"),
    ]  # fmt: skip
    assert sensors[0].read() == pytest.approx(123.456789)
    assert sensors[0].largest == pytest.approx(262_143.32885)
    assert sensors[3].largest is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_counter_that_only_root_may_read_is_named_with_its_cure(tmp_path: Path) -> None:
    closed = powercap.find(around(tree(tmp_path, RAPL, ("class/powercap/intel-rapl:0/energy_uj",)))).closed
    assert [each.name for each in closed] == ["package-0"]
    assert "udev" in closed[0].cure
    assert "CVE-2020-8694" in closed[0].price


def test_a_card_has_its_counter_before_its_power(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon0/name": "amdgpu", "class/hwmon/hwmon0/power1_average": "45000000",
        "class/hwmon/hwmon1/name": "xe", "class/hwmon/hwmon1/energy1_input": "5000000",
        "class/hwmon/hwmon1/power1_average": "1", "class/hwmon/hwmon2/name": "k10temp",
    }  # fmt: skip
    sensors = hwmon.find(around(tree(tmp_path, files))).sensors
    assert [(each.name, each.method, each.read()) for each in sensors] == [
        ("amdgpu", "average", 45.0), ("xe", "counter", 5.0),
    ]  # fmt: skip


def test_a_jetson_is_told_by_the_rail_that_feeds_it(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon3/name": "ina3221", "class/hwmon/hwmon3/in1_label": "VDD_IN",
        "class/hwmon/hwmon3/in1_input": "5000", "class/hwmon/hwmon3/curr1_input": "2000",
        "class/hwmon/hwmon3/in2_label": "VDD_CPU_GPU_CV", "class/hwmon/hwmon3/in2_input": "5000",
        "class/hwmon/hwmon3/curr2_input": "900",
    }  # fmt: skip
    (rail,) = jetson.find(around(tree(tmp_path, files))).sensors
    assert (rail.name, rail.scope, rail.read()) == ("VDD_IN", "system", pytest.approx(10.0))


def test_a_battery_tells_only_while_it_discharges(tmp_path: Path) -> None:
    files = {
        "class/power_supply/BAT0/type": "Battery", "class/power_supply/BAT0/status": "Discharging",
        "class/power_supply/BAT0/power_now": "12500000", "class/power_supply/AC/type": "Mains",
    }  # fmt: skip
    (found,) = battery.find(around(tree(tmp_path, files))).sensors
    assert found.read() == 12.5
    (tmp_path / "class/power_supply/BAT0/status").chmod(0o644)
    (tmp_path / "class/power_supply/BAT0/status").write_text("Charging\n")
    with pytest.raises(Unreadable, match="not discharging"):
        found.read()
    assert battery.find(around(tmp_path)).sensors == []


def test_a_machine_without_sensors_has_none(tmp_path: Path) -> None:
    for module in (powercap, hwmon, jetson, battery):
        found = module.find(around(tmp_path))
        assert not found.sensors
        assert not found.closed
