"""What is usual on a machine: how much processes differ, how far they follow the reference kernel, what that claims."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tests.analysis.test_estimates import a_record

from mldyno.analysis.estimates import NEVER_SEEN, Process, Usual, headline, recorded_usual, usual_for
from mldyno.metrics import FACTS, flaws
from mldyno.selftest.on_processes import coverage, judged
from mldyno.stats.intervals import Variation

KERNEL = ("cpu", 1, "torch", "fp32", 256)


def processes(
    seed: int,
    count: int,
    spread: float = 0.03,
    state: float = 0.1,
    cases: int = 6,
    slopes: tuple[float, float] = (1, 0),
) -> list[Process]:
    """Fresh processes of cases in random order, on a machine whose speed wanders within minutes."""
    chance = random.Random(seed)
    steep = {f"case{number}": chance.gauss(*slopes) for number in range(cases)}
    level, made = 0.0, []
    for place in range(count * cases):
        level = 0.9 * level + math.sqrt(1 - 0.9**2) * chance.gauss(0, state)
        case = f"case{place % cases}"
        time = math.log(0.01) + steep[case] * level + chance.gauss(0, spread)
        made.append(Process(case, str(place), KERNEL, "mains", 10.0 * place, time, math.log(1e-3) + level))
    return made


def test_step_times_are_seen_to_follow_the_reference_kernel() -> None:
    *before, last = processes(1, count=12, slopes=(1.5, 0.3))
    usual = usual_for(last, before)
    assert usual.slope == pytest.approx(1.5, abs=0.5)
    assert math.sqrt(usual.spread.variance) == pytest.approx(0.03, rel=0.5)
    assert usual.level == pytest.approx(math.log(1e-3), abs=0.1)


def test_what_is_usual_can_be_recorded_after_thousands_of_processes_and_of_any_spread() -> None:
    command = Process("ls", "2", ("cpu", None), "mains", 0.0, math.log(1e-3), 0.0)
    before = [replace(command, run="1", time=math.log(1e-3) + 0.1 * (place % 3)) for place in range(3000)]
    usual = usual_for(command, before)
    assert usual.spread.freedom > 1000
    assert flaws(FACTS, usual.facts) == {}
    assert usual.facts["process_freedom"] == 1000
    wild = replace(
        usual, spread=Variation(50.0**2, 0.01), slope=1.0, slope_error=20.0, level_error=Variation(400.0, 1e5)
    )
    assert flaws(FACTS, wild.facts) == {}


def test_where_the_reference_kernel_does_not_vary_nothing_is_seen() -> None:
    *before, last = processes(2, count=8, state=0.0)
    value, error = headline([last], usual_for(last, before))
    assert value == pytest.approx(math.exp(last.time))
    assert error.half_width > 0.05


def test_a_time_from_a_bad_minute_is_brought_to_the_usual_speed() -> None:
    *before, last = processes(3, count=20)
    slow = replace(last, time=math.log(0.01) + 0.3, reference=math.log(1e-3) + 0.3)
    value, _ = headline([slow], usual_for(slow, before))
    assert value == pytest.approx(0.01, rel=0.1)


def test_a_machine_far_from_its_usual_speed_is_taken_as_it_is() -> None:
    *before, last = processes(3, count=20)
    slow = replace(last, time=last.time + 2.0, reference=last.reference + 2.0)
    assert headline([slow], usual_for(last, before))[0] == pytest.approx(math.exp(slow.time))


def test_another_power_source_and_another_day_say_nothing_of_the_usual_speed() -> None:
    *before, last = processes(4, count=12)
    on_battery = [replace(each, power="battery", reference=each.reference + 1, time=each.time + 1) for each in before]
    long_ago = [
        replace(each, when=each.when - 1e6, reference=each.reference + 1, time=each.time + 1) for each in before
    ]
    plain = usual_for(last, before).level
    assert usual_for(last, [*before, *on_battery, *long_ago]).level == pytest.approx(plain)


def test_intervals_hold_the_mean_of_30_other_processes_and_are_no_wider_than_they_must() -> None:
    rows = [row for seed in range(20, 28) for row in judged(processes(seed, count=45, slopes=(1.2, 0.4)))]
    for cell in coverage(13, rows).cells:
        assert 0.93 <= cell.value <= 0.995, cell
    widths = sorted(row["half_width"] for row in rows if row["processes"] == 5)
    assert widths[len(widths) // 2] < 0.13


def test_a_process_that_waited_for_a_core_tells_nothing_of_others_and_claims_little() -> None:
    *before, last = processes(9, count=20)
    waited = [replace(each, time=each.time + 1.5, contended=True) for each in before[::4]]
    assert usual_for(last, [*before, *waited]).spread == usual_for(last, before).spread
    of_contended = usual_for(replace(last, contended=True), [*before, *waited])
    assert of_contended.slope == 0.0
    assert of_contended.spread.variance > 10 * usual_for(last, before).spread.variance


def test_one_process_of_a_machine_that_nobody_knows_claims_little() -> None:
    (process,) = processes(5, count=1, cases=1)
    usual = usual_for(process, [])
    assert usual.spread == NEVER_SEEN
    assert 0.15 < headline([process], usual)[1].half_width < 0.3


def test_processes_of_other_threads_say_nothing_of_the_spread() -> None:
    *before, last = processes(6, count=12, spread=0.1)
    elsewhere = replace(last, kernel=("cpu", 2, "torch", "fp32", 256))
    assert usual_for(elsewhere, before).spread == NEVER_SEEN


def test_a_record_says_what_was_usual_when_it_was_made() -> None:
    usual = Usual(Variation(0.04**2, 7.5), 1.25, 0.2, math.log(2e-4), Variation(0.03**2, 11.0))
    read = recorded_usual(a_record([0.01] * 20, facts={"steps": 20, **usual.facts}))
    assert read.facts == usual.facts
    assert read.slope == 1.25
    assert recorded_usual(a_record([0.01] * 20)) == Usual()
    half_known = {name: value for name, value in usual.facts.items() if name != "reference_error"}
    assert recorded_usual(a_record([0.01] * 20, facts={"steps": 20, **half_known})) == Usual(Variation(0.04**2, 7.5))
