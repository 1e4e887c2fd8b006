"""Energies as figures and in comparisons: made records whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.analysis import made

from mldyno.analysis.answers import answers, energy_comparisons
from mldyno.analysis.comparisons import compare
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Pairing, Series, seal
from mldyno.views.answers import answer_lines, crossover_table
from mldyno.views.claims import sentence
from mldyno.views.outcomes import energy_lines

FACTS: dict[str, Any] = {
    "energy_scope": "package", "energy_by": "powercap: package-0", "energy_method": "counter", "energy_error": 0.001,
    "items_per_step": 8, "item": "image",
}  # fmt: skip


def with_energy(
    step: float, watts: float, idle: float = 10.0, processes: int = 3, pairings: int = 0, scope: str = "package",
    pairing: Pairing = "interleaved", **axes: Any,
) -> Outcome:  # fmt: skip
    """A case whose power is known, with windows that differ by a per cent, and so many paired comparisons."""
    plain = made.outcome(step, processes=processes, real=True, **axes)
    wobble = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0, 0.99, 1.01, 1.0)
    records = []
    for record in plain.records:
        level = record.values("step_time")[0]
        series = (
            *record.series,
            Series("energy", "J", tuple(watts * level * each for each in wobble)),
            Series("power", "W", tuple(watts * each for each in wobble)),
            Series("idle_power", "W", (idle, idle * 1.02, idle * 0.98)),
            Series("peak_power", "W", (watts * 1.01,), stage="process"),
        )
        facts = {**record.facts, **FACTS, "energy_scope": scope}
        records.append(seal(replace(record, series=series, facts=facts)))
    turns = tuple(
        seal(replace(records[0], run=replace(records[0].run, repeat=number, group=number + 1, pairing=pairing),
                     series=tuple(Series("energy", "J", (watts * step * (1 + 0.001 * (number + turn)),), stage="paired",
                                         turn=turn) for turn in range(3))))
        for number in range(pairings)
    )  # fmt: skip
    return Outcome(tuple(records), turns)


def value(outcome: Outcome, name: str) -> float:
    figure = outcome.figure(name)
    assert figure is not None
    return figure.value


def test_energy_above_idle_and_items_a_joule_follow_from_the_windows() -> None:
    known = with_energy(0.01, 40.0)
    assert value(known, "energy") == pytest.approx(0.4, rel=1e-3)
    assert value(known, "energy_above_idle") == pytest.approx(0.3, rel=1e-3)
    assert value(known, "efficiency") == pytest.approx(20.0, rel=1e-3)
    assert value(known, "power") == pytest.approx(40.0, rel=1e-3)
    assert value(known, "peak_power") == pytest.approx(40.4, rel=1e-3)
    (line,) = energy_lines([known])
    assert re.sub(r" ±[0-9.]+ %", "", line) == (
        "mlp/train/torch/cpu/fp32/b8/device: 400 mJ a step, 300 mJ of it above idle; "
        "40.0 W at work, 40.4 W at most, "
        "10.0 W at rest; 20.0 images a joule [package, by powercap: package-0 (counter)]"
    )


def test_one_process_knows_its_energy_no_better_than_the_next_ones_time() -> None:
    known, step = with_energy(0.01, 40.0, processes=1).figure("energy"), with_energy(0.01, 40.0, processes=1).step
    assert known is not None
    assert step is not None
    assert known.half_width is not None
    assert step.half_width is not None
    assert known.half_width / known.value >= step.half_width / step.value


def test_energies_are_compared_as_a_share_of_the_other_one() -> None:
    plain = with_energy(0.01, 40.0, pairings=3, precision="fp32")
    bf16 = with_energy(0.008, 30.5, pairings=3, precision="bf16")
    (comparison,) = energy_comparisons([plain, bf16])
    assert comparison.how.startswith("paired")
    assert "bf16 takes 0.610x (0.61" in sentence(comparison)
    assert "of fp32's energy a step" in sentence(comparison)


def test_energies_that_were_never_paired_have_the_interval_of_both() -> None:
    comparison = compare(with_energy(0.01, 40.0), with_energy(0.01, 40.1, precision="bf16"), "energy")
    assert comparison is not None
    assert comparison.how == "separate runs"
    assert "no clear difference in energy a step between bf16 and fp32 (the first takes 1.00x (" in sentence(comparison)


def test_energies_of_two_scopes_are_not_compared() -> None:
    assert compare(with_energy(0.01, 40.0), with_energy(0.01, 90.0, scope="system", precision="bf16"), "energy") is None


def test_where_nothing_was_told_it_is_unknown_only_if_somebody_asked() -> None:
    plain = made.outcome(0.01)
    assert energy_lines([plain]) == []
    assert energy_lines([plain], wanted=True) == [
        "energy: unknown: no sensor can be read here; `mldyno doctor` lists the sensors"
    ]


def test_a_process_whose_sensor_failed_and_one_of_another_scope_are_left_out() -> None:
    package, system = with_energy(0.01, 40.0, processes=2), with_energy(0.01, 90.0, processes=1, scope="system")
    silent = made.outcome(0.01, processes=1)
    mixed = Outcome((*silent.records, *package.records, *system.records))
    assert value(mixed, "energy") == pytest.approx(0.4, rel=1e-3)
    assert value(mixed, "power") == pytest.approx(40.0, rel=1e-3)
    assert "[package, by powercap" in energy_lines([mixed])[0]


def test_a_case_that_lost_its_energy_says_so_beside_others_that_have_theirs() -> None:
    plain = made.outcome(0.01, processes=1, precision="bf16")
    lost = Outcome((seal(replace(plain.records[0], facts={"energy_lost": "package-0 stands still"})),))
    assert energy_lines([with_energy(0.01, 40.0), lost], wanted=True)[1:] == [
        "mlp/train/torch/cpu/bf16/b8/device: energy unknown: package-0 stands still"
    ]


def test_a_machine_that_did_not_rest_has_no_energy_above_idle() -> None:
    (line,) = energy_lines([with_energy(0.01, 40.0, idle=40.2)])
    assert "a step, not clearly above idle; " in line


def test_a_crossover_of_energy_is_its_own_answer() -> None:
    sizes = {8: (40.0, 60.0), 16: (40.0, 45.0), 32: (40.0, 30.0), 64: (40.0, 20.0)}
    sides = [(batch, precision, watts) for batch, pair in sizes.items()
             for precision, watts in zip(("fp32", "bf16"), pair, strict=True)]  # fmt: skip
    swept = [with_energy(0.01, watts, batch=batch, precision=precision) for batch, precision, watts in sides]
    told = answer_lines(answers(swept).about("energy"))
    assert len(told) == 1
    assert "bf16 takes less energy than fp32 from batch" in told[0]
    assert all("energy" not in line for line in answer_lines(answers(swept).about("step")))
    (crossover,) = answers(swept).about("energy").crossovers
    assert "energy of one step [package, by powercap: package-0 (counter)]" in " ".join(
        crossover_table(crossover).split()
    )


def test_a_crossover_of_energy_that_was_not_seen_says_that_it_is_one_of_energy() -> None:
    swept = [with_energy(0.01, 40.0 + 0.1 * batch, batch=batch, precision=precision)
             for batch in (8, 16) for precision in ("fp32", "bf16")]  # fmt: skip
    (line,) = answer_lines(answers(swept).about("energy"))
    assert "energ" in line
