"""Comparisons in words: no more is said than is known, and what holds for all is said once."""

from __future__ import annotations

import io
from dataclasses import replace

from tests.analysis.made import outcome

from mldyno.analysis.comparisons import Comparison, compare, compared, geometric_mean
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.records import Warning_
from mldyno.store import figures
from mldyno.views.sentences import best_sizes, footers, mean_sentence, sentence, trust, trust_summary

ROW = "lab,2026-01,{machine},cpu,torch,{workload},train,8,,fp32,device,1,{steps},loop_time,{value},s,ok,{note}"


def pair(workload: str, base: float, other: float, published: bool, note: str = "") -> Comparison:
    """The loop of 10 steps on two machines, one figure each."""
    rows = [
        ROW.format(machine=machine, workload=workload, steps=10, value=value, note=text)
        for machine, value, text in (("here", base, ""), ("there", other, note))
    ]
    text = io.StringIO("\n".join([",".join(figures.COLUMNS), *rows]))
    sides: list[Outcome] = outcomes(list(figures.read(text, "published" if published else "imported")))
    found = compare(*sides)
    assert found is not None
    return found


def test_that_a_published_figure_has_no_interval_is_said_once_below() -> None:
    several = [pair("a", 2.0, 1.0, True), pair("b", 1.0, 4.0, True)]
    assert [sentence(one) for one in several] == [
        "a/train/torch/cpu/fp32/b8/device: there (published) looks 2.00x faster than here (published) [separate runs]",
        "b/train/torch/cpu/fp32/b8/device: there (published) looks 4.00x slower than here (published) [separate runs]",
    ]
    assert mean_sentence(geometric_mean(several)) == (
        "geometric mean of 2 cases: there (published) looks 1.41x slower than here (published)"
    )
    assert footers(several) == ["a published figure has no interval: how far off a factor with one may be is not known"]


def test_any_other_figure_without_an_interval_says_so_itself() -> None:
    several = [pair("a", 2.0, 1.0, False), pair("b", 2.0, 1.0, False)]
    assert sentence(several[0]) == (
        "a/train/torch/cpu/fp32/b8/device: there looks 2.00x faster than here; no interval "
        "[separate runs; too few samples for an interval]"
    )
    assert mean_sentence(geometric_mean(several)) == (
        "geometric mean of 2 cases: there looks 2.00x faster than here; no interval, since not each case has one"
    )
    assert footers(several) == []


def test_a_figure_that_is_doubted_is_marked_and_the_reason_stands_below_once() -> None:
    doubted = pair("a", 2.0, 1.0, True, note="suspect: the fan was off")
    assert sentence(doubted).endswith("[separate runs; suspect]")
    assert footers([doubted, doubted])[:-1] == ["suspect: there, a/train/torch/cpu/fp32/b8/device: the fan was off"]
    assert "2 cases, 1 of them doubtful: " in mean_sentence(geometric_mean([doubted, pair("b", 2.0, 1.0, True)]))


def warned(*codes: str) -> Outcome:
    good = outcome(1e-3)
    warnings = tuple(Warning_(code, "a message", "a hint") for code in codes)
    return Outcome(tuple(replace(record, facts={"warmup_steady": True}, warnings=warnings) for record in good.records))


def test_what_drifts_is_not_called_steady() -> None:
    assert trust(warned()).startswith("steady, ±")
    assert trust(warned("drifting", "contended")).startswith("not steady (drifting), ±")
    assert trust(warned("drifting", "contended")).endswith("; but contended")
    assert ", 1 of them surely steady" in trust_summary([warned(), warned("two-modes")])[0]


def test_an_interval_of_no_width_is_not_a_missing_one() -> None:
    exact = outcome(1e-3, apart=0.0)
    assert exact.step is not None
    assert exact.step.half_width == 0
    assert trust_summary([exact])[0].startswith("trust: 1 of 1 case succeeded, 0 of them surely steady; known to ±")
    assert "without an interval" not in trust_summary([exact])[0]


def test_the_best_of_several_sizes_is_named_by_its_items_a_second() -> None:
    sizes = [outcome(time, batch=batch, mode="infer") for batch, time in ((1, 1e-3), (8, 4e-3), (64, 64e-3))]
    assert best_sizes(sizes, "batch") == ["best of 3: batch 8, 2,000 items/s [mlp/infer/torch/cpu/fp32/b8/device]"]
    (said,) = map(sentence, compared([(sizes[0], sizes[1])]))
    assert "batch 8 is 2.00x" in said
    assert "faster per item than batch 1" in said
