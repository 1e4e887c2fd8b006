"""`mldyno table` as a user types it: scores, and where they go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mldyno.analysis.scores import reference
from mldyno.results import Results

Mldyno = Callable[..., tuple[int, str, str]]
FakeRun = Callable[..., Results]


def measure_the_set(mldyno: Mldyno, folder: Path) -> None:
    """Every case of the score once, on both fake devices."""
    axes = ("workload", "mode", "batch", "seq", "placement")
    tables = [{name: getattr(case, name) for name in axes if getattr(case, name)} for case in reference().rates]
    lines = [
        line for table in tables for line in ("[[cases]]", *(f"{name} = {value!r}" for name, value in table.items()))
    ]
    (folder / "set.toml").write_text("\n".join(lines))
    words = ("--framework", "fake", "--device", "cpu,gpu", "--repeats", "1", "-q")
    assert mldyno("run", str(folder / "set.toml"), *words)[0] == 0


def test_a_table_of_scores_has_machines_as_rows_and_says_what_100_is(mldyno: Mldyno, tmp_path: Path) -> None:
    measure_the_set(mldyno, tmp_path)
    code, out, _ = mldyno("table", "--value", "score")
    assert code == 0
    assert f"quick {reference().version}: 100 is {reference().machine}" in " ".join(out.split())
    assert [line.split()[:3] for line in out.splitlines() if line.startswith(" test bench")] == [
        ["test", "bench", "cpu"], ["test", "bench", "gpu"],
    ]  # fmt: skip


def test_a_score_goes_out_with_figures_and_comes_back_from_them(mldyno: Mldyno, tmp_path: Path) -> None:
    measure_the_set(mldyno, tmp_path)
    table = mldyno("table", "--value", "score", "--format", "csv")[1].splitlines()
    mldyno("export", str(tmp_path / "figures.csv"))
    assert ",score," in (tmp_path / "figures.csv").read_text()
    mldyno("import", str(tmp_path / "figures.csv"), "--store", str(tmp_path / "other.sqlite"))
    back = mldyno("table", "--value", "score", "--format", "csv", "--store", str(tmp_path / "other.sqlite"))[1]
    rows = {line.split(",")[1]: line.split(",") for line in back.splitlines()[1:]}
    assert rows.keys() == {line.split(",")[1] for line in table[1:]} == {"cpu", "gpu"}


@pytest.mark.parametrize("value", ["energy", "power", "peak_power", "idle_power", "efficiency", "energy_above_idle"])
def test_a_store_without_energy_says_how_to_measure_it(value: str, mldyno: Mldyno, fake_run: FakeRun) -> None:
    fake_run("mlp", mode="infer")
    assert mldyno("table", "mlp/infer/fake", "--value", value) == (
        1, "", "mldyno: no energy was measured in these records; measure it with: mldyno run WORKLOAD --energy\n"
    )  # fmt: skip


def test_a_value_that_no_record_has_is_named_with_what_it_is(mldyno: Mldyno, fake_run: FakeRun) -> None:
    fake_run("mlp", mode="infer")
    code, out, err = mldyno("table", "mlp/infer/fake", "--value", "gpu_clock")
    assert (code, out) == (1, "")
    assert err == "mldyno: none of these records has gpu_clock (clock of the GPU at the end of a window).\n"
