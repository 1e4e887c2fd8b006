"""A battery, from a tree as a kernel shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardware.simulated import tree

from mldyno.hardware import Found, Surroundings, Unreadable, battery


def test_a_battery_tells_only_while_it_discharges(tmp_path: Path) -> None:
    files = {
        "class/power_supply/BAT0/type": "Battery", "class/power_supply/BAT0/status": "Discharging",
        "class/power_supply/BAT0/power_now": "12500000", "class/power_supply/AC/type": "Mains",
    }  # fmt: skip
    (found,) = battery.find(Surroundings(tree(tmp_path, files))).sensors
    assert found.read() == 12.5
    (tmp_path / "class/power_supply/BAT0/status").chmod(0o644)
    (tmp_path / "class/power_supply/BAT0/status").write_text("Charging\n")
    with pytest.raises(Unreadable, match="not discharging"):
        found.read()
    assert battery.find(Surroundings(tmp_path)).sensors == []


def test_a_macs_battery_is_no_sensor_since_its_reading_is_renewed_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("mldyno.system_queries.run", lambda *words, **options: pytest.fail(f"it asks {words}"))
    assert battery.find(Surroundings(Path("/nowhere"))) == Found([])
