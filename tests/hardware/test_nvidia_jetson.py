"""A Jetson board, from a tree as its kernel shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardware.simulated import tree

from mldyno.hardware import Surroundings, nvidia


def test_a_jetson_is_told_by_the_rail_that_feeds_it(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon3/name": "ina3221", "class/hwmon/hwmon3/in1_label": "VDD_IN",
        "class/hwmon/hwmon3/in1_input": "5000", "class/hwmon/hwmon3/curr1_input": "2000",
        "class/hwmon/hwmon3/in2_label": "VDD_CPU_GPU_CV", "class/hwmon/hwmon3/in2_input": "5000",
        "class/hwmon/hwmon3/curr2_input": "900",
    }  # fmt: skip
    (rail,) = nvidia.find_rails(Surroundings(tree(tmp_path, files))).sensors
    assert (rail.name, rail.scope) == ("VDD_IN", "system")
    assert rail.read() == pytest.approx(10.0)
