"""Tables in every form: nothing in a name means anything to it, units are those a person reads, digits are earned."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.made import met, outcome

from mldyno import api
from mldyno.analysis.comparisons import compared
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Table, lay_out
from mldyno.errors import MldynoError
from mldyno.store.figures import inert
from mldyno.views import tables as views
from mldyno.views.notebook import comparisons_html, table_html
from mldyno.views.tables import FORMATS, latex_text, markdown_text, render

SCRIPT = "<script>alert(1)</script>"


def on_machine(found: Outcome, name: str) -> Outcome:
    return Outcome(tuple(replace(record, machine=replace(record.machine, name=name)) for record in found.records))


def of_machine(name: str) -> Table:
    return lay_out([on_machine(outcome(0.002), name)], ["workload"], ["machine"], "step")


@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_name_is_text_in_every_form(form: str) -> None:
    text = render(of_machine(f"=cmd|x {SCRIPT} \x1b[31m\nnext"), form)
    assert "\x1b" not in text
    if form != "json":
        assert "\nnext" not in text


def test_markdown_shows_tags_pipes_and_stars_as_they_are() -> None:
    assert markdown_text("a|b *c* <d> _e_ f_g [h] & `i`") == (r"a\|b \*c\* &lt;d&gt; \_e\_ f_g \[h\] &amp; \`i\`")
    text = render(of_machine(f"a|b {SCRIPT}"), "markdown")
    assert "<script>" not in text
    assert r"| workload | a\|b &lt;script&gt;alert(1)&lt;/script&gt; |" in text


def test_latex_shows_its_special_letters_as_they_are() -> None:
    assert latex_text(r"50% & $5 #1 a_b {c} \d ~ ^ ±1 µs") == (
        r"50\% \& \$5 \#1 a\_b \{c\} \textbackslash{}d \textasciitilde{} \textasciicircum{} $\pm$1 $\mu$s"
    )
    lines = render(of_machine("R&D_1"), "latex").splitlines()
    assert lines[1:4] == [r"\begin{tabular}{lr}", r"\hline", r"workload & R\&D\_1 \\"]
    assert lines[-1] == r"\end{tabular}"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", " =1"])
def test_no_spreadsheet_takes_a_name_for_a_formula(name: str) -> None:
    heads = next(csv.reader(io.StringIO(render(of_machine(name), "csv"))))
    assert heads[1] == f"'{name} [ms]"
    assert inert("\t=1\r") == "' =1 ", "tabs and returns are spaces"


def test_csv_has_numbers_in_one_unit_a_column_and_half_of_the_interval() -> None:
    found = [outcome(0.002, batch=8), outcome(0.5, batch=16), outcome(2.0, batch=32, status="oom")]
    rows = list(csv.reader(io.StringIO(render(lay_out(found, ["batch"], ["device"], "step"), "csv"))))
    assert rows[0] == ["batch", "cpu [ms]", "cpu ± [ms]"]
    assert [row[1] for row in rows[1:]] == ["2.00", "500", "oom"]
    assert float(rows[1][2]) == pytest.approx(0.01, rel=0.5)


def test_a_table_has_one_unit_where_it_can_be_read_in_it_and_else_each_cell() -> None:
    near = render(lay_out([outcome(30.0, batch=1), outcome(200.0, batch=2)], ["batch"], [], "step"), "terminal")
    assert "30.0 s" in near
    assert "200 s" in near
    far = render(lay_out([outcome(2e-6, batch=1), outcome(200.0, batch=2)], ["batch"], [], "step"), "terminal")
    assert "2.00 µs" in far
    assert "3.33 min" in far


def test_a_wide_interval_leaves_fewer_digits() -> None:
    sure = lay_out([outcome(0.0012345, apart=0.002)], [], [], "step")
    unsure = lay_out([outcome(0.0012345, apart=0.3)], [], [], "step")
    assert "1.23 ms" in render(sure, "terminal")
    assert "1.2 ms" in render(unsure, "terminal")


def test_a_speed_up_along_an_axis_has_the_interval_of_its_comparison() -> None:
    sides = met(outcome(0.004), outcome(0.002, precision="bf16"))
    table = lay_out(sides, ["workload"], ["device"], "speedup", by="precision")
    figures = {row[-1]: cell.figure for (row, _), cell in table.cells.items()}
    assert table.base == "precision fp32"
    assert figures["fp32"] is not None
    assert figures["fp32"].value == 1.0
    assert figures["bf16"] is not None
    assert figures["bf16"].value == pytest.approx(2.0, rel=0.01)
    assert 0 < (figures["bf16"].half_width or 0) < 0.02
    assert "2.00x ±" in render(table, "terminal")


def test_a_window_of_forty_columns_holds_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_width", lambda: 40)
    found = [outcome(0.002, batch=size, device=name) for size in (8, 16) for name in ("cpu", "mps")]
    table = lay_out(found, ["workload", "mode", "batch", "precision"], ["device"], "step")
    text = render(table, "terminal")
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("2.00 ms") == 4


def exported(folder: Path, name: str, *found: Outcome) -> str:
    path = folder / name
    from mldyno.records import seal

    path.write_text("".join(seal(record).text + "\n" for one in found for record in one.records))
    return str(path)


def test_files_of_several_people_make_one_table_with_a_column_for_each_machine(tmp_path: Path) -> None:
    mine = exported(tmp_path, "mine.jsonl", on_machine(outcome(0.002), "mine"))
    yours = exported(tmp_path, "yours.jsonl", on_machine(outcome(0.004), "yours"))
    table = api.table([mine, yours])
    assert table.col_keys == [("mine", "cpu"), ("yours", "cpu")]
    assert len(table.row_keys) == 1
    cells = json.loads(table.to("json"))["cells"]
    assert [round(cell["value"], 6) for cell in cells] == [0.002, 0.004]


def test_machines_that_are_called_alike_are_told_apart_by_their_files(tmp_path: Path) -> None:
    mine = exported(tmp_path, "mine.jsonl", on_machine(outcome(0.002), "M1"))
    yours = exported(tmp_path, "yours.jsonl", on_machine(outcome(0.004), "M1"))
    assert [key[0] for key in api.table([mine, yours]).col_keys] == ["M1 (mine.jsonl)", "M1 (yours.jsonl)"]
    assert [key[0] for key in api.table([mine, mine]).col_keys] == ["M1"]


@pytest.mark.parametrize(("targets", "advice"), [(["mlp/infer/fake"], "`mldyno run`"), (["lstm"], "`mldyno run lstm`")])
def test_where_nothing_is_recorded_only_what_can_be_run_is_advised(targets: list[str], advice: str) -> None:
    with pytest.raises(MldynoError) as told:
        api.table(targets)
    assert advice in str(told.value)


def test_html_shows_a_hostile_machine_as_text() -> None:
    table = of_machine(SCRIPT)
    assert "<script>" not in table_html(table)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table_html(table)
    shown = comparisons_html(compared([(on_machine(outcome(0.004), SCRIPT), on_machine(outcome(0.002), "b"))]))
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
