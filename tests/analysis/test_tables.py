"""Tables: every outcome finds its cell, axes that vary become rows, nothing is dropped."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest

from mldyno import api
from mldyno.metrics import METRIC
from mldyno.results import Results
from mldyno.store import Store
from mldyno.views.tables import cell_text, render

FakeRun = Callable[..., Results]
Script = Callable[..., None]


def test_the_published_table_is_there_on_the_first_day(store: Store) -> None:
    table = api.table("bert-base", ["mode", "batch", "seq"], ["machine", "device"], "time:100steps", store)
    assert table.rows == ("mode", "batch", "seq")
    assert len(table.row_keys) == 12
    m1, v100 = ("M1 Max 10-core CPU 32-core GPU 32GB", "mps"), ("NVIDIA V100 SXM2 16GB", "cuda:0")
    assert cell_text(table.cells[("train", 16, 128), v100], METRIC["step"]) == "12.0 s"
    assert cell_text(table.cells[("train", 256, 512), v100], METRIC["step"]) == "-"
    withdrawn_then_measured_again = table.cells[("train", 16, 128), m1]
    assert cell_text(withdrawn_then_measured_again, METRIC["step"]) == "63.0 s"
    assert "supersedes the May row" in withdrawn_then_measured_again.notes[0]


def test_axes_that_vary_without_being_asked_for_become_rows(fake_run: FakeRun) -> None:
    table = fake_run(device=["cpu", "gpu"], mode="infer").table(rows=["mode"], cols=[])
    assert table.rows == ("mode", "device")
    assert len(table.cells) == 2


def test_a_time_of_steps_says_from_how_many_it_is_projected(fake_run: FakeRun, script: Script) -> None:
    script({"step": 0.01, "noise": 0.01})
    results = fake_run(mode="infer")
    cell = next(iter(results.table(value="time:100000steps").cells.values()))
    assert cell.figure is not None
    assert cell.figure.value == pytest.approx(1000, rel=0.01)
    assert f"projected from {results.records[0].facts['steps']:,} steps" in cell.notes


def test_steps_that_were_all_run_are_not_called_projected(fake_run: FakeRun) -> None:
    cell = next(iter(fake_run(mode="infer", steps=100).table(value="time:100steps").cells.values()))
    assert not any("projected" in note for note in cell.notes)


def test_a_speed_up_is_over_the_first_column(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/gpu/*", "step": 0.001}, {"step": 0.004})
    table = fake_run(mode="infer", device=["cpu", "gpu"]).table(cols=["device"], value="speedup")
    assert table.base == "device cpu"
    figures = {col[0]: cell.figure for (_, col), cell in table.cells.items()}
    assert figures["gpu"] is not None
    assert figures["gpu"].value == pytest.approx(4.0, rel=0.01)


def test_what_failed_stands_in_its_cell_with_the_reason(fake_run: FakeRun, script: Script) -> None:
    script({"match": "*/b32/*", "fail": "oom"}, {"match": "*/b16/*", "fail": "exception"})
    text = render(fake_run(mode="infer", batch=[8, 16, 32]).table(rows=["batch"]), "terminal")
    assert " - " in text
    assert "failed: RuntimeError: fake failure" in text


def test_every_format_says_the_same(fake_run: FakeRun) -> None:
    table = fake_run(mode="infer", batch=[8, 16]).table(rows=["batch"], cols=["device"])
    cells = json.loads(render(table, "json"))["cells"]
    assert {cell["batch"] for cell in cells} == {8, 16}
    assert all(cell["unit"] == "s" and cell["status"] == "ok" for cell in cells)
    rows = list(csv.reader(io.StringIO(render(table, "csv"))))
    assert rows[0][:2] == ["batch", "cpu [µs]"]
    assert render(table, "markdown").count("\n| ") == 4
    assert "80.0 µs" in render(table, "terminal")
