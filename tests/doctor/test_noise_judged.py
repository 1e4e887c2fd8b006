"""Quiet, noisy or very noisy: from series whose noise is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from mldyno.doctor.noise import causes, judge
from mldyno.doctor.symptoms import Noise
from mldyno.stats.intervals import paired

BLOCKS = 4000


def series(slow: float, fast: float = 0.002, rise: float = 0.0) -> list[float]:
    """Times of 1 ms with noise of their own, and a level of 40 blocks each that varies too."""
    chance = random.Random(7)
    found: list[float] = []
    for phase in range(BLOCKS // 40):
        level = 1e-3 * max(0.2, chance.gauss(1.0, slow)) * (1 + rise * phase * 40 / BLOCKS)
        found += [level * max(0.2, chance.gauss(1.0, fast)) for _ in range(40)]
    return found


@pytest.mark.parametrize(("slow", "verdict"), [(0.003, "quiet"), (0.05, "noisy"), (0.25, "very noisy")])
def test_the_verdict_follows_the_variation(slow: float, verdict: str) -> None:
    found = judge(series(slow), 4.0, waiting=0.0, stolen=0.0)
    assert found.verdict == verdict
    assert found.variation == pytest.approx(slow, rel=0.3, abs=0.002)


def test_noise_of_single_blocks_does_not_count_against_a_machine() -> None:
    assert judge(series(0.0, fast=0.05), 4.0).verdict == "quiet"


@pytest.mark.parametrize(("waiting", "verdict"), [(0.01, "quiet"), (0.05, "noisy"), (0.2, "very noisy")])
def test_waiting_for_a_core_counts_alone(waiting: float, verdict: str) -> None:
    assert judge(series(0.0), 4.0, waiting=waiting).verdict == verdict


def test_time_that_the_host_takes_counts_alone() -> None:
    assert judge(series(0.0), 4.0, stolen=0.1).verdict == "very noisy"


def test_a_drift_is_found_with_its_size() -> None:
    found = judge(series(0.002, rise=0.2), 4.0)
    assert found.drift == pytest.approx(0.2, rel=0.2)
    assert found.verdict == "very noisy"


def test_two_speeds_are_found() -> None:
    values = series(0.0)
    mixed = [value * (1.5 if place // 400 % 2 else 1.0) for place, value in enumerate(values)]
    found = judge(mixed, 4.0)
    assert found.two_speeds == pytest.approx(0.5, rel=0.05)
    assert found.verdict == "very noisy"


def test_the_noisier_the_larger_is_the_difference_that_can_be_told_and_turns_tell_smaller_ones() -> None:
    found = [judge(series(slow), 4.0) for slow in (0.003, 0.03, 0.2)]
    for one in found:
        assert one.detectable_paired is not None
        assert one.detectable_separate is not None
        assert one.detectable_paired < one.detectable_separate
    assert all((a.detectable_separate or 0) < (b.detectable_separate or 0) for a, b in pairwise(found))


def test_a_difference_of_that_size_is_told_nearly_always() -> None:
    detectable = judge(series(0.03), 4.0).detectable_paired
    assert detectable is not None
    hits = 0
    for seed in range(40):
        chance = random.Random(seed)
        logs = [chance.gauss(detectable, 0.002 * 2**0.5) for _ in range(BLOCKS // 2)]
        centre, width = paired(logs)
        hits += centre - width > 0
    assert hits >= 38


def test_too_short_a_series_tells_no_difference() -> None:
    found = judge([1e-3, 1.1e-3, 1e-3], 0.01)
    assert found.detectable_separate is None
    assert found.verdict in ("quiet", "noisy", "very noisy")


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (judge(series(0.003), 4.0, waiting=0.3), ["the work waited for its core 30 % of the time"]),
        (judge(series(0.003), 4.0, waiting=0.05, stolen=0.1), ["the host took 10 % of the machine's time"]),
        (judge(series(0.0, rise=-0.2), 4.0, waiting=0.0), ["the same work became 21 % faster"]),
    ],
)
def test_a_verdict_names_the_figures_that_it_rests_on_and_no_others(noise: Noise, said: list[str]) -> None:
    assert noise.verdict == "very noisy"
    assert causes(noise) == said
    whole = replace(noise, variation=0.4, waiting=0.3)
    assert "the same work varied by 40 %" in causes(whole)
    assert "the work waited for its core 30 % of the time" in causes(whole)


def test_no_comparison_of_identical_work_goes_beyond_the_smallest_detectable_difference() -> None:
    chance = random.Random(3)
    for _ in range(5):
        values = [1e-3 * chance.lognormvariate(0.0, 0.02) * (1.02 if place // 400 % 5 == 4 and place % 2 else 1.0)
                  for place in range(BLOCKS)]  # fmt: skip
        detectable = judge(values, 4.0).detectable_paired
        assert detectable is not None
        assert detectable > 0.015, "in some comparisons one side was 2 % slower, for whatever reason"
        logs = [math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=True)]
        for start in range(0, len(logs), 200):
            centre, width = paired(logs[start : start + 200])
            assert abs(centre) + width <= math.log1p(detectable) + 1e-12


def test_what_is_told_apart_between_separate_runs_is_never_less_than_in_turns() -> None:
    found = judge(series(0.0, fast=0.1), 4.0)
    assert (found.detectable_separate or 0.0) >= (found.detectable_paired or 1.0)
