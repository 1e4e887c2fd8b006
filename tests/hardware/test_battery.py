"""A battery, from a tree as a kernel shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardware.simulated import tree

from mldyno.hardware import Surroundings, Unreadable, battery


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


def test_a_macs_current_flows_out_as_a_negative_number_without_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    said = '"ExternalConnected" = No\n"Voltage" = 12000\n"InstantAmperage" = 18446744073709550616\n'
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(battery, "ask", lambda *words: said)
    (found,) = battery.find(Surroundings(Path("/nowhere"))).sensors
    assert found.read() == pytest.approx(12.0)
    said = said.replace("No", "Yes")
    assert battery.find(Surroundings(Path("/nowhere"))).sensors == []
    said = '"ExternalConnected" = No\n'
    with pytest.raises(Unreadable, match="no current"):
        found.read()
