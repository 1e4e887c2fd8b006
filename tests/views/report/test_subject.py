"""A report of a store that has everything in it is about one machine, and says nothing that it can't know."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from tests.analysis.made import outcome
from tests.views.report.everything import ADA, GPT, HERE, LONG, ONNX, everything, imported, made
from tests.views.report.test_page_sections import subject

from mldyno.records import Case
from mldyno.store import figures
from mldyno.units import Interval
from mldyno.views.charts import NARROW, WIDE, Mark, Row, Rows, labels_in_lines
from mldyno.views.drawing import IN_PAGE
from mldyno.views.report.page import page, sections_of
from mldyno.views.report.parts import Bullets, Chart, Section
from mldyno.views.report.pictures import card_svg
from mldyno.views.report.subject import Subject
from mldyno.views.report.summary import Summary, summary
from mldyno.views.site.collection import collected, stems
from mldyno.views.site.pages import pages

IMPORTED = "Ada's M3 laptop (imported)"


@pytest.fixture(scope="module")
def whole() -> Subject:
    return subject(everything())


@pytest.fixture(scope="module")
def first(whole: Subject) -> Summary:
    return summary(whole)


@pytest.fixture(scope="module")
def sections(whole: Subject) -> dict[str, Section]:
    return {section.id: section for section in sections_of(whole)}


def charts(section: Section) -> dict[str, Any]:
    return {part.id: part for part in section.single_parts if isinstance(part, Chart)}


def rows_of(chart: Chart) -> dict[str, list[str]]:
    assert isinstance(chart.drawing, Rows)
    return {heading: [row.label for row in rows] for heading, rows in chart.drawing.groups}


def texts(svg: str) -> list[str]:
    return [unescape(re.sub("<[^>]+>", "", text)) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)]


def test_it_is_about_the_machine_that_was_measured_here(whole: Subject) -> None:
    assert whole.name == HERE.name
    assert {outcome.machine for outcome in whole.outcomes} == {HERE.name}
    assert {outcome.machine for outcome in whole.others} == {IMPORTED}
    text = page(whole, [])
    assert f"<h1>{HERE.name}</h1>" in text
    assert f"<title>{HERE.name}: measured by mldyno</title>" in text


def test_of_imports_alone_it_is_about_the_one_that_was_measured_last() -> None:
    later = [replace(each, created="2026-02-01T00:00:00Z") for each in made(Case("lstm", batch=8), 1e-3, "r", HERE)]
    for each in later:
        object.__setattr__(each, "imported_from", "later.jsonl")
    assert subject(imported()).name == IMPORTED
    assert subject([*later, *imported()]).name == f"{HERE.name} (imported)"


def test_of_a_case_that_was_measured_twice_the_newest_run_counts() -> None:
    case = Case("lstm", batch=8)
    older, newer = list(made(case, 2e-3, "r1")), list(made(case, 1e-3, "r2"))
    newer = [replace(each, created="2026-02-01T00:00:00Z") for each in newer]
    (outcome,) = subject([*newer, *older]).outcomes
    assert outcome.records[0].run.id == "r2"


def test_the_first_screen_compares_commands_of_one_run_only(first: Summary) -> None:
    assert len(first.sentences) == 3
    assert f"{LONG} 8 is 2.00x (2.00-2.01) faster than {LONG} 4" in first.sentences
    assert not any("sleep" in line or "ls /" in line for line in first.sentences)


def test_another_machine_is_compared_in_work_that_is_known_to_be_the_same(first: Summary) -> None:
    assert first.sentences[0].startswith(f"Geometric mean of 2 cases: {IMPORTED} is 2.4")
    assert first.sentences[0].endswith(f" faster than {HERE.name}")


def test_sides_that_took_no_turns_are_said_to_be_of_separate_runs() -> None:
    said = summary(subject(list(made(Case("mlp", batch=8), 2e-3, "r1")) + list(
        made(Case("mlp", batch=8, threads=1), 3e-3, "r2")))).sentences  # fmt: skip
    assert said[0].endswith("threads 1 (separate runs)")


def test_rows_of_the_league_are_told_apart_and_its_headings_hold_for_all_of_them(first: Summary) -> None:
    assert first.league is not None
    league = rows_of(first.league)
    assert next(iter(league)) == "MLP, inference, batch 128"
    ours = [label for label in league["MLP, inference, batch 128"] if label.startswith(HERE.name)]
    assert ours == [f"{HERE.name}, cpu, jax", f"{HERE.name}, cpu, torch", f"{HERE.name}, cpu, torch, 1 CPU thread"]
    assert not any("thread" in heading for heading in league)
    for labels in league.values():
        assert len(set(labels)) == len(labels)
    assert not any(name in label for labels in league.values() for label in labels for name in ("sleep", "train.py"))


def test_every_chart_of_a_ratio_names_the_base_of_its_bars(sections: dict[str, Section]) -> None:
    found = charts(sections["ways"])
    for name, base, labels in (("ratio-framework", "onnxruntime", ONNX), ("ratio-framework-2", "torch", "MLP, ")):
        chart = found[name]
        assert chart.title.split(" faster than ")[1].startswith(base)
        assert chart.about.startswith(f"Times as fast as {base} in the same work")
        assert chart.drawing.axis == f"times as fast as {base}, log scale"
        assert any(label.startswith(labels) for group in rows_of(chart).values() for label in group)
    assert not any(ONNX in label for group in rows_of(found["ratio-framework-2"]).values() for label in group)


def test_commands_and_loops_have_a_section_of_their_own(sections: dict[str, Section]) -> None:
    models = rows_of(charts(sections["speeds"])["speeds"])
    assert [*models] == ["Training", "Inference"]
    own = rows_of(charts(sections["own"])["own-speeds"])
    assert own == {"Your own commands": ["ls /", "sleep 0.1", f"{LONG} 8", f"{LONG} 4"],
                   "Your own loops": ["val, batch 32", "train, batch 32"]}  # fmt: skip
    assert not {label for labels in own.values() for label in labels} & {
        label for rows in models.values() for label in rows
    }
    (lines,) = [part.lines for part in sections["own"].parts if isinstance(part, Bullets)]
    assert len(lines) == 1
    assert lines[0].startswith(f"{LONG} 8 is 2.00x")


def test_what_has_no_items_is_counted_in_runs(sections: dict[str, Section]) -> None:
    (chart,) = charts(sections["own"]).values()
    numbers = {row.label: row.marks[-1].text for row in chart.drawing.rows}
    assert numbers["sleep 0.1"].endswith(" runs/s")
    assert numbers["val, batch 32"].endswith(" items/s")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_labels_are_whole_and_no_two_rows_look_the_same(
    whole: Subject, first: Summary, sections: dict[str, Section], width: int
) -> None:
    assert first.league is not None
    every = [first.league, *(chart for section in sections.values() for chart in charts(section).values())]
    for chart in every:
        if isinstance(chart.drawing, Rows):
            drawn = " ".join(texts(chart.drawing.draw(width, IN_PAGE).svg("")))
            assert "…" not in drawn, chart.id
            for heading, rows in chart.drawing.groups:
                assert heading in drawn
                for row in rows:
                    assert row.label in drawn, row.label


def test_labels_that_are_too_long_to_tell_apart_are_numbered() -> None:
    rows = [Row(f"{'a' * 150} {number} {'b' * 140}", [Mark(Interval(1.0), "1", "")]) for number in range(3)]
    lines = [tuple(each) for each in labels_in_lines([*rows, rows[1]], 300)]
    assert len(set(lines)) == 3
    assert lines[1] == lines[3]
    assert all(len(each) <= 3 for each in lines)


def test_the_card_has_one_name_and_labels_that_are_whole_and_distinct(whole: Subject) -> None:
    said = texts(card_svg(whole))
    assert said[1] == HERE.name
    assert not any("Ada" in text for text in said)
    labels = [text for text in said if text.startswith(("Training", "Inference"))]
    assert labels == ["Training, cpu", "Inference, cpu"]
    assert "In jax." in " ".join(said)
    assert Counter(said).most_common(1)[0][1] <= 2


def test_the_site_has_a_row_for_each_device_and_none_for_commands_and_loops() -> None:
    records = [*everything(), *figures.newest()]
    made_pages = dict(pages(collected(records, stems(records)), "0.1.0"))
    rows = [row for row in made_pages["index.html"].split("<tr") if HERE.name in row]
    assert len(rows) == 1
    assert "<td>cpu<small>" in rows[0]
    assert ", jax<" in rows[0], "the framework of the best score"
    assert sum(ADA.name.replace("'", "&#39;") in row for row in made_pages["index.html"].split("<tr")) == 1
    mine = next(text for path, text in made_pages.items() if path.startswith("machines/amd-epyc-2-cores-24") and
                path.endswith(".html"))  # fmt: skip
    assert "No score for" not in mine
    assert "tracked" not in re.sub(r"<small>[^<]*</small>", "", mine)
    assert GPT in mine
    assert "<small>ls /</small>" in mine, "as it was typed"
    assert not [path for path in made_pages if path.startswith(("work/ls-", "work/sleep-", "work/train-"))], "unranked"
    assert "ls /" not in made_pages["workloads.html"]


def test_a_machine_without_a_score_says_once_for_each_mode_what_the_fullest_framework_lacks() -> None:
    records = [each for each in everything() if each.case.workload != "resnet18"]
    made_pages = dict(pages(collected(records, stems(records)), "0.1.0"))
    mine = next(text for path, text in made_pages.items() if path.startswith("machines/amd") and path.endswith(".html"))
    assert re.findall(r"<li>(No score[^<]*)</li>", mine) == [
        "No score for training on cpu: 1 of its 3 cases missing.",
        "No score for inference on cpu: 1 of its 3 cases missing.",
    ]


def test_a_device_on_which_nothing_succeeded_has_no_colour_in_the_legend() -> None:
    good, absent = outcome(1e-3), outcome(1e-3, device="cuda:0", status="unsupported", reason="no device 'cuda:0' here")
    assert list(subject([*good.records, *absent.records]).colours) == ["cpu"]
    both = subject([*good.records, *outcome(1e-3, device="cuda:0").records])
    assert list(both.colours) == ["cpu", "cuda:0"]
