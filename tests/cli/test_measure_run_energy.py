"""`mldyno run --energy` from a sensor whose truth is known to tables, comparisons and the report."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest
from tests.cli.conftest import Mldyno, steady
from tests.hardware.simulated import ONE_PACKAGE, PACKAGE, CountingFile, tree

from mldyno.hardware import SYSFS
from mldyno.runner import pairing, remote_case

RUN = ("run", "mlp", "--framework", "numpy", "--mode", "infer", "--energy", "-q")
WATTS = 40.0  # steps are small ones: on a busy machine the peak of matmuls, which they must not pass, is low
BY_COUNTER = "[package, by powercap: package-0 (counter)]"
SHORT = ("--batch", "1", "--budget", "0.3s", "--repeats", "1")


@pytest.fixture(autouse=True)
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch for two windows of half a second, at rest and in each turn of a comparison: half of the usual time."""
    monkeypatch.setattr(remote_case, "REST_S", 1.0)
    monkeypatch.setattr(pairing, "ENERGY_TURN_S", 1.0)


def test_energy_goes_from_a_sensor_to_tables_comparisons_and_the_report(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path / "sys", ONE_PACKAGE)))
    with CountingFile(tmp_path / "sys" / PACKAGE, WATTS):
        code, out, _ = steady(mldyno, *RUN, "--batch", "1,2", "--by", "batch", "--budget", "0.5s", "--repeats", "1",
                              wanted=BY_COUNTER)  # fmt: skip
    assert code == 0, out
    assert BY_COUNTER in out
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
    code, out, _ = steady(mldyno, *RUN, *SHORT)
    assert code == 0, out
    assert out.count("energy: unknown: no sensor can be read here; `mldyno doctor` lists the sensors") == 1
    code, _, err = mldyno("compare", "mlp/numpy", "mlp/numpy/batch=1", "--value", "energy")
    assert code == 1
    code, _, err = mldyno("compare", "mlp", "--value", "watts")
    assert code == 2
    assert "energy" in err


def test_a_sensor_that_hangs_costs_its_energy_only_and_is_named(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path / "sys", ONE_PACKAGE)))
    (tmp_path / "sys" / PACKAGE).unlink()
    os.mkfifo(tmp_path / "sys" / PACKAGE)  # whoever opens it waits for ever
    code, out, _ = steady(mldyno, *RUN, *SHORT)
    assert code == 0, out
    assert out.count("energy: unknown: package-0 does not answer") == 1
    (step,) = json.loads(mldyno("table", "mlp/numpy", "--json")[1])["cells"]
    assert step["status"] == "ok"
    assert step["value"] > 0


def test_a_plug_that_never_answers_is_named_and_others_tell_the_energy(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path / "sys", ONE_PACKAGE)))
    with socket.create_server(("127.0.0.1", 0)) as silent, CountingFile(tmp_path / "sys" / PACKAGE, WATTS):
        monkeypatch.setenv("MLDYNO_PLUG", f"http://127.0.0.1:{silent.getsockname()[1]}")
        code, out, _ = steady(mldyno, *RUN, *SHORT)
    assert code == 0, out
    assert "[package, by powercap: package-0 (counter); lost meanwhile: plug: the plug does not answer" in out


def test_a_suite_asks_for_energy(mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SYSFS, str(tree(tmp_path / "sys", ONE_PACKAGE)))
    suite = tmp_path / "joules.toml"
    suite.write_text(
        'energy = true\nbudget = "0.5s"\nrepeats = 1\n'
        '[[cases]]\nworkload = "mlp"\nframework = "numpy"\nmode = "infer"\nbatch = 1\n'
    )
    with CountingFile(tmp_path / "sys" / PACKAGE, WATTS):
        code, out, _ = steady(mldyno, "run", str(suite), "-q", wanted=BY_COUNTER)
    assert code == 0, out
    assert BY_COUNTER in out


def test_a_crossover_without_a_sensor_says_once_that_energy_is_unknown(
    mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SYSFS, str(tmp_path))
    code, out, _ = mldyno("crossover", "mlp", "--framework", "fake", "--precision", "fp32,bf16", "--mode", "infer",
                          "--from", "1", "--to", "4", "--energy", "-q")  # fmt: skip
    assert code == 0, out
    assert out.count("energy: unknown: no sensor can be read here") == 1
