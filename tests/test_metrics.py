"""A metric is one entry: one that is added is found wherever metrics are; every metric of a record can be tabled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.grown import copied

from mldyno import api, plugins
from mldyno.metrics import METRIC, METRICS, metric_named
from mldyno.records import SCHEMA, Case, Device, Machine, Record, Run, Series, seal
from mldyno.results import Results
from mldyno.store import Store

REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"
FakeRun = Callable[..., Results]
ENTRY = '    Metric("joules", "J", "energy of all windows", ("window",), "sum", "lower", aliases=("energy",)),\n'


def a_record(*series: Series, run: str = "r", process: int = 0) -> Record:
    case, machine = Case("mlp", batch=8), Machine("m")
    steps = Series("step_time", "s", (0.001,) * 20)
    plain = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run(run, process=process), case, "ok", "", machine)
    return seal(replace(plain, series=(steps, *series)))


def cells(store: Store, value: str) -> list[tuple[float, str]]:
    table = json.loads(api.table("mlp/train/cpu", value=value, store=store).to("json"))
    return [(cell["value"], cell["unit"]) for cell in table["cells"]]


def test_a_new_metric_is_tabled_exported_and_named_by_its_old_name(tmp_path: Path) -> None:
    grown = copied(tmp_path / "grown")
    grown.add("metrics.py", ENTRY, '    Metric("page_faults",')
    source = tmp_path / "records.jsonl"
    source.write_text(a_record(Series("joules", "J", (3.0, 4.0, 5.0), stage="window")).text + "\n")
    grown.run("import", str(source))
    for word in ("joules", "energy"):
        table = json.loads(grown.run("table", "mlp/train/cpu", "--value", word, "--json"))
        assert (table["title"], table["better"]) == ("energy of all windows", "lower")
        assert [(cell["value"], cell["unit"]) for cell in table["cells"]] == [(12.0, "J")]
    assert "energy of all windows" in grown.run("table", "mlp/train/cpu", "--value", "joules")
    assert ",joules,12.0,J,ok," in grown.run("export", "-", "--format", "csv")


def test_every_metric_of_a_record_can_be_tabled(fake_run: FakeRun) -> None:
    results = fake_run(mode="infer")
    named = {series.metric for record in results.records for series in record.series}
    assert {"step_time", "peak_memory", "load"} <= named
    for metric in named:
        (cell,) = results.table(value=metric).cells.values()
        assert cell.figure is not None, metric


def test_counts_of_windows_are_summed_in_each_process_and_have_an_interval_over_processes(store: Store) -> None:
    faults = [Series("page_faults", "1", values, stage="window") for values in ((1.0, 2.0), (4.0, 1.0))]
    store.append([a_record(series, process=number) for number, series in enumerate(faults)])
    assert cells(store, "page_faults") == [(4.0, "1")]
    table = api.table("mlp/train/cpu", value="page_faults", store=store)
    assert "page faults in all windows" in str(table)
    assert "4.0 ±100 % or more" in str(table)  # a number of things, not a factor


def test_a_metric_that_nobody_knows_is_tabled_by_its_name(store: Store) -> None:
    store.append([a_record(Series("wobble_rate", "1/s", (2.0, 3.0, 4.0), stage="orbit"))])
    assert cells(store, "wobble_rate") == [(3.0, "1/s")]
    assert "wobble rate" in str(api.table("mlp/train/cpu", value="wobble_rate", store=store))


@pytest.mark.parametrize(("word", "name"), [("roof", "peak_share"), ("yardstick", "reference_time"), ("step", "step")])
def test_a_metric_answers_to_what_it_was_called(word: str, name: str) -> None:
    assert metric_named(word).name == name


def test_a_time_of_steps_and_a_rate_of_a_phase_are_entries_too() -> None:
    assert metric_named("time:1000steps").title == "time of 1,000 steps"
    assert metric_named("throughput:decode").better == "higher"
    assert metric_named(f"time:{'9' * 5000}steps").better is None


def test_what_a_meter_gives_is_in_the_unit_and_stage_of_its_entry() -> None:
    for meter in plugins.meters():
        if not meter.start(Case("mlp"), Device("cpu", "torch")):
            continue
        meter.begin_window()
        meter.end_window()
        for series in meter.stop():
            assert (series.unit, series.stage) == (METRIC[series.metric].unit, METRIC[series.metric].stages[0])


def test_the_reference_has_a_row_for_each_metric_that_says_what_the_entry_says() -> None:
    section = REFERENCE.read_text().partition("\n## Metrics and units\n")[2].partition("\n## ")[0]
    lines = [re.split(r" *\| *", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    rows: dict[str, list[list[str]]] = {}
    for names, *rest in lines:
        for name in re.findall(r"`([a-z_]+)`", names):
            rows.setdefault(name, []).append(rest)
    stored = [metric for metric in METRICS if not metric.derived]
    assert [metric.name for metric in stored if metric.name not in rows] == []
    for metric in stored:
        counting = [row for row in rows[metric.name] if f"`{metric.stages[0]}`" in row[1]]
        ((unit, _, reduce, better, meaning),) = counting
        assert (unit, reduce, better) == (metric.unit, metric.reduce, metric.better or ""), metric.name
        assert meaning


def test_the_reference_has_every_value_of_a_table() -> None:
    section = REFERENCE.read_text().partition("\n## Values of a table\n")[2].partition("\n## ")[0]
    assert [metric.name for metric in METRICS if metric.derived and f"| `{metric.name}` |" not in section] == []
