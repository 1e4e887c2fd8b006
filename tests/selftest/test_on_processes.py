"""The measure of the headline: whether its intervals hold."""

from __future__ import annotations

import pytest
from tests.analysis.test_estimates_usual import processes

from mldyno.analysis.estimates import headline
from mldyno.selftest import on_processes
from mldyno.selftest.on_processes import MANY, SIZES, coverage, judged
from mldyno.stats.intervals import Variation


def test_every_case_is_judged_for_each_number_of_processes() -> None:
    rows = list(judged(processes(1, count=20, cases=3)))
    counts = {size: sum(row["processes"] == size for row in rows) for size in (*SIZES, MANY)}
    assert counts == {1: 60, 2: 30, 3: 18, 5: 12, 10: 6}
    assert all(row["half_width"] > 0 for row in rows)


def test_intervals_that_claim_too_much_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = headline

    def too_sure(*arguments: object) -> tuple[float, Variation]:
        value, error = honest(*arguments)  # type: ignore[arg-type]
        return value, Variation(error.variance / 16, error.freedom)

    monkeypatch.setattr(on_processes, "headline", too_sure)
    measure = coverage(13, list(judged(processes(2, count=45))))
    assert measure.ok is False
    assert measure.value < 0.8


def test_the_ten_processes_of_a_self_test_are_too_few_to_judge() -> None:
    measure = coverage(13, list(judged(processes(2, count=10, cases=1), (1,))))
    assert (measure.ok, measure.n) == (None, 10)
