"""The sections of a report, as data: what is in them, what is left out, and that every number has its trust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.views.report.made_records import of_every_section, record

from mldyno.analysis.answers import headlines, verdicts
from mldyno.analysis.outcomes import outcomes, sample_count, trace
from mldyno.records import Case, Record
from mldyno.store import figures
from mldyno.views.charts import Rows, Samples
from mldyno.views.claims import Sentence
from mldyno.views.report.page import page_template, sections_of
from mldyno.views.report.parts import Bullets, Chart, Grid, Section
from mldyno.views.report.subject import Subject, subject_of


def subject(records: Sequence[Record]) -> Subject:
    return subject_of(outcomes(records), outcomes(figures.newest()), "2026-01-02T00:00:00Z", "0.1.0")


@pytest.fixture(scope="module")
def whole() -> dict[str, Section]:
    return {section.id: section for section in sections_of(subject(of_every_section()))}


def parts(section: Section, kind: type) -> list[Any]:
    return [part for part in section.single_parts if isinstance(part, kind)]


def lines(section: Section) -> list[str]:
    return [line for part in parts(section, Bullets) for line in part.lines]


def test_every_number_has_its_trust_line(whole: dict[str, Section]) -> None:
    (table,) = parts(whole["cases"], Grid)
    assert len(table.rows) == len(outcomes(of_every_section()))
    trust = [row[-1].text for row in table.rows]
    assert all(trust)
    assert "steady, ±" in trust[0]
    assert "oom: fake: out of memory" in trust
    (chart,) = parts(whole["speeds"], Chart)
    assert all("steady" in mark.hover for row in chart.drawing.rows for mark in row.marks)


def test_all_speeds_are_in_one_chart_by_training_and_inference_the_fastest_first(whole: dict[str, Section]) -> None:
    (chart,) = parts(whole["speeds"], Chart)
    assert [heading for heading, _ in chart.drawing.groups] == ["Training", "Inference"]
    assert {row.label for row in chart.drawing.rows} >= {"BERT-base, batch 64, 128 tokens", "MLP, batch 128, bf16"}
    for _, rows in chart.drawing.groups:
        fastest = [row.largest for row in rows]
        assert fastest == sorted(fastest, reverse=True)
    assert chart.drawing.legend == [("cpu", "s1"), ("cuda:0", "s2")]
    assert {len({mark.colour for mark in row.marks}) for row in chart.drawing.rows} == {1, 2}


def test_no_chart_has_a_single_mark(whole: dict[str, Section]) -> None:
    charts = [chart for section in whole.values() for chart in parts(section, Chart)]
    assert {chart.id.partition("-")[0] for chart in charts} == {
        "speeds", "ratio", "peak", "copies", "crossover", "growth", "trace"
    }  # fmt: skip
    for chart in charts:
        if isinstance(chart.drawing, Rows):
            assert sum(len(row.marks) for row in chart.drawing.rows) > 1


def test_a_grid_has_a_dash_where_memory_ran_out_and_colours_by_speed(whole: dict[str, Section]) -> None:
    tables = parts(whole["scaling"], Grid)
    grid = next(table for table in tables if table.caption == "BERT-base, training, cuda:0")
    assert grid.columns == ["batch", "32 tokens", "128 tokens", "512 tokens"]
    assert [row[0].text for row in grid.rows] == ["1", "4", "16", "64"]
    last = grid.rows[-1]
    assert last[3].text == "-"
    assert last[3].heat is None
    assert last[1].heat == 9
    assert grid.rows[0][1].heat == 0
    assert grid.rows[1][2].doubtful
    assert grid.notes == ["target-not-reached: not known to the ±2.0 % asked for"]


def test_what_drifts_comes_first_among_twelve_cases_over_time(whole: dict[str, Section]) -> None:
    charts = parts(whole["sure"], Chart)
    assert len(charts) == 12
    assert "two-modes" in charts[0].about or "drifting" in charts[0].about
    first = charts[0].drawing
    assert isinstance(first, Samples)
    assert {steady for _, steady, _, _ in first.dots} == {False, True}
    assert "Shown are 12 of 67 cases" in whole["sure"].lead


def test_a_section_with_nothing_to_say_is_left_out() -> None:
    found = [section.id for section in sections_of(subject([record(Case("lstm", batch=8), 1e-3)]))]
    assert found == ["sure", "cases", "method"]


def test_what_failed_is_said_in_words_and_by_its_id_in_the_table() -> None:
    found = {section.id: section for section in sections_of(subject([record(Case("lstm", batch=8), None)]))}
    assert "LSTM, training, batch 8 on cpu: oom: fake: out of memory" in lines(found["sure"])
    assert parts(found["cases"], Grid)[0].rows[0][0].text == "lstm/train/torch/cpu/fp32/b8/device"


def test_a_headline_is_the_number_that_the_verdicts_give() -> None:
    found = headlines(outcomes(of_every_section()))
    train = next(headline for headline in found if (headline.axis, headline.other.case.mode) == ("device", "train"))
    assert train == verdicts(outcomes(of_every_section())).devices[0]
    assert [comparison.other.case.batch for comparison in train.comparisons] == [64], "the largest on both"
    assert train.conclusive
    low, ratio, high = train.low, train.ratio, train.high
    assert low is not None
    assert high is not None
    assert low < ratio < high


def test_the_title_of_a_chart_says_what_was_found_and_its_section_says_it_too(whole: dict[str, Section]) -> None:
    (chart,) = parts(whole["ways"], Chart)
    assert chart.title.startswith("bf16 is 1.60x (")
    assert chart.title.endswith(" faster than fp32 in inference on cuda:0")
    assert sum("bf16 is worth it in inference on your GPU: 1.6" in line for line in lines(whole["ways"])) == 1
    every = outcomes(of_every_section())
    of_precisions = [headline for headline in headlines(every) if headline.axis == "precision"]
    assert {headline.other.case.device for headline in of_precisions} == {"cpu", "cuda:0"}
    assert {headline.ratio for headline in of_precisions} == {mean.ratio for mean in verdicts(every).precisions}


def test_sentences_have_titles_and_no_ids(whole: dict[str, Section]) -> None:
    for name in ("devices", "ways", "limits", "scaling"):
        assert lines(whole[name])
        assert not [line for line in lines(whole[name]) if "/train/" in line or "/infer/" in line]


def test_a_trace_is_thinned_evenly_and_keeps_its_ends() -> None:
    (outcome,) = outcomes([record(Case("mlp", batch=8), 1e-3, samples=500)])
    assert sample_count(outcome) == 507
    thin = trace(outcome, 50)
    assert len(thin) == 50
    everything = trace(outcome, 10_000)
    assert (thin[0], thin[-1]) == (everything[0], everything[-1])
    assert [sample.step for sample in everything][:3] == [1, 5, 9]


def test_the_evidence_of_a_sentence_is_small_and_brackets_in_a_name_are_not() -> None:
    items = str(
        page_template("parts.html").module.items([Sentence("a [1f] is faster", "paired", "20 rounds"), "b [2e]"])
    )
    assert items.splitlines() == ["<li>a [1f] is faster <small>[paired; 20 rounds]</small></li>", "<li>b [2e]</li>"]
