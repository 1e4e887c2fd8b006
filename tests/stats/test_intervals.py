"""The shared statistics against known values."""

from __future__ import annotations

import math
import random

import pytest

from mldyno.selftest import synthetic
from mldyno.stats.intervals import (
    autocorrelation,
    batch_half_width,
    batches,
    half_width,
    median,
    paired,
    quantile,
    student_t,
    trend,
)


@pytest.mark.parametrize(
    ("df", "critical"), [(1, 12.7062), (2, 4.3027), (7, 2.3646), (9, 2.2622), (11, 2.2010), (15, 2.1314), (100, 1.9840)]
)
def test_student_t_agrees_with_the_printed_tables(df: int, critical: float) -> None:
    assert student_t(df) == pytest.approx(critical, abs=5e-5)


def test_quantiles_interpolate() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_batches_keep_the_order_and_every_value() -> None:
    values = list(range(23))
    cut = batches(values, 8)
    assert [value for batch in cut for value in batch] == values
    assert {len(batch) for batch in cut} <= {2, 3}


def test_an_interval_of_independent_samples_covers_its_mean_as_often_as_it_says() -> None:
    chance = random.Random(3)
    hits = 0
    for _ in range(2000):
        sample = [chance.gauss(10, 2) for _ in range(8)]
        hits += abs(sum(sample) / 8 - 10) <= half_width(sample)
    assert 0.93 < hits / 2000 < 0.97


def test_batch_means_stay_honest_where_samples_are_correlated() -> None:
    chance = random.Random(4)
    naive = batched = 0
    for _ in range(400):
        level, series = 0.0, []
        for _ in range(400):
            level = 0.8 * level + chance.gauss(0, 0.6)
            series.append(10 + level)
        error = abs(sum(series) / 400 - 10)
        naive += error <= half_width(series)
        batched += error <= batch_half_width(series, 10)
    assert naive / 400 < 0.6
    assert batched / 400 > 0.88


def test_one_sample_has_no_interval() -> None:
    assert half_width([1.0]) == math.inf
    assert batch_half_width([1.0] * 7, 8) == math.inf


def test_a_trend_is_found_with_its_size_and_noise_is_not_one() -> None:
    z, change = trend([1 + 0.01 * i for i in range(20)])
    assert z > 5
    assert change == pytest.approx(0.19)
    chance = random.Random(5)
    false = sum(abs(trend([chance.gauss(1, 0.05) for _ in range(20)])[0]) > 2.58 for _ in range(500))
    assert false / 500 < 0.03


@pytest.mark.parametrize(("phi", "worth"), [(0.0, 192.0), (0.5, 64.0), (0.8, 21.3)])
def test_a_correlated_series_is_worth_fewer_independent_values(phi: float, worth: float) -> None:
    chance = random.Random(9)
    independent = [autocorrelation(synthetic.steps(chance, 192, phi, 0.1)).independent for _ in range(100)]
    assert median(independent) == pytest.approx(worth, rel=0.15)


def test_short_and_constant_series_resemble_nothing() -> None:
    assert autocorrelation([1.0, 2.0] * 5).inflation(8) == 1.0
    assert autocorrelation([1.0] * 100).inflation(8) == 1.0


def test_neighbouring_batches_widen_the_interval_only_where_they_are_alike() -> None:
    chance = random.Random(10)
    alone = autocorrelation(synthetic.steps(chance, 192, 0.0, 0.1)).inflation(12)
    alike = autocorrelation(synthetic.steps(chance, 192, 0.9, 0.1)).inflation(12)
    assert alone < 1.05
    assert alike > 1.2


def test_paired_rounds_give_the_ratio_and_an_interval_that_holds_it() -> None:
    chance, hits = random.Random(11), 0
    for _ in range(400):
        centre, width = paired(synthetic.log_ratios(chance, 192, 1.03, 0.8))
        hits += abs(centre - math.log(1.03)) <= width
    assert 0.92 <= hits / 400 <= 0.98


def test_few_paired_rounds_are_each_a_batch_and_one_has_no_interval() -> None:
    centre, width = paired([0.1, 0.2, 0.3])
    assert centre == pytest.approx(0.2)
    assert width == pytest.approx(half_width([0.1, 0.2, 0.3]))
    assert paired([0.1]) == (0.1, math.inf)
    assert paired([]) == (0.0, math.inf)
