"""Comparisons in words: no more is said than is known, and what holds for all is said once."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.analysis.made import met, outcome

from mldyno.analysis.answers import answers, rankings
from mldyno.analysis.comparisons import Claim, Comparison, compare, compared, geometric_mean
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.axes import unstated
from mldyno.records import Case, Fact, Warning_
from mldyno.store import figures
from mldyno.units import Interval
from mldyno.views.claims import (
    IN_A_CELL,
    Sentence,
    best_sizes,
    fastest_frameworks,
    footers,
    mean_sentence,
    sentence,
    span,
)
from mldyno.views.outcomes import trust, trust_line, trust_lines
from mldyno.views.screens import comparison_lines, statements

NO_INTERVALS = "published figures have no interval, so a ratio with one may be off by an unknown amount"
ROW = "lab,2026-01,{machine},cpu,torch,{workload},train,8,,fp32,device,1,{steps},loop_time,{value},s,ok,{note}"


def pair(workload: str, base: float, other: float, published: bool, note: str = "") -> Comparison:
    """The loop of 10 steps on two machines, one figure each."""
    rows = [
        ROW.format(machine=machine, workload=workload, steps=10, value=value, note=text)
        for machine, value, text in (("here", base, ""), ("there", other, note))
    ]
    text = io.StringIO("\n".join([",".join(figures.COLUMNS), *rows]))
    sides: list[Outcome] = outcomes(list(figures.read(text, "published" if published else "imported")))
    found = compare(sides[0], sides[1])
    assert found is not None
    return found


def test_that_a_published_figure_has_no_interval_is_said_once_below() -> None:
    several = [pair("a", 2.0, 1.0, True), pair("b", 1.0, 4.0, True)]
    assert [sentence(one) for one in several] == [
        "a, training, batch 8 on cpu: there (published) looks 2.00x faster than here (published) [separate runs]",
        "b, training, batch 8 on cpu: there (published) looks 4.00x slower than here (published) [separate runs]",
    ]
    assert mean_sentence(geometric_mean(several)) == (
        "geometric mean of 2 cases: there (published) looks 1.41x slower than here (published)"
    )
    assert footers(several) == [NO_INTERVALS]


def test_beside_a_published_figure_the_interval_is_called_our_own() -> None:
    theirs = pair("mlp", 0.0126, 0.02, True).base
    mine = outcome(0.00252, device="cpu")
    beside = compared([(mine, theirs)] * 2)
    said = sentence(beside[0])
    assert ": here (published) is 2.00x (1.99-2.01) faster than m [" in said
    assert said.endswith("[separate runs, own interval only]")
    assert mean_sentence(geometric_mean(beside)) == (
        "geometric mean of 2 cases: here (published) is 2.00x (1.99-2.01) faster than m, own interval only"
    )
    assert footers(beside) == [NO_INTERVALS]


def test_any_other_figure_without_an_interval_says_so_itself() -> None:
    several = [pair("a", 2.0, 1.0, False), pair("b", 2.0, 1.0, False)]
    assert sentence(several[0]) == (
        "a, training, batch 8 on cpu: there looks 2.00x faster than here; no interval "
        "[separate runs; too few samples for an interval]"
    )
    assert mean_sentence(geometric_mean(several)) == (
        "geometric mean of 2 cases: there looks 2.00x faster than here; no interval, since not each case has one"
    )
    assert footers(several) == []


def test_a_figure_that_is_doubted_is_marked_and_the_reason_stands_below_once() -> None:
    doubted = pair("a", 2.0, 1.0, True, note="suspect: the fan was off")
    assert sentence(doubted).endswith("[separate runs; suspect]")
    assert footers([doubted, doubted])[:-1] == ["suspect: there, a, training, batch 8 on cpu: the fan was off"]
    assert "2 cases, 1 of them doubtful: " in mean_sentence(geometric_mean([doubted, pair("b", 2.0, 1.0, True)]))


def warned(*codes: str) -> Outcome:
    good = outcome(1e-3)
    warnings = tuple(Warning_(code, "a message", "a hint") for code in codes)
    return Outcome(tuple(replace(record, facts={"warmup_steady": True}, warnings=warnings) for record in good.records))


def test_what_drifts_is_not_called_steady() -> None:
    assert trust(warned()).startswith("steady, ±")
    assert trust(warned("drifting", "contended")).startswith("not steady (drifting), ±")
    assert trust(warned("drifting", "contended")).endswith("; but contended")
    assert ", 1 steady" in trust_line([warned(), warned("two-modes")])


def test_a_few_outcomes_have_a_trust_line_each_and_many_one_for_all() -> None:
    assert len(trust_lines([warned("contended")] * 3)) == 3 + 1
    wide = outcome(1e-3, apart=0.9)
    assert "; known to ±100 % or more" in trust_line([wide]), "as a table shows it"
    gathered, meaning = trust_lines([warned("contended")] * 13)
    assert gathered.startswith("trust: 13 of 13 cases succeeded, 13 steady; known to ±")
    assert gathered.endswith("; but contended")
    assert meaning == "  contended: a message. Next: a hint."
    assert trust_line([warned("contended"), warned()]).endswith("; but contended (1)")


def test_of_messages_that_differ_only_in_numbers_two_are_printed() -> None:
    messages = ["it rose by 1.5 %", "it rose by 2.5 %", "it rose by 1,000 %", "it rose by 4 %", "it fell by 3 %"]
    good = outcome(1e-3)
    warnings = tuple(Warning_("drifting", message, "rest") for message in messages)
    shown = Outcome(tuple(replace(record, warnings=warnings) for record in good.records))
    assert trust_lines([shown])[1:] == [
        "  drifting: it rose by 1.5 % / it rose by 2.5 % (2 more like it) / it fell by 3 %. Next: rest."
    ]


def of_a_command(runs: int, *codes: str) -> Outcome:
    good = outcome(1e-3)
    series = tuple(replace(part, values=(1e-3,) * runs) for part in good.records[0].series)
    warnings = tuple(Warning_(code, "a message", "a hint") for code in codes)
    case = Case("sleep 1", framework="command")
    facts: dict[str, Fact] = {"end_to_end": True, "warmup_steady": None}
    return Outcome((replace(good.records[0], case=case, series=series, facts=facts, warnings=warnings),))


def test_thousands_of_runs_of_a_command_are_not_too_few() -> None:
    assert trust(of_a_command(4000)).startswith("steady, ±")
    assert trust(of_a_command(4000, "drifting")).startswith("not steady (drifting), ±")
    assert trust(of_a_command(4)).startswith("too few runs to judge if steady, ±")


def test_a_comparison_of_workloads_does_not_begin_with_one_of_them() -> None:
    (said,) = map(sentence, compared([(outcome(2e-3, workload="a.py@1"), outcome(1e-3, workload="a.py@2"))]))
    assert said.startswith("Training, batch 8 on cpu: a.py@2 is 2.00x")


def test_an_interval_of_no_width_is_not_a_missing_one() -> None:
    exact = outcome(1e-3, apart=0.0)
    assert exact.step is not None
    assert exact.step.half_width == 0
    assert trust_line([exact]).startswith("trust: 1 of 1 case succeeded, 0 steady; known to ±")


def test_the_best_of_several_sizes_is_named_by_its_items_a_second() -> None:
    sizes = [outcome(time, batch=batch, mode="infer") for batch, time in ((1, 1e-3), (8, 4e-3), (64, 64e-3))]
    several = compared([(sizes[0], sizes[1]), (sizes[0], sizes[2])])
    assert best_sizes(rankings(several, "batch"), "batch") == [
        "best of 3: batch 8, 2,000 items/s [MLP, inference on cpu]"
    ]
    said, _ = map(sentence, several)
    assert "batch 8 is 2.00x" in said
    assert "faster per item than batch 1" in said


def drifted(message: str, hint: str) -> Outcome:
    good = outcome(1e-3)
    return Outcome(tuple(replace(each, warnings=(Warning_("drifting", message, hint),)) for each in good.records))


def test_warnings_of_one_kind_with_other_cures_are_lines_of_their_own() -> None:
    up, down = drifted("rose by 5.0 %", "let it cool down"), drifted("fell by 24 %", "run it again")
    more = drifted("rose by 8.0 %", "let it cool down")
    assert trust_lines([up, down, more])[3:] == [
        "  drifting: rose by 5.0 % / rose by 8.0 %. Next: let it cool down.",
        "  drifting: fell by 24 %. Next: run it again.",
    ]


def test_of_two_commands_the_words_are_said_once() -> None:
    sides = [
        Outcome(tuple(replace(each, case=unstated(words, "command")) for each in outcome(step).records))
        for words, step in (("sleep 0.1", 0.1), ("sleep 0.2", 0.2))
    ]
    (said,) = map(sentence, compared([(sides[0], sides[1])]))
    assert said.startswith("sleep 0.2 is 2.0")
    assert " slower than sleep 0.1 [separate runs" in said


def test_two_runs_of_a_case_are_told_apart_by_their_dates() -> None:
    old, new = (
        Outcome(tuple(replace(each, created=f"{day}T09:30:00Z", run=replace(each.run, id=run))
                      for each in outcome(step).records))
        for day, run, step in (("2026-01-01", "r1", 1e-3), ("2026-01-02", "r2", 2e-3))
    )  # fmt: skip
    (said,) = map(sentence, compared([(old, new)]))
    assert "2026-01-02 09:30 UTC (run r2) is 2.0" in said
    assert " slower than 2026-01-01 09:30 UTC (run r1) [separate runs]" in said


def test_what_is_not_clear_is_said_plainly_with_its_interval_and_what_would_settle_it() -> None:
    base, other = met(outcome(2e-3), outcome(1.95e-3, precision="bf16"), noise=0.5)
    (said,) = map(sentence, compared([(base, other)]))
    assert re.fullmatch(
        r"MLP, training, batch 8 on cpu: no clear difference between bf16 and fp32 "
        r"\(the first is \d+ % slower to \d+ % faster\) \[paired, 48 rounds in one process; .+\]",
        said,
    )
    assert "looks" not in said
    far = Interval(0.9, 0.25, 1.002)
    assert span(far) == "4.0x slower to 0.20 % faster"
    assert span(Interval(0.1, 4e-11, 4.5e8)) == "over 1,000x slower to over 1,000x faster"


def test_the_best_size_is_the_one_that_won_head_to_head() -> None:
    """On a busy machine each alone may have been measured at another speed."""
    alone, paired = (
        [outcome(step, batch=batch, mode="infer") for batch, step in zip((1, 8, 64), steps, strict=True)]
        for steps in ((1e-3, 2e-3, 64e-3), (1e-3, 4e-3, 16e-3))
    )
    sizes = [Outcome(mine.records, rounds.pairings) for mine, rounds in zip(alone, met(*paired), strict=True)]
    (best,) = best_sizes(rankings(compared([(sizes[0], other) for other in sizes[1:]]), "batch"), "batch")
    assert best == "best of 3: batch 64, 1,000 items/s [MLP, inference on cpu]"
    lines = comparison_lines(sizes, answers(sizes), "batch")
    assert any(line.startswith("batch 64 and batch 8: their times in tables point the other way") for line in lines)


def test_sizes_as_good_as_the_best_are_named_with_it() -> None:
    sizes = met(*(outcome(time, batch=batch) for batch, time in ((1, 2e-3), (8, 8e-3), (16, 16.01e-3))), noise=0.004)
    (best,) = best_sizes(rankings(compared([(sizes[0], other) for other in sizes[1:]]), "batch"), "batch")
    assert best == "best of 3: batch 8, 1,000 items/s; batch 16 is equivalent (within 2.0 %) [MLP, training on cpu]"
    (best,) = best_sizes(rankings(compared([(sizes[0], sizes[1])]), "batch"), "batch")
    assert best == "best of 2: batch 8, 1,000 items/s [MLP, training on cpu]"


def alone_and_paired(alone: float, paired: float) -> list[Outcome]:
    """Two frameworks: the second takes so many times as long as the first, measured alone and in turns."""
    sides = met(outcome(1e-3), outcome(paired * 1e-3, precision="bf16"))
    times = outcome(1e-3), outcome(alone * 1e-3, precision="bf16")
    return [Outcome(own.records, turns.pairings) for own, turns in zip(times, sides, strict=True)]


@pytest.mark.parametrize(
    ("alone", "paired", "differ"),
    [(0.75, 1.3, True), (1.3, 0.75, True), (1.3, 1.0, True), (0.7, 1.0, True), (1.01, 1.0, False), (1.3, 1.1, False)],
)
def test_a_table_and_a_comparison_that_point_in_different_directions_say_why(
    alone: float, paired: float, differ: bool
) -> None:
    base, other = alone_and_paired(alone, paired)
    (comparison,) = compared([(base, other)])
    assert comparison.how.startswith("paired")
    lines = footers([comparison])
    assert len(lines) == differ
    if differ:
        assert lines[0].startswith(
            "bf16 and fp32: their times in tables point the other way, since each was measured alone"
        )
    assert [line for line in statements([base, other]) if line in lines] == lines, "a notebook says so too"


def in_frameworks(steps: Sequence[float], noise: float = 0.004) -> list[str]:
    names = ("torch", "jax", "tensorflow")
    sides = [outcome(step, framework=name) for name, step in zip(names, steps, strict=False)]
    proven = [Outcome(tuple(replace(each, facts={"proof": "1.0 2.0"}) for each in side.records)) for side in sides]
    base, *others = met(*proven, noise=noise)
    return fastest_frameworks(compared([(base, other) for other in others]))


def test_of_several_frameworks_the_fastest_is_named_only_if_it_is_clearly_so() -> None:
    work = "[MLP, training, batch 8 on cpu]"
    assert in_frameworks([2e-3, 1e-3]) == [], "two were compared in a sentence"
    (first,) = in_frameworks([2e-3, 3e-3, 1e-3])
    assert first.startswith("fastest of 3 frameworks: tensorflow, 2.00x (")
    assert in_frameworks([1e-3, 3e-3, 2e-3]) == [f"fastest of 3 frameworks: torch {work}"]
    (level,) = in_frameworks([2e-3, 3e-3, 2.01e-3])
    assert level == f"no clear winner of 3 frameworks: torch and tensorflow are equivalent (within 2.0 %) {work}"
    (open_,) = in_frameworks([2e-3, 5e-3, 1.95e-3], noise=0.5)
    assert open_ == f"no clear winner of 3 frameworks: tensorflow and torch are within noise of each other {work}"
    (behind,) = in_frameworks([2e-3, 1e-3, 1.001e-3])
    assert behind == f"no clear winner of 3 frameworks: jax and tensorflow are equivalent (within 2.0 %) {work}"


def test_a_sentence_keeps_its_evidence_apart_from_what_it_states() -> None:
    said = Sentence("bf16 is faster", "separate runs", "", "more --repeats", clear=False)
    assert said == "bf16 is faster [separate runs; more --repeats]"
    assert (said.text, said.notes, said.clear) == ("bf16 is faster", ("separate runs", "more --repeats"), False)
    assert said.only_separate
    assert not Sentence("both", "paired and separate runs").only_separate
    assert said.capitalised() == "Bf16 is faster [separate runs; more --repeats]"
    assert said.capitalised().notes == said.notes
    assert Sentence("no notes", "") == "no notes"


@pytest.mark.parametrize(
    ("speedup", "words"),
    [
        (Interval(2.0, 1.9, 2.1), "2.00x (1.90-2.10) faster"),
        (Interval(0.5, 0.4, 0.6), "2.0x (1.7-2.5) slower"),
        (Interval(1.0, 0.99, 1.01), "equivalent"),
        (Interval(1.1, 0.9, 1.3), "can't tell"),
        (Interval(2.0), "can't tell"),
    ],
)
def test_each_verdict_has_its_words(speedup: Interval, words: str) -> None:
    assert IN_A_CELL.of(Claim(speedup=speedup)) == words
