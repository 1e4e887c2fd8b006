"""Speed-ups with their verdicts: paired where cases took turns, separate runs where not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.analysis import made

from mldyno.analysis.comparisons import (
    Comparison,
    along,
    between_machines,
    between_workloads,
    compare,
    differences,
    geometric_mean,
    match,
)
from mldyno.analysis.outcomes import Outcome
from mldyno.axes import unstated
from mldyno.errors import MldynoError
from mldyno.records import SCHEMA, Case, Machine, Pairing, Record, Run, Series, Software, seal
from mldyno.store.figures import published
from mldyno.units import Interval

ROUNDS = 96


def a_record(level: float, seed: int, device: str = "cpu", run: str = "r", number: int = 0, **changes: Any) -> Record:
    """A case alone: a hundred blocks around a level."""
    own = random.Random(seed)
    values = tuple(level * (1 + own.gauss(0, 0.01)) for _ in range(100))
    plain = Record(
        SCHEMA, "", "2026-01-01T00:00:00Z", "measured",
        Run(run, repeat=number), Case("mlp", batch=8, device=device), "ok",
        "", Machine("m"), software=Software(versions={"torch": "2"}, threads=2),
        series=(Series("step_time", "s", values, turn=0),),
    )  # fmt: skip
    return seal(replace(plain, **changes))


def in_company(alone: Record, pairing: Pairing, group: int, seed: int, pace: float = 1.0) -> Record:
    """The same case in a paired comparison: the noise of a round is the machine's, shared by all that are in it."""
    level, noise, own = alone.values("step_time")[0] * pace, random.Random(group), random.Random(seed)
    level = round(level, 2)
    times = [level * (1 + 0.3 * noise.random()) * (1 + own.gauss(0, 0.01)) for _ in range(ROUNDS)]
    if pairing == "interleaved":
        series: tuple[Series, ...] = (Series("step_time", "s", tuple(times), stage="paired"),)
    else:
        series = tuple(
            Series("step_time", "s", tuple(times[8 * n : 8 * n + 8]), stage="paired", turn=n) for n in range(12)
        )
    return seal(replace(alone, run=replace(alone.run, group=group, pairing=pairing), series=series))


def met(
    first: float, second: float, pairing: Pairing = "interleaved", times: int = 1, own: float = 0.0
) -> tuple[Outcome, Outcome]:
    """Two outcomes that met so many times; `own` is how far a process is off by itself."""
    chance = random.Random(f"{first} {second} {pairing}")
    sides = [a_record(first, 1), a_record(second, 2, "mps")]
    pairings: list[list[Record]] = [[], []]
    for group in range(times):
        for place, side in enumerate(sides):
            pace = (first, second)[place] / round(side.values("step_time")[0], 2) * (1 + chance.gauss(0, own))
            pairings[place].append(in_company(side, pairing, group, 10 * group + place, pace))
    return Outcome((sides[0],), tuple(pairings[0])), Outcome((sides[1],), tuple(pairings[1]))


def compared(base: Outcome, other: Outcome) -> Comparison:
    found = compare(base, other)
    assert found is not None
    return found


