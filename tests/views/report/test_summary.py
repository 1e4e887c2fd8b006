"""The first screen: scores or why there are none, the league, and three sentences at most."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.views.report.made_records import BENCH, of_every_section, record
from tests.views.report.test_page_sections import subject

from mldyno.analysis.scores import reference
from mldyno.axes import unstated
from mldyno.records import Case, Machine, Record
from mldyno.views.charts import Rows
from mldyno.views.report.summary import summary
from mldyno.views.titles import workload_title


def of_the_set(device: str = "cpu", machine: Machine = BENCH, rounds: int = 3) -> list[Record]:
    """Every case that makes the score, a tenth faster than the machine that is 100."""
    cases = [(replace(case, device=device), 1 / rate / 1.1) for case, rate in reference().rates.items()]
    return [record(case, step, machine, round_) for case, step in cases for round_ in range(rounds)]


def test_scores_stand_with_their_intervals_and_what_100_is() -> None:
    first = summary(subject(of_the_set()))
    assert [score.about for score in first.scores] == ["Training, cpu", "Inference, cpu"]
    assert first.scores[0].number in ("109", "110")
    low, high = map(int, first.scores[0].ends.split("-"))
    assert low < 110 < high + 1
    assert first.note == f"100 is {reference().machine}; version {reference().version} of the set."


def test_a_set_that_is_not_whole_has_no_score_and_a_short_line_says_what_is_missing() -> None:
    training = [case.workload for case in reference().rates if case.mode == "train"]
    some = [each for each in of_the_set() if (each.case.mode, each.case.workload) != ("train", training[0])]
    first = summary(subject(some))
    assert [score.about for score in first.scores] == ["Inference, cpu"]
    missing = f"Missing for a score: {workload_title(training[0])} in training. `mldyno quick` measures all."
    assert first.note.endswith(missing)
    assert summary(subject([record(Case("lstm", batch=8), 1e-3)])).note == "", "nothing of the set was asked for"


def test_the_league_has_this_machine_among_published_ones_in_each_kind_of_work() -> None:
    league = summary(subject(of_every_section())).league
    assert league is not None
    assert league.title == "Faster than 5 of 9 others in the same work"
    assert isinstance(league.drawing, Rows)
    assert [heading for heading, _ in league.drawing.groups] == [
        "MLP, inference, batch 128", "BERT-base, training, batch 16, 128 tokens, copied in"
    ]  # fmt: skip
    for _, rows in league.drawing.groups:
        assert [row.label.partition(",")[0] for row in rows if row.strong] in (["bench", "bench"], ["bench"])
        values = [row.marks[0].number.value for row in rows]
        assert values == sorted(values, reverse=True)
        assert [row.marks[0].hollow for row in rows] == [not row.strong for row in rows], "published: no interval"
    assert isinstance(league.narrow, Rows)
    assert len(league.narrow.rows) < len(league.drawing.rows), "a phone shows fewer"


def test_an_imported_machine_is_one_of_the_others() -> None:
    elsewhere = replace(BENCH, name="elsewhere")
    there = [record(Case("lstm", batch=8), 2e-3, elsewhere, round_) for round_ in range(3)]
    for each in there:
        object.__setattr__(each, "imported_from", "theirs.html")
    here = [record(Case("lstm", batch=8), 1e-3, BENCH, round_) for round_ in range(3)]
    league = summary(subject([*here, *there])).league
    assert league is not None
    assert isinstance(league.drawing, Rows)
    assert [(row.label, row.strong) for row in league.drawing.rows] == [
        ("bench, cpu", True), ("elsewhere (imported), cpu", False)
    ]  # fmt: skip
    assert league.title == "Faster than the one other in the same work"


@pytest.mark.parametrize(("step", "title"), [
    (1.005e-3, "About as fast as the one other in the same work"),
    (2e-3, "Faster than the one other in the same work"),
    (0.5e-3, "Slower than the one other in the same work"),
])  # fmt: skip
def test_a_machine_within_the_interval_is_about_as_fast(step: float, title: str) -> None:
    elsewhere = replace(BENCH, name="elsewhere")
    there = [record(Case("lstm", batch=8), step, elsewhere, round_) for round_ in range(3)]
    here = [record(Case("lstm", batch=8), 1e-3, BENCH, round_) for round_ in range(3)]
    for each in there:
        object.__setattr__(each, "imported_from", "theirs.html")
    league = summary(subject([*here, *there])).league
    assert league is not None
    assert league.title == title


def test_of_several_machines_this_one_is_spoken_of() -> None:
    elsewhere = replace(BENCH, name="elsewhere")
    there = of_every_section(elsewhere)
    for each in there:
        object.__setattr__(each, "imported_from", "theirs.html")
    said = summary(subject([*of_every_section(), *there])).sentences
    assert said[0].startswith("Your GPU trains 1"), "the two are equally fast, which can't be told"


def test_three_sentences_at_most_of_each_question_the_clearest_first() -> None:
    said = summary(subject(of_every_section())).sentences
    assert len(said) == 3
    assert said[0].startswith("Your GPU trains 1")
    assert said[1].startswith("bf16 is worth it in inference on your GPU: 1.6")
    assert said[2].startswith("Small batches are faster on your CPU: BERT-base training (32 tokens)")
    assert not any("[" in line or "/" in line for line in said)


def test_an_open_question_is_left_out_beside_a_clear_answer() -> None:
    fast, even = Case("mlp", batch=8), Case("lstm", batch=8)
    open_ = [
        each
        for case in (even, replace(even, compile=True))
        for each in (record(case, 1e-3), record(case, 3e-3, round_=1))
    ]
    said = summary(subject(open_)).sentences
    assert any("no clear difference" in line for line in said), said
    clear = [
        record(case, step, round_=number)
        for case, step in ((fast, 2e-3), (replace(fast, compile=True), 1e-3))
        for number in range(3)
    ]
    said = summary(subject([*open_, *clear])).sentences
    assert any("faster" in line for line in said)
    assert not any("no clear difference" in line for line in said), said


def test_a_single_case_is_said_with_its_time() -> None:
    said = summary(subject([record(Case("lstm", batch=8), 1e-3)])).sentences
    assert said[0].startswith("LSTM, training, batch 8 on cpu: ")
    assert " ms a step ±" in said[0]


def test_without_any_time_the_report_says_so_first() -> None:
    said = summary(subject([record(Case("lstm", batch=8), None)])).sentences
    assert said == ["LSTM, training, batch 8 on cpu: oom: fake: out of memory"]


def test_others_are_held_against_what_they_count_too() -> None:
    tokens = [record(Case("bert-base", mode="infer", batch=16, seq=128, placement="host"), 2.0, round_=round_,
                     items_per_step=2048, item="token") for round_ in range(3)]  # fmt: skip
    league = summary(subject(tokens)).league
    assert league is not None
    assert isinstance(league.drawing, Rows)
    assert [row.marks[0].text for row in league.drawing.rows if row.strong] == ["7.96/s"], "about 16 sequences in 2 s"


def test_commands_are_held_against_each_other_and_have_no_device() -> None:
    commands = [replace(unstated(words, "command"), device="cpu") for words in ("sleep 1", "sleep 2")]
    took = [record(case, step, round_=round_) for case, step in zip(commands, (1.0, 2.0), strict=True)
            for round_ in range(3)]  # fmt: skip
    (said,) = summary(subject(took)).sentences
    assert said.startswith("sleep 2 is 2.0")
    assert said.endswith(" slower than sleep 1 (separate runs)"), "they took no turns"
