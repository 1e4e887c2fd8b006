"""Sensors of cards, from a tree as a kernel shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardware.simulated import tree

from mldyno.hardware import Surroundings, linux


def test_a_card_has_its_counter_before_its_power(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon0/name": "amdgpu", "class/hwmon/hwmon0/power1_average": "45000000",
        "class/hwmon/hwmon1/name": "xe", "class/hwmon/hwmon1/energy1_input": "5000000",
        "class/hwmon/hwmon1/power1_average": "1", "class/hwmon/hwmon2/name": "k10temp",
    }  # fmt: skip
    sensors = linux.find_cards(Surroundings(tree(tmp_path, files))).sensors
    assert [(each.name, each.method, each.read()) for each in sensors] == [
        ("amdgpu", "average", 45.0), ("xe", "counter", 5.0),
    ]  # fmt: skip


def test_a_card_that_root_has_closed_comes_with_the_rule_that_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"class/hwmon/hwmon1/name": "xe", "class/hwmon/hwmon1/energy1_input": "5000000"}
    root = tree(tmp_path, files)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may read all
    (closed,) = linux.find_cards(Surroundings(root)).closed
    assert 'ATTR{name}=="xe", RUN+="/bin/chgrp power %S%p/energy1_input"' in closed.cure
    assert closed.price
