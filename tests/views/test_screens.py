"""The screen that quick ends with: it fits, and the answer is in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.made import outcome
from tests.analysis.test_league import bert
from tests.analysis.test_scores import of_set
from tests.views.report.made_records import met, record

from mldyno.analysis.answers import verdicts
from mldyno.analysis.league import league
from mldyno.analysis.outcomes import outcomes
from mldyno.records import Case
from mldyno.store.figures import newest
from mldyno.views.screens import BAR, MOST_LINES, WIDTH, run_screen, screen

PUBLISHED = outcomes(newest())
MLP = outcome(1e-3, batch=128, mode="infer")


def shown(*notes: str) -> list[str]:
    ours = [bert(1.0), MLP, *of_set(1.0), *of_set(1.0, "infer")]
    return screen(ours, verdicts(ours, PUBLISHED), league(ours, PUBLISHED), notes, "report: r.html")


def test_the_screen_fits_24_lines_of_80_columns() -> None:
    lines = shown(*(f"note {number} " + "of many words " * 12 for number in range(9)))
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH


def test_machine_and_score_come_first_trust_and_report_last() -> None:
    lines = shown()
    assert lines[0].startswith("m")
    assert lines[1].startswith("score on cpu: training 100 (")
    assert ", inference 100 (" in lines[1]
    assert lines[-1] == "report: r.html"
    assert any(line.startswith("trust: ") for line in lines)


def test_a_longer_bar_is_faster_and_this_machine_stands_among_the_others() -> None:
    lines = shown()
    start = lines.index("BERT-base, inference, batch 16, 128 tokens, copied in")
    rows = [line for line in lines[start + 1 : start + 5] if line.startswith("  ")]
    lengths = [row.count("█") for row in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert any(row.strip().startswith("this machine, cpu") and "1.00 s ±0.50 % a step" in row for row in rows)


@pytest.mark.parametrize("setting", [("MLDYNO_PLAIN", "1"), ("COLUMNS", "60")])
def test_in_plain_text_and_in_a_narrow_window_there_are_no_bars(
    setting: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv(*setting)
    lines = shown()
    assert BAR not in "".join(lines)
    assert "  this machine, cpu: 1.00 s ±0.50 % a step" in lines


def test_no_more_than_four_sentences_are_said() -> None:
    assert sum(line.startswith("- ") for line in shown("one", "two", "three", "four", "five", "six")) == 4


def test_without_a_score_it_says_how_many_cases_are_missing() -> None:
    lines = screen([bert(1.0)], verdicts([bert(1.0)]), [], (), "report: r.html")
    assert lines[1] == "no score: 5 of its 6 cases have no time yet"


def test_a_failure_is_said_first() -> None:
    failed = outcome(1e-3, status="oom", reason="no memory left", batch=128, mode="train")
    ours = [failed, MLP]
    lines = screen(ours, verdicts(ours), [], (), "report: r.html")
    first = next(line for line in lines if line.startswith("- "))
    assert first == "- MLP, training, batch 128: oom: no memory left"


def test_cases_that_could_not_be_compared_head_to_head_are_named_once_with_the_reason() -> None:
    """Also where -q keeps the lines of a run's progress away."""
    cases = [Case("mlp", mode="infer", batch=128, precision=name) for name in ("fp32", "bf16")]
    alone = [record(case, 1e-3) for case in cases]
    ended = [replace(met(case, 1e-3, group), status="failed", reason="the worker was ended by SIGKILL")
             for group in (1, 2) for case in cases]  # fmt: skip
    lines = run_screen(outcomes([*alone, *ended]))
    names = "mlp/infer/torch/cpu/fp32/b128/device, mlp/infer/torch/cpu/bf16/b128/device"
    line = f"not compared head-to-head: {names}: failed: the worker was ended by SIGKILL"
    assert [each for each in lines if each.startswith("not compared")] == [line]
    assert not any(each.startswith("not compared") for each in run_screen(outcomes(alone)))
