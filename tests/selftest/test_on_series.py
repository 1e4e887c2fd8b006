"""The measures on simulated series hold, and they fail where the product's statistics are spoilt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from mldyno.selftest import on_series
from mldyno.selftest.measures import Measure
from mldyno.stats import intervals, shapes
from mldyno.timing import stopping

SEED = 7


@pytest.mark.parametrize(
    ("measure", "series", "ok"),
    [
        (on_series.coverage, 40, None),
        (on_series.drift_found, 25, None),
        (on_series.drift_found, 50, True),
        (on_series.warm_up_bias, 20, None),
        (on_series.warm_up_bias, 100, True),
        (on_series.false_reached, 10, None),
        (on_series.false_reached, 25, True),
    ],
)
def test_the_measure_holds_where_it_can_be_judged_and_ticks_once_for_every_cell(
    measure: object, series: int, ok: bool | None
) -> None:
    ticks: list[int] = []
    found = measure(series, SEED, lambda: ticks.append(1))  # type: ignore[operator]
    assert isinstance(found, Measure)
    assert found.ok is ok, found
    assert all(cell.ok is not False for cell in found.cells if cell.counts)
    assert len(ticks) == len(found.cells)


def test_the_same_seed_gives_the_same_measure() -> None:
    assert on_series.coverage(10, 1) == on_series.coverage(10, 1)
    assert on_series.coverage(10, 1).cells != on_series.coverage(10, 2).cells


def test_coverage_fails_where_rounds_are_taken_for_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(logs: Sequence[float]) -> tuple[float, float]:
        return intervals.mean(logs), intervals.half_width(logs)

    monkeypatch.setattr(intervals, "paired", naive)
    found = on_series.coverage(60, SEED)
    assert found.ok is False
    assert found.value < 0.8


def test_coverage_fails_where_intervals_are_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_series, "COVERAGE", on_series.COVERAGE[8:9])
    monkeypatch.setattr(intervals, "paired", lambda logs: (math.log(1.03), math.inf))
    assert on_series.coverage(1000, SEED).ok is False


def test_drift_fails_where_none_is_found_and_where_it_is_seen_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "drift", lambda values: None)
    assert on_series.drift_found(20, SEED).ok is False
    monkeypatch.setattr(shapes, "drift", lambda values: shapes.Drift(0.05, 3.0, None))
    assert on_series.drift_found(20, SEED).ok is False


def test_warm_up_fails_where_everything_counts_as_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "settled_from", lambda values: 0)
    found = on_series.warm_up_bias(20, SEED)
    assert found.ok is False
    assert found.value > 0.015


def test_warm_up_fails_where_everything_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "settled_from", lambda values: None)
    assert on_series.warm_up_bias(20, SEED).ok is False


def test_false_claims_show_where_samples_are_taken_for_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(values: Sequence[float]) -> float:
        return intervals.half_width(values) / intervals.mean(values)

    monkeypatch.setattr(stopping, "relative_half_width", naive)
    found = on_series.false_reached(40, SEED)
    assert found.ok is False
    assert found.value > 0.2
