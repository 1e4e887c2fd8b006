"""Rank 0 passes on what all have to do, times the slowest, and takes part itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mldyno.frameworks import Program, Unsupported
from mldyno.records import Case
from mldyno.worker import ranks
from mldyno.worker.ranks import Leader, own_share


class Team:
    """Two ranks, of which the other one takes a second longer than this one for whatever it is told."""

    rank, size, local_rank, leads = 0, 2, 0, True

    def __init__(self) -> None:
        self.orders: list[tuple[str, int]] = []
        self.left = False

    def share(self, text: str) -> str:
        return text

    def broadcast(self, order: int, argument: int) -> tuple[int, int]:
        self.orders.append((ranks.ORDERS[order], argument))
        return order, argument

    def gather(self, number: float) -> list[float]:
        return [number, number + 1]

    def leave(self) -> None:
        self.left = True


class Counted(Program):
    """A program that notes what it is told."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, steps: int) -> None:
        self.done.append(f"run {steps}")

    def synchronize(self) -> None:
        self.done.append("synchronize")

    def losses(self) -> Mapping[str, float] | None:
        return {"loss": 1.0}

    def error_vs_reference(self) -> tuple[float, float] | None:
        return None

    @property
    def ablations(self) -> Mapping[str, Any]:
        return {"compute": self}

    @property
    def phases(self) -> Mapping[str, int]:
        return {"data": 1, "epoch": 2}

    def run_phase(self, name: str) -> None:
        self.done.append(name)

    def device_time(self, steps: int) -> float | None:
        self.done.append(f"device_time {steps}")
        return 0.5

    def flops(self) -> float | None:
        self.done.append("flops")
        return 100.0

    def rank_flaw(self, thorough: bool) -> str:
        self.done.append(f"rank_flaw {int(thorough)}")
        return ""

    def end(self) -> None:
        self.done.append("end")


@pytest.fixture
def leader() -> Leader:
    return Leader(Counted(), Team())


def test_all_are_told_before_rank_0_runs_and_waited_for_after(leader: Leader) -> None:
    leader.run(3)
    leader.synchronize()
    assert leader.team.orders == [("run", 3)]  # type: ignore[attr-defined]
    assert leader.program.done == ["run 3", "synchronize"]  # type: ignore[attr-defined]


def test_each_ranks_time_of_a_step_is_kept_until_it_is_asked_for(leader: Leader) -> None:
    leader.run(2)
    leader.synchronize()
    times = leader.rank_times()
    own, other = times["step"]
    assert other[0] == pytest.approx(own[0] + 0.5)
    assert leader.rank_times() == {}


def test_steps_beside_its_own_and_phases_are_passed_on_by_their_place(leader: Leader) -> None:
    leader.ablations["compute"].run(5)
    leader.ablations["compute"].synchronize()
    leader.run_phase("epoch")
    leader.synchronize()
    assert leader.team.orders == [("ablations", 5), ("run_phase", 1)]  # type: ignore[attr-defined]
    assert {*leader.rank_times()} == {"compute"}


def test_what_rank_0_does_by_itself_is_passed_on_to_nobody(leader: Leader) -> None:
    assert leader.error_vs_reference() is None
    assert leader.phases == {"data": 1, "epoch": 2}
    assert leader.team.orders == []  # type: ignore[attr-defined]


def test_the_leader_forwards_every_member_of_a_program(leader: Leader) -> None:
    members = {name for name in vars(Program) if not name.startswith("_")} - {*vars(Leader)}
    assert members >= {"losses", "facts", "params", "loads_ahead"}
    for name in members - {*ranks.ORDERS}:
        assert getattr(leader, name) == getattr(leader.program, name)
    assert leader.team.orders == []  # type: ignore[attr-defined]
    assert leader.check_step() is None
    assert leader.losses() == {"loss": 1.0}
    assert leader.team.orders == [("check_step", ranks.NO_ARGUMENT), ("losses", ranks.NO_ARGUMENT)]  # type: ignore[attr-defined]
    for name in members & {*ranks.ORDERS}:
        assert getattr(leader, name).args == (name,)


def test_all_ranks_run_the_steps_that_the_devices_events_time(leader: Leader) -> None:
    assert leader.device_time(4) == 0.5
    assert leader.team.orders == [("device_time", 4)]  # type: ignore[attr-defined]
    assert leader.program.done == ["device_time 4"]  # type: ignore[attr-defined]


def test_operations_are_counted_on_all_ranks_and_are_those_of_all(leader: Leader) -> None:
    assert leader.flops() == 2 * 100.0
    assert leader.team.orders == [("flops", ranks.NO_ARGUMENT)]  # type: ignore[attr-defined]


class Ordered(Team):
    """A team whose leader gives these orders."""

    def __init__(self, orders: list[tuple[str, int]]) -> None:
        super().__init__()
        self.given = iter([*orders, ("end", ranks.NO_ARGUMENT)])
        self.gathered = 0

    def broadcast(self, order: int, argument: int) -> tuple[int, int]:
        name, argument = next(self.given)
        return ranks.ORDERS.index(name), argument

    def gather(self, number: float) -> list[float]:
        self.gathered += 1
        return []


def test_a_follower_carries_out_each_order_of_the_table_and_reports_when_it_is_done() -> None:
    orders = [("run", 3), ("ablations", 2), ("run_phase", 1), ("device_time", 4), ("rank_flaw", 1),
              ("flops", ranks.NO_ARGUMENT), ("peak", ranks.NO_ARGUMENT)]  # fmt: skip
    program, team = Counted(), Ordered(orders)
    ranks.obey(program, team)
    done = [word for word in program.done if word != "synchronize"]
    assert done == ["run 3", "run 2", "epoch", "device_time 4", "rank_flaw 1", "flops", "end"]
    assert team.gathered == len(orders)
    assert team.left


def test_at_the_end_all_leave(leader: Leader) -> None:
    leader.end()
    assert leader.team.orders == [("end", ranks.NO_ARGUMENT)]  # type: ignore[attr-defined]
    assert leader.team.left  # type: ignore[attr-defined]


def test_a_rank_has_the_batch_to_itself_or_its_share_of_it() -> None:
    case = Case("mlp", ranks=4, batch=8)
    assert own_share(case, 1).batch == 8
    assert own_share(Case("mlp", ranks=4, batch=8, scaling="strong"), 1).batch == 2


def test_a_batch_that_can_not_be_shared_is_refused() -> None:
    with pytest.raises(Unsupported, match="a batch of 6 can't be shared by 4 ranks"):
        own_share(Case("mlp", ranks=4, batch=6, scaling="strong"), 0)


def test_each_rank_has_a_gpu_of_its_own() -> None:
    devices = [own_share(Case("mlp", ranks=2, batch=8, device="cuda:0"), rank).device for rank in range(2)]
    assert devices == ["cuda:0", "cuda:1"]
