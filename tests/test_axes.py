"""An axis is one entry: an axis that is added is found wherever axes are, and old names of an axis are read."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from tests.grown import Grown, copied

from mldyno.axes import AXES, AXIS, DEVICE_KINDS, LARGEST_WHOLE, SIZES, WAYS, WORK, Case, unstated, yes_or_no
from mldyno.plan import expand
from mldyno.store.selection import parse_filter

REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"
ENTRY = """    arena: str | None = field(default="system", metadata=_axis(
        "which arena serves memory", values=("system", "pooled"), words={"pool": "pooled"}, prefix="arena-",
        aliases=("heap",), own_process=True))
"""
SUITE = """[[cases]]
workload = 'mlp'
framework = 'fake'
mode = 'infer'
arena = ['system', 'pooled']
[[exclude]]
heap = 'system'
"""
FAKE = ("--framework", "fake", "--repeats", "1", "--mode", "infer")
PLAIN, POOLED = "mlp/infer/fake/cpu/fp32/b128/device", "mlp/infer/fake/cpu/fp32/b128/device/arena-pooled"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """The product with one more axis, which is one entry in one place."""
    copy = copied(tmp_path_factory.mktemp("grown"))
    copy.add("axes.py", ENTRY, "    compile: bool = field(")
    return copy


@pytest.fixture
def measured(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> Grown:
    """The same, after a run over the values of the new axis; the second is twice as fast."""
    rules = [{"match": "*/arena-pooled", "step": 0.001}, {"step": 0.002}]
    monkeypatch.setenv("MLDYNO_FAKE", json.dumps(rules))
    told = grown.run("run", "mlp", *FAKE, "--arena", "system,pooled", "--by", "heap")
    assert "MLP, inference, batch 128, fake on cpu: pooled is 2.00x (2.00-2.00) faster than system" in told
    return grown


def test_a_new_axis_is_an_option_and_can_be_planned(grown: Grown) -> None:
    for command in ("run", "crossover", "max-batch"):
        words = " ".join(grown.run(command, "--help").split())
        assert "--arena, --heap LIST which arena serves memory" in words
    plan = grown.run("run", "mlp", *FAKE, "--heap", "system,pool", "--dry-run", "--json")
    assert [case["id"] for case in json.loads(plan)["cases"]] == [PLAIN, POOLED]
    grown.run("run", "mlp", *FAKE, "--arena", "none", expect=2)
    (grown.folder / "own.toml").write_text(SUITE)
    plan = grown.run("run", "own.toml", "--dry-run", "--json")
    assert [case["id"] for case in json.loads(plan)["cases"]] == [POOLED]


def test_a_new_axis_is_filtered_tabled_and_compared(measured: Grown) -> None:
    for what in ("arena=pooled", "mlp/arena-pooled", POOLED, "heap=pool"):
        rows = json.loads(measured.run("history", what, "--json"))["records"]
        assert {row["case"] for row in rows} == {POOLED}
    cells = json.loads(measured.run("table", "mlp/fake", "--rows", "arena", "--json"))["cells"]
    assert [(cell["arena"], round(cell["value"], 6)) for cell in cells] == [("system", 0.002), ("pooled", 0.001)]
    told = json.loads(measured.run("compare", "mlp/fake", "--by", "arena", "--json"))["comparisons"]
    assert [(one["verdict"], round(one["ratio"], 1)) for one in told] == [("faster", 2.0)]
    # Its values can't share a process.
    pairs = [json.loads(line)["run"]["pairing"] for line in measured.run("export", "-").splitlines()]
    assert set(pairs) == {"alone", "live-processes"}


def test_a_new_axis_goes_through_files(measured: Grown, tmp_path: Path) -> None:
    text = measured.run("export", "-", "--format", "csv")
    rows = {(row["quantity"], row["arena"]) for row in csv.DictReader(io.StringIO(text))}
    assert {("step_time", "system"), ("step_time", "pooled")} <= rows
    (tmp_path / "figures.csv").write_text(text)
    other = ("--store", str(tmp_path / "other.sqlite"))
    measured.run("import", str(tmp_path / "figures.csv"), *other)
    records = json.loads(measured.run("show", "arena=pooled/fake", "--json", *other))["records"]
    assert {record["case"]["arena"] for record in records} == {"pooled"}
    schema = "import json; from mldyno.store.codec import json_schema; print(json.dumps(json_schema()))"
    assert "arena" in json.loads(measured.evaluate(schema))["$defs"]["Case"]["properties"]


def test_a_new_axis_is_in_the_report_and_in_its_command(measured: Grown, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    measured.run("report", "mlp/fake", "--out", str(page))
    text = page.read_text()
    assert "mldyno run mlp --framework fake --mode infer --batch 128 --arena system,pooled" in text
    first_screen = text.partition("<nav")[0]
    assert "MLP, inference, batch 128, fake on cpu: pooled is 2.00x (2.00-2.00) faster than system" in first_screen


def test_a_file_from_before_the_axis_is_read_with_its_default(grown: Grown, tmp_path: Path) -> None:
    history = Path(__file__).parent / "history" / "0.1"
    store = ("--store", str(tmp_path / "old.sqlite"))
    grown.run("import", str(history / "records.jsonl"), str(history / "figures.csv"), *store)
    cells = json.loads(grown.run("table", "mlp/fake", "--rows", "workload,mode,arena", "--json", *store))["cells"]
    assert {cell["arena"] for cell in cells} == {"system"}
    assert grown.run("history", "mlp/arena=system", *store) != ""


# -- the axes that there are ---------------------------------------------------------------------


def test_the_kinds_of_axes_are_what_is_computed_how_much_and_how() -> None:
    assert WORK == ("workload", "mode", "batch", "seq")
    assert SIZES == ("batch", "seq")
    ways = ("framework", "device", "precision", "placement", "ranks", "compile", "threads", "layout", "allocator",
            "scaling", "parallel", "nodes", "python", "loader_workers", "prefetch", "pin_memory")  # fmt: skip
    assert ways == WAYS


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis.name != "workload"], ids=lambda axis: axis.name)
def test_what_an_axis_shows_it_reads(axis: object) -> None:
    axis = AXIS[axis.name]  # type: ignore[attr-defined]
    examples = axis.values or {
        "framework": ("fake",),
        "device": ("cpu", "cuda:1"),
        "python": ("3.11.7+jax0.10.2",),
    }.get(axis.name, ())
    values = examples or ((True, False) if axis.read is yes_or_no else (axis.least, 16, LARGEST_WHOLE - 1))
    for value in values:
        assert axis.parse(axis.show(value)) == value
        assert axis.bare(axis.short(value), ("fake",)) == value


def test_a_bare_word_means_one_axis_only() -> None:
    words = [axis.short(value) for axis in AXES for value in axis.values] + [*DEVICE_KINDS, "compile"]
    words += [axis.short(7) for axis in AXES if axis.number] + ["pinned"]
    for word in words:
        assert sum(axis.bare(word) is not None for axis in AXES) == 1, word


def test_the_older_name_of_ranks_is_read_in_filters_suites_and_on_the_command_line(tmp_path: Path) -> None:
    for text in ("workers=2", "ranks=2", "r2", "w2"):
        assert parse_filter(text, {}) == {"ranks": 2}
    path = tmp_path / "own.toml"
    path.write_text("[[cases]]\nworkload = 'mlp'\nmode = 'infer'\nworkers = [1, 2]\n")
    assert [case.ranks for case in expand([str(path)], {}).cases] == [1, 2]
    assert [case.id for case in expand(["mlp"], {"workers": ["2"], "mode": ["infer"]}).cases] == [
        "mlp/infer/torch/cpu/fp32/b128/device/r2"
    ]


def test_of_a_command_nothing_is_stated() -> None:
    assert unstated("sleep 1", "command").id == "sleep 1/command/cpu"
    assert unstated("sleep 1", "command") == Case(
        "sleep 1", framework="command", mode=None, precision=None, placement=None, ranks=None
    )


def test_the_reference_has_a_row_for_each_axis_that_says_what_the_entry_says() -> None:
    section = REFERENCE.read_text().partition("\n## Axes of a case\n")[2].partition("\n## ")[0]
    rows = {cells[0]: cells[1:] for cells in (re.split(r" *\| *", line)[1:-1] for line in section.splitlines())
            if len(cells) == 5 and cells[0].startswith("`")}  # fmt: skip
    assert set(rows) == {f"`{axis.name}`" for axis in AXES}
    for axis in (axis for axis in AXES if axis.name != "workload"):
        options, values, default, in_id = rows[f"`{axis.name}`"]
        assert options == ", ".join(f"`{option}`" for option in axis.options)
        assert all(f"`{word}`" in values for word in (*axis.values, *axis.words))
        assert ("whole numbers" in values) == axis.number
        if len(axis.planned) == 1 and axis.default is not None and axis.name != "placement":
            assert axis.show(axis.default) in default, axis.name
        assert f"`{axis.prefix}" in in_id
