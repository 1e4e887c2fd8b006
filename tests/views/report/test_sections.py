"""The sections of a report, as data: what is in them, what is left out, and that every number has its trust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.views.report.made_records import of_every_section, record

from mldyno.analysis.answers import headlines, verdicts
from mldyno.analysis.outcomes import outcomes
from mldyno.analysis.traces import sample_count, trace
from mldyno.records import Case, Record
from mldyno.store import reference
from mldyno.views.charts import log_ticks
from mldyno.views.report.card import wrapped
from mldyno.views.report.parts import Chart, Grid, Paragraphs, Section, Traces
from mldyno.views.report.sections import sections_of
from mldyno.views.report.subject import Subject


def subject(records: Sequence[Record]) -> Subject:
    return Subject(outcomes(records), outcomes(reference.newest()), "2026-01-02T00:00:00Z", "0.1.0")


@pytest.fixture(scope="module")
def whole() -> dict[str, Section]:
    return {one.id: one for one in sections_of(subject(of_every_section()))}


def part(section: Section, kind: type) -> Any:
    return next(one for one in section.parts if isinstance(one, kind))


def test_every_number_has_its_trust_line(whole: dict[str, Section]) -> None:
    table = part(whole["cases"], Grid)
    assert len(table.rows) == len(outcomes(of_every_section()))
    trust = [row[-1].text for row in table.rows]
    assert all(trust)
    assert "steady, ±" in trust[0]
    assert any(one == "oom: fake: out of memory" for one in trust)
    rows = part(whole["durations"], Chart).spec["layer"][0]["data"]["values"]
    assert all(row["trust"] for row in rows)


def test_a_grid_has_a_dash_where_memory_ran_out_and_colours_by_speed(whole: dict[str, Section]) -> None:
    tables = [one for one in whole["grids"].parts if isinstance(one, Grid)]
    grid = next(one for one in tables if one.caption.startswith("bert-base training") and "cuda" in one.caption)
    assert grid.columns == ["batch", "seq 32", "seq 128", "seq 512"]
    assert [row[0].text for row in grid.rows] == ["1", "4", "16", "64"]
    last = grid.rows[-1]
    assert last[3].text == "-"
    assert last[3].heat is None
    assert last[1].heat == 9
    assert grid.rows[0][1].heat == 0
    assert grid.rows[1][2].doubtful
    assert grid.notes == ["target-not-reached: not known to the ±2.0 % asked for"]


def test_published_machines_are_marked(whole: dict[str, Section]) -> None:
    chart = part(whole["published"], Chart)
    rows = next(layer["data"]["values"] for layer in [chart.spec, *chart.spec["layer"]] if "data" in layer)
    assert {row["side"] for row in rows} == {"measured", "published"}
    assert all("(published)" in line for line in part(whole["published"], Paragraphs).lines)


def test_what_drifts_comes_first_in_the_traces(whole: dict[str, Section]) -> None:
    first = part(whole["traces"], Traces).traces[0]
    assert "two-modes" in first["caption"] or "drifting" in first["caption"]
    assert {row[1] for row in first["rows"]} == {0, 1}


def test_a_section_with_nothing_to_show_is_left_out() -> None:
    found = [one.id for one in sections_of(subject([record(Case("lstm", batch=8), 1e-3)]))]
    assert found == ["verdicts", "machine", "durations", "traces", "cases", "method"]


def test_without_any_time_the_report_says_so() -> None:
    found = {one.id: one for one in sections_of(subject([record(Case("lstm", batch=8), None)]))}
    assert "No case has a time" in found["durations"].lead
    assert part(found["verdicts"], Paragraphs).lines == [
        "lstm/train/torch/cpu/fp32/b8/device: oom: fake: out of memory"
    ]


def test_a_headline_is_the_number_that_the_verdicts_give() -> None:
    found = headlines(outcomes(of_every_section()))
    train = next(one for one in found if (one.axis, one.case.mode) == ("device", "train"))
    assert train.mean == verdicts(outcomes(of_every_section())).devices[0]
    assert [one.other.case.batch for one in train.mean.comparisons] == [64], "the largest that fits on both"
    assert train.sure
    low, ratio, high = train.mean.low, train.mean.ratio, train.mean.high
    assert low is not None
    assert high is not None
    assert low < ratio < high


def test_a_precision_has_the_number_of_its_device_in_headlines_and_verdicts(whole: dict[str, Section]) -> None:
    every = outcomes(of_every_section())
    of_precisions = [one for one in headlines(every) if one.axis == "precision"]
    assert {one.case.device for one in of_precisions} == {"cpu", "cuda:0"}
    assert {one.mean.ratio for one in of_precisions} == {mean.ratio for mean in verdicts(every).precisions}
    lines = part(whole["verdicts"], Paragraphs).lines
    assert sum("bf16 is worth it in inference on your GPU: 1.6" in line for line in lines) == 1


def test_a_question_is_answered_in_one_sentence(whole: dict[str, Section]) -> None:
    lines = part(whole["verdicts"], Paragraphs).lines
    about_batches = [line for line in lines if "bert-base" in line and "batch" in line.lower() and "cuda" in line]
    assert about_batches == [], "the machine's own sentence about small batches says it"


def test_a_trace_is_thinned_evenly_and_keeps_its_ends() -> None:
    one = outcomes([record(Case("mlp", batch=8), 1e-3, samples=500)])[0]
    assert sample_count(one) == 507
    thin = trace(one, 50)
    assert len(thin) == 50
    everything = trace(one, 10_000)
    assert (thin[0], thin[-1]) == (everything[0], everything[-1])
    assert [sample.step for sample in everything][:3] == [1, 5, 9]


def test_ticks_of_a_logarithmic_axis_are_few_and_round() -> None:
    assert log_ticks(0.9, 12) == [1, 2, 5, 10]
    assert log_ticks(1, 1.6) == [1, 1.5]
    assert len(log_ticks(1e-6, 1e6)) <= 6


def test_text_of_a_card_ends_in_an_ellipsis_where_it_does_not_fit() -> None:
    assert wrapped("a b", 20, 100, 1) == ["a b"]
    assert wrapped("long words " * 20, 20, 300, 2)[-1].endswith("…")
