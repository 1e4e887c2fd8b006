"""Scales, ticks and texts of charts."""

from __future__ import annotations

import math

import pytest

from mldyno.views.drawing import LETTER, SIZE, Scale, fitted, log_scale, log_ticks, round_steps, tick, uncrowded


def test_half_as_fast_is_as_far_from_one_as_twice_as_fast() -> None:
    scale = log_scale([0.5, 1.0, 2.0], [], 0, 100)
    assert scale.at(1.0) - scale.at(0.5) == pytest.approx(scale.at(2.0) - scale.at(1.0))
    assert (scale.at(1e-9), scale.at(1e9)) == (0, 100), "what is beyond lies at the edge"


def test_an_interval_of_any_width_leaves_the_values_apart() -> None:
    scale = log_scale([1.0, 2.0], [0.0, -5.0, math.inf], 0, 100)
    assert scale.at(2.0) - scale.at(1.0) > 20
    assert Scale(1.0, 1.0, 0, 100).at(1.0) == 50
    assert log_scale([1e-300, 1e300], [], 0, 100).ticks


def test_ticks_are_few_and_round() -> None:
    assert log_ticks(0.9, 12) == [1, 2, 5, 10]
    assert log_ticks(1, 1.6) == [1, 1.2, 1.4, 1.6]
    assert len(log_ticks(1e-6, 1e6)) <= 6
    assert round_steps(0, 100) == [0, 25, 50, 75, 100]
    assert round_steps(0.96, 1.04, 3) == pytest.approx([0.975, 1.0, 1.025])
    assert round_steps(3, 3) == [3]
    assert [tick(value) for value in (0.5, 20, 5000, 2e6)] == ["0.5", "20", "5k", "2M"]


def test_ticks_that_would_overlap_are_left_out() -> None:
    assert [text for _, text in uncrowded([(0, "0.1"), (10, "0.2"), (60, "0.5")])] == ["0.1", "0.5"]


def test_a_long_label_keeps_what_stands_behind_its_last_comma() -> None:
    assert fitted("M1 Max 10-core CPU 32-core GPU, mps", 20 * SIZE * LETTER + 1) == "M1 Max 10-core…, mps"
    assert fitted("short, mps", 1000) == "short, mps"
    assert fitted("words without any comma in them", 10 * SIZE * LETTER + 1) == "words wit…"