def test_rounds_in_one_process_are_paired_so_that_the_machines_own_noise_falls_out() -> None:
    found = compared(*met(100.0, 97.0))
    assert found.how == "paired, 96 rounds in one process"
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(1 / 0.97, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.high / found.low < 1.02


def test_the_same_speed_in_one_process_is_equivalent() -> None:
    assert compared(*met(100.0, 100.0)).verdict == "equivalent"


def test_several_processes_give_the_interval_between_them() -> None:
    found = compared(*met(100.0, 95.0, times=4))
    assert found.how == "paired, 384 rounds in 4 processes"
    assert found.verdict == "faster"


def test_pairs_of_processes_count_one_by_one_since_each_has_a_speed_of_its_own() -> None:
    steady = compared(*met(100.0, 80.0, "live-processes", times=5, own=0.03))
    assert steady.how == "paired, 5 fresh pairs of processes taking turns"
    assert steady.verdict == "faster"
    close = compared(*met(100.0, 99.0, "live-processes", times=5, own=0.05))
    assert close.verdict == "inconclusive"
    assert "--repeats" in close.advice


def test_whole_processes_in_alternation_give_one_value_each() -> None:
    found = compared(*met(100.0, 50.0, "alternating-processes", times=5, own=0.03))
    assert found.how == "paired, 5 fresh pairs of processes in alternation"
    assert found.ratio == pytest.approx(2.0, rel=0.1)


def test_one_pair_of_processes_is_no_pair() -> None:
    assert compared(*met(100.0, 50.0, "live-processes", times=1)).how == "separate runs"


def test_what_would_make_it_conclusive_is_said_with_how_much() -> None:
    from mldyno.analysis.comparisons import _advice

    assert _advice(0.0, 0.04, "--budget", 1) == "about 5x the --budget would settle it"
    assert _advice(0.1, 0.15, "--repeats", 5) == "about --repeats 14 would settle it"
    assert _advice(0.001, 0.3, "--repeats", 3) == "more --repeats, or a quieter machine"
    assert "quieter" in _advice(0.0, 1.0, "--budget", 1)


def test_slower_is_said_as_such() -> None:
    assert compared(*met(100.0, 200.0)).verdict == "slower"


def test_cases_that_were_never_paired_are_separate_runs_and_say_so() -> None:
    def alone(level: float, seed: int, device: str, run: str) -> Outcome:
        return Outcome((a_record(level, seed, device, run=run, facts={"wall_time": 3.0}),))

    found = compared(alone(1.0, 1, "cpu", "a"), alone(0.5, 2, "mps", "b"))
    assert found.how == "separate runs"
    assert found.verdict == "faster"
    close = compared(alone(1.0, 1, "cpu", "a"), alone(0.99, 2, "mps", "b"))
    assert close.verdict == "inconclusive"
    assert "in one run" in close.advice


def test_two_published_figures_have_a_ratio_but_no_verdict() -> None:
    rows = [r for r in published() if r.case.workload == "mlp" and r.case.placement == "device"]
    found = compare(Outcome((rows[0],)), Outcome((rows[1],)))
    assert found is not None
    assert (found.low, found.high, found.verdict) == (None, None, "inconclusive")
    assert "published" in found.advice


def of_m1() -> Outcome:
    """A published figure: mlp on an M1, 1.26 ms a step."""
    (row,) = [record for record in published() if record.machine.name == "M1 Mac mini" and record.case.workload == "mlp"
              and (record.case.device, record.case.placement) == ("cpu", "device")]  # fmt: skip
    return Outcome((row,))


def test_beside_a_published_figure_the_interval_is_that_of_the_other_side_alone() -> None:
    theirs, mine = of_m1(), made.outcome(0.00252, mode="infer", batch=128)
    found = compared(theirs, mine)
    assert (found.how, found.verdict) == ("separate runs, own interval only", "slower")
    assert found.ratio == pytest.approx(0.5, rel=1e-3)
    assert mine.step is not None
    assert mine.step.half_width is not None
    assert found.low == pytest.approx(0.5 / (1 + mine.step.half_width / mine.step.value), rel=1e-3)
    turned = compared(mine, theirs)
    assert (turned.how, turned.verdict) == (found.how, "faster")
    assert turned.low == pytest.approx(1 / (found.high or 1))


def test_what_can_not_be_told_beside_a_published_figure_needs_more_of_our_own() -> None:
    close = compared(of_m1(), made.outcome(0.00127, apart=0.2, mode="infer", batch=128))
    assert close.verdict == "inconclusive"
    assert "--repeats" in close.advice
    unsure = compared(of_m1(), made.outcome(0.002, processes=1, blocks=1, mode="infer", batch=128))
    assert (unsure.low, unsure.how, unsure.advice) == (None, "separate runs", "too few samples for an interval")


def test_what_differs_beside_the_time_is_named() -> None:
    base = a_record(1.0, 1)
    other = a_record(1.0, 2, "mps", software=Software(versions={"torch": "3"}, threads=4))
    assert set(differences(Outcome((base,)), Outcome((other,)))) == {"device", "framework version", "threads"}


def test_unlike_cases_are_refused_unless_that_is_what_is_compared() -> None:
    base, other = (
        Outcome((a_record(1.0, 1),)),
        Outcome((a_record(1.0, 2, "mps", case=Case("mlp", batch=16, device="mps")),)),
    )
    with pytest.raises(MldynoError, match="differ in batch as well"):
        match([base], [other], {"device"})
    assert match([base], [other], {"device", "batch"}) == [(base, other)]


def test_two_records_named_one_by_one_may_differ_in_one_thing() -> None:
    base, other = Outcome((a_record(1.0, 1),)), Outcome((a_record(1.0, 2, "mps"),))
    assert match([base], [other], set(), one_free=True) == [(base, other)]


def test_along_an_axis_the_cpu_is_the_base() -> None:
    found = [Outcome((a_record(1.0, n, device),)) for n, device in enumerate(("xpu", "cpu", "mps"))]
    assert [(a.case.device, b.case.device) for a, b in along(found, "device")] == [("cpu", "mps"), ("cpu", "xpu")]


def command(words: str, level: float, seed: int, run: str = "r", **changes: Any) -> Record:
    return a_record(level, seed, run=run, case=unstated(words, "command"), facts={"end_to_end": True}, **changes)


def versions(run: str, *names: str, paired: bool = True) -> list[Outcome]:
    """Versions of a file that were measured in one run."""
    alone = [a_record(1.0 + n, n, run=run, case=Case(name, batch=8)) for n, name in enumerate(names)]
    groups = [(in_company(each, "interleaved", 1, n),) if paired else () for n, each in enumerate(alone)]
    return [Outcome((each,), group) for each, group in zip(alone, groups, strict=True)]


def test_the_base_of_a_version_is_the_one_that_it_was_last_paired_with() -> None:
    head, same = versions("1", "m.py@head", "m.py@same")
    again, slow = versions("2", "m.py@head", "m.py@slow")
    (alone,) = versions("3", "m.py@late", paired=False)
    pairs = between_workloads([same, again, slow, alone], [head, same, again, slow, alone])
    assert [(base.case.workload, other.case.workload) for base, other in pairs] == [
        ("m.py@head", "m.py@same"), ("m.py@head", "m.py@slow"), ("m.py@same", "m.py@late"),
    ]  # fmt: skip
    assert pairs[0] == (head, same)
    assert pairs[1] == (again, slow)
    (third, fourth) = versions("4", "m.py@slow", "m.py@same")
    pairs = between_workloads([third, fourth, again], [head, same, again, slow, third, fourth])
    assert [pair for pair in pairs if pair[1].case.workload == "m.py@same"] == [(third, fourth)]


def test_every_round_of_two_commands_counts_whichever_worker_ran_it() -> None:
    slow, fast = command("slow", 100.0, 1), command("fast", 50.0, 2)
    sides = [
        Outcome((side,), tuple(in_company(side, "interleaved", group, 10 * group + place) for group in range(2)))
        for place, side in enumerate((slow, fast))
    ]
    found = compared(*sides)
    assert found.how == f"paired, {2 * ROUNDS} rounds"
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(2.0, rel=0.1)


def test_of_commands_and_of_runs_what_was_measured_first_is_the_base() -> None:
    commands = [Outcome((command(words, 1.0, n),)) for n, words in enumerate(("b", "c", "a"))]
    assert [(a.case.workload, b.case.workload) for a, b in along(commands, "workload")] == [("b", "c"), ("b", "a")]
    runs = [Outcome((a_record(1.0, n, run=run),)) for n, run in enumerate(("z", "y"))]
    assert [(a.records[0].run.id, b.records[0].run.id) for a, b in along(runs, "run")] == [("z", "y")]


def test_two_runs_of_one_case_can_not_be_paired_so_that_more_of_each_is_advised() -> None:
    runs = [Outcome((a_record(1.0, n, run=run, facts={"wall_time": 3.0}),)) for n, run in enumerate("ab")]
    assert "--repeats" in compared(*runs).advice
    few = {"a": (0.050, 0.054), "b": (0.051, 0.053)}
    commands = [
        Outcome((command(words, 1.0, 1, run=words, series=(Series("step_time", "s", times),)),))
        for words, times in few.items()
    ]
    assert compared(*commands).advice == "measure both in one run, so that they are paired"


def between(base: float, other: float, case: str, low: float | None = None, high: float | None = None) -> Comparison:
    """A comparison of two machines, `other` so many times as fast."""
    sides = [
        Outcome((a_record(level, 1, machine=Machine(name), case=Case(case, batch=8)),))
        for level, name in ((base, "m"), (other, "n"))
    ]
    return Comparison(base=sides[0], other=sides[1], speedup=Interval(base / other, low, high), how="separate runs")


def test_the_geometric_mean_of_twice_and_half_is_one() -> None:
    found = geometric_mean([between(2.0, 1.0, "a", 1.9, 2.1), between(1.0, 2.0, "b", 0.4, 0.6)])
    assert found.ratio == pytest.approx(1.0)
    assert found.low == pytest.approx((1.9 * 0.4) ** 0.5)
    assert found.high == pytest.approx((2.1 * 0.6) ** 0.5)
    assert found.verdict == "inconclusive"


def test_a_mean_has_an_interval_only_where_every_ratio_has_one() -> None:
    found = geometric_mean([between(2.0, 1.0, "a", 1.9, 2.1), between(8.0, 1.0, "b")])
    assert found.ratio == pytest.approx(4.0)
    assert (found.low, found.high, found.verdict) == (None, None, "inconclusive")


def test_its_interval_is_that_of_ratios_that_err_together() -> None:
    found = geometric_mean([between(2.0, 1.0, case, 1.9, 2.1) for case in "abc"])
    assert found.low == pytest.approx(1.9)
    assert found.high == pytest.approx(2.1)
    assert found.verdict == "faster"


def test_means_are_of_several_cases_of_the_same_two_machines_and_devices() -> None:
    def on_mps(one: Comparison) -> Comparison:
        moved = Outcome(tuple(replace(r, case=replace(r.case, device="mps")) for r in one.other.records))
        return replace(one, other=moved)

    same = [between(2.0, 1.0, case) for case in "abc"]
    other = [on_mps(between(8.0, 1.0, case)) for case in "ab"]
    found = between_machines([*same, *other, on_mps(between(4.0, 1.0, "c", 3.0, 5.0))])
    assert [(len(one.comparisons), round(one.ratio, 2)) for one in found] == [(3, 2.0), (3, 6.35)]
    assert between_machines(same[:1]) == []
    assert between_machines([compared(*met(100.0, 97.0))] * 2) == [], "of one machine: no mean over unlike work"


def test_of_two_sizes_items_a_second_are_compared_and_a_step_where_it_is_asked_for() -> None:
    small, large = made.met(made.outcome(1.0, batch=1), made.outcome(4.0, batch=8))
    found = compare(small, large)
    assert found is not None
    assert found.per_item
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert found.verdict == "faster"
    assert found.per_step.ratio == pytest.approx(0.25, rel=0.01)
    apart = compare(made.outcome(1.0, batch=1, blocks=2), made.outcome(4.0, batch=8, blocks=2))
    assert apart is not None
    assert apart.ratio == pytest.approx(2.0)
