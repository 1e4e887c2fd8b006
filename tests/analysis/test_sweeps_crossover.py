"""Where one beats the other: found where it is known to be, with an interval that holds it, or said not to be known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.made import met, outcome

from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.sweeps import Crossing, Crossover, Point, crossings, crossovers
from mldyno.stats.intervals import half_width, mean

SIZES = [2**n for n in range(9)]


def points(log_ratio: Callable[[float], float], width: float = 0.01, sizes: list[int] = SIZES) -> list[Point]:
    return [Point(size, log_ratio(size), width) for size in sizes]


def launched(launch: float, rate: float = 0.1) -> Callable[[float], float]:
    """The log-ratio of a plain device to one with a launch cost and a rate: equal at launch / (1 - rate)."""
    return lambda size: math.log(size / (launch + rate * size))


def the_one(found: list[Crossing]) -> Crossing:
    assert len(found) == 1, found
    return found[0]


def test_where_the_logarithms_lie_on_a_line_the_crossing_is_exact() -> None:
    found = the_one(crossings(points(lambda size: math.log(size / 5))))
    assert found.value == pytest.approx(5, rel=1e-9)
    assert found.low == pytest.approx(5 * math.exp(-0.01), rel=1e-6)
    assert found.high == pytest.approx(5 * math.exp(0.01), rel=1e-6)
    assert (found.below, found.above, found.winner) == (4, 8, 1)


@pytest.mark.parametrize("launch", [1.7, 5.0, 11.0, 60.0])
def test_a_line_that_bends_is_followed_closely_and_the_interval_allows_for_it(launch: float) -> None:
    truth = launch / 0.9
    found = the_one(crossings(points(launched(launch), width=0.0)))
    assert found.value == pytest.approx(truth, rel=0.02)
    assert found.low <= truth <= found.high
    assert found.high / found.low < 1.1


def test_a_device_that_wins_only_below_is_told_as_such() -> None:
    found = the_one(crossings(points(lambda size: math.log(20 / size))))
    assert found.value == pytest.approx(20, rel=1e-9)
    assert found.winner == -1
    assert found.low < 20 < found.high


def test_sizes_that_can_not_be_told_apart_widen_the_interval_over_all_of_them() -> None:
    ratios = [-0.8, -0.4, 0.02, -0.01, 0.03, 0.5, 0.9]
    found = the_one(crossings([Point(2**n, ratio, 0.1) for n, ratio in enumerate(ratios)]))
    assert (found.below, found.above) == (2, 32)
    assert found.low < 4
    assert found.high > 16
    assert 3.5 < found.value < 18


def test_a_ratio_that_turns_back_crosses_twice() -> None:
    found = crossings([Point(2**n, ratio, 0.05) for n, ratio in enumerate([-0.6, -0.2, 0.3, 0.4, -0.3, -0.5])])
    assert [one.winner for one in found] == [1, -1]
    assert found[0].high < found[1].low


def test_two_sizes_are_enough_and_their_line_is_straight() -> None:
    found = the_one(crossings([Point(4, -0.2, 0.02), Point(16, 0.2, 0.02)]))
    assert found.value == pytest.approx(8)
    assert found.low == pytest.approx(8 * 4 ** (-0.02 / 0.4))


@pytest.mark.parametrize("ratios", [(0.1, 0.2, 0.3), (-0.3, -0.2, -0.1), (-0.3, 0.005, -0.2), (0.001, 0.0, -0.001)])
def test_where_no_verdict_turns_there_is_no_crossing(ratios: tuple[float, ...]) -> None:
    assert crossings([Point(2**n, ratio, 0.01) for n, ratio in enumerate(ratios)]) == []


def swept(chance: random.Random, launch: float, noise: float) -> list[Point]:
    """A sweep of a known truth, as three processes at each size see it."""
    found = []
    for size in SIZES:
        seen = [launched(launch)(size) + chance.gauss(0, noise) for _ in range(3)]
        found.append(Point(size, mean(seen), half_width(seen)))
    return found


@pytest.mark.parametrize("noise", [1e-5, 0.003, 0.02, 0.08])
def test_the_interval_holds_the_truth_at_least_as_often_as_it_says(noise: float) -> None:
    chance, sweeps, held, wide = random.Random(1), 300, 0, []
    for _ in range(sweeps):
        launch = math.exp(chance.uniform(math.log(2.5), math.log(60)))
        found = crossings(swept(chance, launch, noise))
        held += len(found) == 1 and found[0].low <= launch / 0.9 <= found[0].high
        wide += [math.log(one.high / one.low) for one in found]
    assert held / sweeps >= 0.94
    assert mean(wide) < 0.05 + 8 * noise, "and it is no wider than the noise makes it"


# -- from outcomes -------------------------------------------------------------------------------


def sweep(steps: dict[int, tuple[float, float]], **axes: Any) -> list[Outcome]:
    """The CPU and an accelerator at sizes, each pair in a paired comparison."""
    found = []
    for group, (size, times) in enumerate(steps.items()):
        sides = [
            outcome(time, batch=size, device=name, **axes) for name, time in zip(("cpu", "mps"), times, strict=True)
        ]
        found += met(*sides, group=group)
    return found


def only(outcomes: list[Outcome]) -> Crossover:
    (found,) = crossovers(outcomes)
    return found


def test_a_sweep_of_outcomes_gives_its_crossing_from_paired_comparisons() -> None:
    found = only(sweep({size: (size * 1e-3, 5e-3) for size in (1, 2, 4, 8, 16)}))
    assert (found.axis, found.over, found.base, found.other, found.verdict) == (
        "device",
        "batch",
        "cpu",
        "mps",
        "crosses",
    )
    assert found.crossings[0].value == pytest.approx(5, rel=0.01)
    assert all(one.how.startswith("paired") for one in found.comparisons)


@pytest.mark.parametrize(
    ("accelerator", "verdict"),
    [(lambda size: 0.5 * size, "always"), (lambda size: 2 * size, "never"), (lambda size: size, "equivalent"),
     (lambda size: 2 * size if size < 4 else size, "open")],
)  # fmt: skip
def test_what_does_not_cross_has_a_verdict_too(accelerator: Callable[[float], float], verdict: str) -> None:
    found = only(sweep({size: (size * 1e-3, accelerator(size) * 1e-3) for size in (1, 2, 4, 8)}))
    assert (found.verdict, found.crossings) == (verdict, [])


def test_what_did_not_come_out_well_is_kept_apart() -> None:
    lost = outcome(1.0, status="oom", reason="no room", batch=16, device="mps")
    whole = sweep({size: (size * 1e-3, 3e-3) for size in (1, 2, 4, 8)})
    found = only([*whole, outcome(0.016, batch=16), lost])
    assert [found.size(one) for one in found.comparisons] == [1, 2, 4, 8]
    assert [one.case.batch for one in found.missing] == [16]
    assert found.verdict == "crosses"


def test_modes_lengths_and_axes_do_not_mix() -> None:
    steps = {size: (size * 1e-3, 5e-3) for size in (2, 4, 8)}
    found = crossovers([*sweep(steps, mode="train"), *sweep(steps, mode="infer")])
    assert [one.tried[0].case.mode for one in found] == ["train", "infer"]
    assert crossovers(sweep({8: (1.0, 2.0)})) == []
    assert crossovers([outcome(1.0, batch=8), outcome(2.0, batch=16, device="mps")]) == []
