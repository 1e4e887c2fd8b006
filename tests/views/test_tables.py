"""Tables in every form: nothing in a name means anything to it, units are those a person reads, digits are earned."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.made import met, outcome

from mldyno import api
from mldyno.analysis.comparisons import compared
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.tables import Table, lay_out
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Warning_
from mldyno.results import Comparisons, ResultTable
from mldyno.store.figures import inert
from mldyno.views import tables as views
from mldyno.views.tables import FORMATS, latex_text, markdown_text, render
from mldyno.views.window import NO_WINDOW

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
    assert lines[1:5] == [
        r"% needs \usepackage{booktabs}", r"\begin{tabular}{lr}", r"\toprule", r"workload & R\&D\_1 \\",
    ]  # fmt: skip
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


def noted(found: Outcome, *notes: str) -> Outcome:
    warnings = tuple(Warning_("note", note) for note in notes)
    return Outcome(tuple(replace(record, warnings=warnings) for record in found.records))


def test_in_latex_notes_stand_below_the_table_and_two_hyphens_stay_two() -> None:
    found = [noted(outcome(0.002, batch=8), "more --budget helps"), outcome(0.004, batch=16)]
    lines = render(lay_out(found, ["batch"], ["device"], "step"), "latex").splitlines()
    assert lines[:2] == ["% time of one step", r"% needs \usepackage{booktabs,threeparttable}"]
    assert lines[2:5] == [r"\begin{threeparttable}", r"\begin{tabular}{lr}", r"\toprule"]
    assert lines[5:7] == [r"batch & cpu \\", r"\midrule"]
    assert lines[7].startswith(r"8 & 2.00 ms $\pm$")
    assert lines[7].endswith(r" \%\tnote{1} \\")
    assert r"\tnote" not in lines[8]
    assert lines[9:] == [
        r"\bottomrule", r"\end{tabular}", r"\begin{tablenotes}", r"\footnotesize",
        r"\item[1] more -{}-budget helps", r"\end{tablenotes}", r"\end{threeparttable}",
    ]  # fmt: skip
    assert latex_text("a--b --- c-d") == "a-{}-b -{}-{}- c-d"
    assert "\\hline" not in "".join(lines)


def test_no_line_of_latex_begins_with_what_its_line_break_would_take() -> None:
    for name in ("[1ex]", "*"):
        found = [on_machine(outcome(0.002, batch=size), name) for size in (1, 2)]
        table = lay_out(found, ["machine", "batch"], [], "step")
        assert render(table, "latex").count(f"\n{{}}{name} &") == 2


def counting(item: str | None, step: float = 0.002, **axes: Any) -> Outcome:
    facts: dict[str, Any] = {"items_per_step": 8, **({"item": item} if item else {})}
    return Outcome(tuple(replace(record, facts=facts) for record in outcome(step, **axes).records))


def throughput(*found: Outcome, per: str = "s") -> Table:
    return replace(lay_out(found, ["batch"], ["device"], "throughput"), per=per)


@pytest.mark.parametrize(
    ("per", "title", "cell"),
    [("s", "images per second", "4,000 /s ±"), ("min", "images per minute", "240,000 /min ±"),
     ("h", "images per hour", "14,400,000 /h ±"), ("day", "images per day", "346,000,000 /day ±")],
)  # fmt: skip
def test_a_throughput_is_counted_in_its_own_items_over_the_time_that_is_asked_for(
    per: str, title: str, cell: str
) -> None:
    table = throughput(counting("image"), per=per)
    text = render(table, "terminal")
    assert text.startswith(f"{title}\n")
    assert cell in text
    assert f"**{title}**" in render(table, "markdown")


def test_a_figure_that_names_no_items_counts_those_of_a_workload_whose_batch_is_made_of_them() -> None:
    assert str(api.table("mlp", value="throughput")).startswith("samples per second: mlp, infer, batch 128\n")
    assert str(api.table("bert-base", value="throughput")).startswith("items per second: bert-base\n"), "not tokens"


def test_items_that_differ_are_named_in_the_cells() -> None:
    found = (counting("token", batch=8), counting(None, batch=16), counting("B", batch=32))
    text = render(throughput(*found, per="min"), "terminal")
    assert text.startswith("items per minute\n")
    for unit in ("tokens/min", "samples/min", "B/min"):
        assert f"240,000 {unit} ±" in text


def test_programs_get_items_a_second_whatever_is_shown() -> None:
    daily = throughput(counting("image"), per="day")
    content = json.loads(render(daily, "json"))
    assert content["title"] == "items per second"
    assert content["cells"][0]["value"] == pytest.approx(4000, rel=0.01)
    assert render(daily, "csv") == render(throughput(counting("image")), "csv")


def test_a_time_to_count_over_is_for_a_throughput_and_asks_for_it(tmp_path: Path) -> None:
    path = exported(tmp_path, "mine.jsonl", counting("image"))
    assert str(api.table(path, per="h")).startswith("images per hour\n")
    with pytest.raises(UsageError, match="a throughput is counted, and step is none; omit --per"):
        api.table(path, value="step", per="h")
    with pytest.raises(UsageError, match="a throughput is counted, and speedup is none; omit --per"):
        api.table(path, by="device", per="h")
    with pytest.raises(UsageError, match=r"unknown time 'year'\. Possible: s, min, h, day"):
        api.table(path, per="year")


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
    monkeypatch.setattr(views, "window_width", lambda: 40)
    found = [outcome(0.002, batch=size, device=name) for size in (8, 16) for name in ("cpu", "mps")]
    table = lay_out(found, ["workload", "mode", "batch", "precision"], ["device"], "step")
    text = render(table, "terminal")
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("2.00 ms") == 4


PUBLISHED_CELLS = 62  # of bert-base


@pytest.mark.parametrize("columns", [80, 100, 130, NO_WINDOW])
def test_a_table_of_many_machines_is_one_screen_with_every_cell_and_note(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "window_width", lambda: columns)
    table = api.table("bert-base")
    lines = str(table).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= min(columns, views.WIDTH_IN_PIPES + 10)
    assert lines[0] == "time of one step: bert-base"
    times = [line.split()[3:] for line in lines if line.startswith(("train ", "infer "))]
    shown = [word for words in times for word in words if word == "-" or word.replace(".", "").isdecimal()]
    assert len(shown) == len(table.cells) == PUBLISHED_CELLS
    notes = {note for cell in table.cells.values() for note in cell.notes}
    assert sorted(line.partition("] ")[2] for line in lines if line.startswith("[")) == sorted(notes)


def test_in_a_narrow_window_a_table_is_no_longer_than_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "window_width", lambda: 40)
    text = str(api.table("bert-base"))
    assert max(map(len, text.splitlines())) <= 72, "notes, which the window breaks"
    assert text.count("\n") < 2 * PUBLISHED_CELLS


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_notes_are_numbered_in_the_order_of_reading(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "window_width", lambda: columns)
    notes = [("a", "b"), ("c",), ("b", "c", "a"), ("d", "a")]
    found = [with_notes(outcome(0.002, batch=8 + place // 2, device=("cpu", "mps")[place % 2]), *each)
             for place, each in enumerate(notes)]  # fmt: skip
    text = render(lay_out(found, ["workload", "batch"], ["device"], "step"), "terminal")
    marks = re.findall(r" \[([\d,]+)\]", text)
    assert all(mark.split(",") == sorted(mark.split(",")) for mark in marks)
    first_seen = list(dict.fromkeys(number for mark in marks for number in mark.split(",")))
    assert first_seen == ["1", "2", "3", "4"]
    assert [line[:3] for line in text.splitlines()[-4:]] == ["[1]", "[2]", "[3]", "[4]"]


def with_notes(found: Outcome, *notes: str) -> Outcome:
    warnings = tuple(Warning_(note, note) for note in notes)
    return Outcome(tuple(replace(record, warnings=warnings) for record in found.records))


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
    table = ResultTable(**vars(of_machine(SCRIPT)))._repr_html_()
    assert "<script>" not in table
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table
    sides = on_machine(outcome(0.004), SCRIPT), on_machine(outcome(0.002), "b")
    shown = Comparisons(compared([sides]))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_where_columns_do_not_fit_each_row_is_a_line_that_begins_with_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "window_width", lambda: 36)
    header, body = (
        ["", "measure", "here", "target", ""],
        [["2", "identical code called slower", "0 %", "<= 5 %", "met"]],
    )
    assert views.aligned(header, body, 2, "errors") == (
        "errors\n2, identical code called slower: here 0 %; target <= 5 %; met"
    )
    assert views.aligned(["batch", "a very long name of a device", ""], [["8", "1.0 ms ±0.01 % of it", ""]], 0) == (
        "batch 8; a very long name of a device 1.0 ms ±0.01 % of it"
    )
