"""Which node is slow: found where it is, hardly ever where it is not, and never without a second measurement."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import pytest
from bench.fleet_rules import CONFIRMED, KINDS, measured, nodes_of, trial

from mldyno.analysis.fleet import Group, groups, judged, median_variance
from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.records import Case, Device, Machine, Record, Run, Series, Software, Warning_, seal
from mldyno.stats.intervals import student_t

QUIET, NOISY, HEAVY, REAL = KINDS
FLEETS = 150


def logs(count: int, slower: float, apart: float = 0.004, processes: int = 3) -> dict[str, list[float]]:
    """Nodes of which the last is slower, each with processes that lie evenly around its time."""
    offsets = [apart * (place - (processes - 1) / 2) for place in range(processes)]
    return {f"node{n}": [(slower if n == count - 1 else 0.0) + each for each in offsets] for n in range(count)}


def test_a_node_that_is_clearly_slower_than_the_tolerance_is_called_and_the_slowest_comes_first() -> None:
    meeting = judged(logs(8, 0.05))
    assert meeting is not None
    assert [node.name for node in meeting.nodes if node.slow] == ["node7"]
    assert meeting.nodes[0].name == "node7"
    assert meeting.nodes[0].difference.value == pytest.approx(math.expm1(0.05))
    assert meeting.nodes[0].difference.low is not None
    assert meeting.nodes[0].difference.low > 0.02


@pytest.mark.parametrize("slower", [0.0, 0.019, -0.05])
def test_a_node_within_the_tolerance_or_faster_is_not_called(slower: float) -> None:
    meeting = judged(logs(8, slower, apart=0.0001))
    assert meeting is not None
    assert [node for node in meeting.nodes if node.slow] == []


def test_more_nodes_need_more_evidence() -> None:
    few, many = judged(logs(4, 0.034, apart=0.005)), judged(logs(400, 0.034, apart=0.005))
    assert few is not None
    assert many is not None
    assert few.nodes[0].difference.low is not None
    assert many.nodes[0].difference.low is not None
    assert many.nodes[0].difference.low < few.nodes[0].difference.low


def test_cases_that_are_judged_together_share_the_error() -> None:
    alone, together = judged(logs(8, 0.03)), judged(logs(8, 0.03), tests=80)
    assert alone is not None
    assert together is not None
    assert (together.nodes[0].difference.low or 0) < (alone.nodes[0].difference.low or 0)


@pytest.mark.parametrize("values", [{}, logs(2, 0.1), logs(8, 0.1, processes=1)])
def test_two_nodes_or_single_processes_say_nothing(values: Mapping[str, Sequence[float]]) -> None:
    assert judged(values) is None


def test_the_median_of_the_others_is_that_of_all_nodes_but_one() -> None:
    chance = random.Random(1)
    for count in (3, 4, 7, 8):
        values = {str(n): [chance.gauss(0, 1) + each for each in (-0.01, 0.0, 0.01)] for n in range(count)}
        meeting = judged(values)
        assert meeting is not None
        for node in meeting.nodes:
            others = median(median(each) for name, each in values.items() if name != node.name)
            assert math.log1p(node.difference.value) == pytest.approx(median(values[node.name]) - others)


def test_the_variance_of_a_median_is_near_the_true_one_and_not_below_it() -> None:
    for count, true in {1: 1.0, 2: 0.5, 3: 0.4487, 4: 0.2982, 5: 0.2868, 9: 0.1661, 101: 0.01549}.items():
        assert 0.97 * true <= median_variance(count) <= 1.16 * true


def test_students_t_is_known_at_any_probability() -> None:
    assert student_t(9) == pytest.approx(2.262, abs=5e-4)
    assert student_t(16, 0.05 / 8) == pytest.approx(2.813, abs=5e-4)
    assert student_t(128, 0.05 / 64) == pytest.approx(3.232, abs=5e-4)


# -- below what nothing can be said ----------------------------------------------------------------


def test_what_is_said_to_be_visible_is_called_about_as_often_as_promised() -> None:
    chance, called, tried = random.Random(5), 0, 200
    one = judged(measured_logs(chance, 0.0))
    assert one is not None
    for _ in range(tried):
        meeting = judged(measured_logs(chance, math.log1p(one.least)))
        assert meeting is not None
        called += any(node.name == "0" and node.slow for node in meeting.nodes)
    assert 0.75 <= called / tried <= 1.0


def measured_logs(chance: random.Random, slower: float, processes: int = 3) -> dict[str, list[float]]:
    kind = replace(NOISY, session=0.0, node=0.0)
    fleet = measured(kind, nodes_of(kind, 16, slower, chance), chance, processes)
    return {str(place): values for place, values in enumerate(fleet)}


def test_the_advised_number_of_processes_shows_five_percent() -> None:
    chance = random.Random(3)
    meeting = judged(measured_logs(chance, 0.0))
    assert meeting is not None
    assert meeting.least > 0.05
    assert meeting.more > 0
    again = judged(measured_logs(chance, 0.0, 3 + meeting.more))
    assert again is not None
    assert again.least == pytest.approx(0.05, abs=0.01)


def test_a_quiet_fleet_needs_no_more_and_a_hopeless_one_is_told_so() -> None:
    quiet, hopeless = judged(logs(8, 0.0, apart=0.002)), judged(logs(8, 0.0, apart=0.5))
    assert quiet is not None
    assert hopeless is not None
    assert (quiet.more, hopeless.more) == (0, -1)


# -- by simulation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [(QUIET, 8), (NOISY, 64), (HEAVY, 8), (REAL, 8)])
def test_a_node_that_is_not_slower_is_called_in_few_fleets_and_confirmed_in_hardly_any(kind: type, count: int) -> None:
    counted = trial(kind, count, FLEETS if count < 64 else FLEETS // 3)  # type: ignore[arg-type]
    fleets = FLEETS if count < 64 else FLEETS // 3
    assert counted["mldyno, one measurement"].wrong <= 0.08 * fleets
    assert counted[CONFIRMED].wrong <= 0.01 * fleets


def test_in_a_quiet_fleet_a_slow_node_is_found_and_confirmed() -> None:
    counted = trial(QUIET, 8, FLEETS)
    assert counted["mldyno, one measurement"].found >= 0.7 * FLEETS
    assert counted[CONFIRMED].found >= 0.55 * FLEETS
    assert counted["SuperBench: 5 % under the mean"].found <= 0.4 * FLEETS
    assert counted["z > 3"].found == 0, "with 8 nodes z can't be over 2.48"


def test_a_healthy_noisy_fleet_is_called_faulty_by_a_fixed_threshold_and_not_by_us() -> None:
    counted = trial(NOISY, 64, FLEETS // 3)
    assert counted["SuperBench: 5 % under the mean"].healthy >= 0.3 * FLEETS / 3
    assert counted["mldyno, one measurement"].healthy <= 0.1 * FLEETS / 3


# -- records ---------------------------------------------------------------------------------------

CASE = Case("resnet18", mode="train", batch=8)


def node(
    name: str, step: float, run: str = "r", case: Case = CASE, title: str = "H100", torch: str = "2.13.0",
    cores: int = 8, status: str = "ok", warned: str = "",
) -> list[Record]:  # fmt: skip
    """Three processes of a case on a node."""
    device = Device("cpu", "torch", title)
    records = []
    for place in range(3):
        level = step * (1 + 0.003 * (place - 1))
        records.append(seal(Record(
            3, "", "2026-01-01T00:00:00Z", "measured", Run(run, repeat=place), case, status, status and "",  # type: ignore[arg-type]
            Machine(name, cpu="EPYC", cores=cores, devices=(device,)),
            Software(python="3.11.7", framework="torch", versions={"torch": torch}, threads=8),
            series=(Series("step_time", "s", (level,) * 20, turn=0),) if status == "ok" else (),
            warnings=(Warning_(warned, "words"),) if warned else (),
        )))  # fmt: skip
    return records


def fleet(slow: float = 1.05, run: str = "r", count: int = 6, **others: float) -> list[Outcome]:
    records = [each for n in range(count) for each in node(f"node{n}", 0.1 * (slow if n == 0 else 1.0), run)]
    return outcomes([*records, *(each for name, step in others.items() for each in node(name, step, run))])


def states(made: Sequence[Group]) -> dict[str, str]:
    (group,) = made
    assert group.meeting is not None
    return {each.name: each.state for each in group.meeting.nodes}


def test_a_slow_node_awaits_a_second_measurement_which_confirms_or_clears_it() -> None:
    assert states(groups(fleet()))["node0"] == "awaits"
    assert states(groups(fleet(), [fleet(run="s")]))["node0"] == "slow"
    assert states(groups(fleet(), [fleet(1.0, run="s")]))["node0"] == "not confirmed"
    assert states(groups(fleet()))["node1"] == "like the others"


def test_the_nearest_other_measurement_of_the_node_counts_and_runs_without_it_do_not() -> None:
    without = [outcome for outcome in fleet(run="t") if outcome.machine != "node0"]
    assert states(groups(fleet(), [without, fleet(run="s"), fleet(1.0, run="u")]))["node0"] == "slow"


def test_a_measurement_of_other_versions_confirms_nothing() -> None:
    older = outcomes([each for n in range(6) for each in node(f"node{n}", 0.2 if n == 0 else 0.1, "s", torch="2.12.0")])
    assert states(groups(fleet(), [older]))["node0"] == "awaits"


def test_other_runs_are_read_only_while_a_slow_node_has_no_answer() -> None:
    def others() -> object:
        yield fleet(run="s")
        raise AssertionError

    assert states(groups(fleet(), others()))["node0"] == "slow"  # type: ignore[arg-type]
    assert "awaits" not in states(groups(fleet(1.0), others())).values()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"title": "A100"}, "A100, not H100"), ({"torch": "2.12.0"}, "torch 2.12.0, not torch 2.13.0"),
        ({"cores": 1}, "1 core, not 8 cores"),
    ],
)  # fmt: skip
def test_a_node_of_another_kind_is_apart_with_what_differs_and_is_not_compared(
    other: dict[str, object], why: str
) -> None:
    records = [each for n in range(5) for each in node(f"node{n}", 0.1)] + node("box", 0.5, **other)  # type: ignore[arg-type]
    (group,) = groups(outcomes(records))
    assert [(apart.nodes, apart.why) for apart in group.apart] == [(("box",), why)]
    assert group.called == []
    assert "box" not in group.names


def test_two_kinds_of_three_or_more_nodes_are_two_groups() -> None:
    records = [each for n in range(4) for each in node(f"a{n}", 0.1)]
    records += [each for n in range(3) for each in node(f"b{n}", 0.2 if n else 0.3, title="A100")]
    first, second = groups(outcomes(records))
    assert (len(first.names), len(second.names)) == (4, 3)
    assert [each.name for each in second.called] == ["b0"]
    assert first.apart == second.apart == ()


def test_a_node_that_failed_is_apart_with_its_reason() -> None:
    records = [each for n in range(4) for each in node(f"node{n}", 0.1)] + node("bad", 0.1, status="oom")
    (group,) = groups(outcomes(records))
    assert [apart.nodes for apart in group.apart] == [("bad",)]
    assert group.apart[0].why.startswith("oom")


def test_a_slow_node_comes_with_what_its_records_say_of_the_cause() -> None:
    records = [each for n in range(5) for each in node(f"node{n}", 0.1)] + node("niced", 0.2, warned="niced")
    (group,) = groups(outcomes(records))
    assert group.called[0].causes == ("niced",)
