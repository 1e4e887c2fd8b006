"""How time grows with the length: the exponent that is there, an interval that holds it, and bends that are told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.made import met, outcome

from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.sweeps import Scaling, fitted, scalings
from mldyno.stats.intervals import half_width, mean

LENGTHS = (32, 64, 128, 256, 512, 1024)


def grown(step: Callable[[int], float], lengths: tuple[int, ...] = LENGTHS, **more: Any) -> Scaling:
    (found,) = scalings([outcome(step(length), seq=length, **more) for length in lengths])
    return found


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_a_plain_power_is_found_over_all_and_between_the_longest(power: float) -> None:
    found = grown(lambda length: 1e-6 * length**power)
    assert found.fit.value == pytest.approx(power, abs=1e-3)
    assert found.last.value == pytest.approx(power, abs=1e-3)
    assert (found.last.shortest, found.last.longest) == (512, 1024)
    assert found.fit.low is not None
    assert found.fit.high is not None
    assert found.fit.low < power < found.fit.high
    assert not found.bends


def test_a_line_that_bends_is_told_with_both_its_ends() -> None:
    found = grown(lambda length: 1e-6 * (length + length**2 / 200))
    assert found.bends
    assert found.first.value < 1.3
    assert found.last.value > 1.7
    assert found.first.value < found.fit.value < found.last.value


def test_two_lengths_have_one_exponent() -> None:
    found = grown(lambda length: 1e-6 * length**2, (128, 512))
    assert found.fit == found.first == found.last
    assert found.fit.value == pytest.approx(2.0)


def test_lengths_that_met_are_paired_and_know_their_exponent_better() -> None:
    alone = [outcome(1e-6 * length**2, apart=0.1, seq=length) for length in (256, 512)]
    (apart,), (paired,) = scalings(alone), scalings(met(*alone))
    assert paired.last.how.startswith("paired")
    assert apart.last.how == "separate runs"
    assert paired.last.half_width < apart.last.half_width / 5  # type: ignore[operator]


def test_one_process_is_not_trusted_for_what_others_would_be() -> None:
    one, six = (
        grown(lambda length: 1e-6 * length, processes=n, apart=0.0001, real=True).fit.half_width for n in (1, 6)
    )
    assert one is not None
    assert six is not None
    assert one > 3 * six


def test_a_time_without_an_interval_leaves_the_exponent_without_one() -> None:
    short = fitted([(length, Estimate(1e-6 * length, unit="s")) for length in LENGTHS])
    assert short.value == pytest.approx(1.0)
    assert (short.half_width, short.low, short.high) == (None, None, None)


def test_lengths_that_failed_and_other_batches_are_left_out() -> None:
    lost = outcome(1.0, status="oom", reason="no room", seq=2048)
    known: list[Outcome] = [outcome(1e-6 * length, seq=length) for length in (256, 512, 1024)]
    (found,) = scalings([*known, lost, outcome(1.0, seq=4096, batch=16)])
    assert found.fit.longest == 1024
    assert scalings([lost, known[0]]) == []
    assert scalings([outcome(1.0, batch=size) for size in (8, 16)]) == []


@pytest.mark.parametrize("noise", [0.002, 0.05])
def test_the_interval_holds_the_exponent_as_often_as_it_says(noise: float) -> None:
    chance, sweeps, held, wide = random.Random(2), 300, 0, []
    for _ in range(sweeps):
        power, points = chance.uniform(0.8, 2.2), []
        for length in LENGTHS:
            seen = [length**power * math.exp(chance.gauss(0, noise)) for _ in range(3)]
            points.append((length, Estimate.around(mean(seen), half_width(seen), unit="s", processes=3)))
        found = fitted(points)
        assert found.half_width is not None
        held += abs(found.value - power) <= found.half_width
        wide.append(found.half_width)
    assert 0.93 <= held / sweeps <= 0.995
    assert mean(wide) < 1.2 * noise, "and it is no wider than the noise makes it"
