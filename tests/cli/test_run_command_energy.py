"""`mldyno run --energy` from a sensor whose truth is known to tables, comparisons and the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sensors.simulated import ONE_PACKAGE, PACKAGE, CountingFile, tree

from mldyno.sensors import SYSFS

Mldyno = Callable[..., tuple[int, str, str]]
RUN = ("run", "mlp", "--framework", "numpy", "--mode", "infer", "--energy", "-q")
WATTS = 40.0


def test_energy_goes_from_a_sensor_to_tables_comparisons_and_the_report(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path / "sys", ONE_PACKAGE)))
    with CountingFile(tmp_path / "sys" / PACKAGE, WATTS):
        code, out, _ = mldyno(*RUN, "--batch", "8,64", "--by", "batch", "--budget", "1s", "--repeats", "1")
    assert code == 0
    assert "[package, by powercap: package-0 (counter)]" in out
    assert re.search(r"energy an item.* \[paired, 3 rounds in one process", out)
    power = json.loads(mldyno("table", "mlp/numpy", "--value", "power", "--json")[1])
    watts = [cell["value"] for cell in power["cells"]]
    assert watts == pytest.approx([WATTS, WATTS], rel=0.02)
    energy = json.loads(mldyno("table", "mlp/numpy", "--value", "energy", "--json")[1])
    assert all(cell["value"] > 0 and cell["unit"] == "J" for cell in energy["cells"])
    code, out, _ = mldyno("compare", "mlp/numpy", "--by", "batch", "--value", "energy")
    assert "energy an item" in out
    assert "energy" in mldyno("show", "mlp/numpy")[1]
    mldyno("report", "mlp/numpy", "--out", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "What does it take?" in page
    assert "items a joule" in page


def test_without_a_sensor_the_time_is_measured_and_energy_is_unknown_in_one_line(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tmp_path))
    code, out, _ = mldyno(*RUN, "--batch", "8", "--budget", "0.3s", "--repeats", "1")
    assert code == 0
    assert out.count("energy: unknown: no sensor can be read here; `mldyno doctor` says which there are") == 1
    code, _, err = mldyno("compare", "mlp/numpy", "mlp/numpy/batch=8", "--value", "energy")
    assert code == 1
    code, _, err = mldyno("compare", "mlp", "--value", "watts")
    assert code == 2
    assert "energy" in err
