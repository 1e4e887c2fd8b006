"""Ranks that train together: the leader (rank 0) is the worker, and the other ranks follow its orders.

Only the leader talks to the parent and times blocks. It broadcasts each order to all ranks before it carries the order
out itself, and a wait ends when the last rank is done. So a block takes as long as its slowest rank. A broadcast and
its wait cost some hundred microseconds, which blocks hide like any other latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from mldyno import messages, sources
from mldyno.axes import AXIS
from mldyno.datasets import Opened
from mldyno.frameworks import Framework, Program, Steps, Team, Unsupported
from mldyno.hardware.system import peak_resident
from mldyno.messages import DataSource, OpenCase
from mldyno.records import Case
from mldyno.timing import clock

ORDERS = (
    "run", "run_phase", "device_time", "rank_flaw", "check_step", "losses", "first_losses", "precision_flaw", "flops",
    "counts", "prepare_phases", "hold_state", "restore_state", "load_first", "drop_loaded", "peak", "end", "ablations",
)  # fmt: skip
"""Methods of a program that all ranks call together, then three orders of the leader.

The number of an order is its place here. `ablations` is the last: they are numbered from it.
"""
NUMBER = {name: number for number, name in enumerate(ORDERS)}
NO_ARGUMENT = -1


def own_share(case: Case, local_rank: int) -> Case:
    """Return the case as one rank runs it: with its part of the batch, on its device."""
    ranks, batch = case.ranks or 1, case.batch or 1
    if case.scaling == "strong":
        if batch % ranks:
            raise Unsupported(f"a batch of {batch} can't be shared by {ranks} ranks; take a multiple of {ranks}")
        batch //= ranks
    kind, _, first = case.device.partition(":")
    device = case.device if kind == "cpu" else AXIS["device"].parse(f"{kind}:{int(first or 0) + local_rank}")
    return replace(case, batch=batch, device=device)


def gather_team(framework: Framework, case: Case, build: Any, opened: Opened | None, data: DataSource | None) -> Team:
    """Send the case to all ranks, and return them.

    A case that ranks can't run is refused before the other ranks are asked.
    """
    framework.check(own_share(case, 0), build, opened)
    team = framework.team()
    team.share(messages.encode(OpenCase(0, case, 0.0, data, source=sources.known(case.workload)), 0).decode())
    return team


class Leader:
    """The leader's program: what all ranks do is broadcast to them, and done here too; the rest is done here only.

    Only `synchronize` waits for steps that were issued; all other orders wait for every rank.
    """

    def __init__(self, program: Program, team: Team) -> None:
        self.program, self.team = program, team
        self.times: dict[str, list[list[float]]] = {}
        self.began = 0
        self.pending: tuple[str, int] | None = None  # kind and number of the steps that were ordered and not waited for

    def broadcast(self, name: str, argument: int = NO_ARGUMENT, kind: str = "", steps: int = 0, place: int = 0) -> None:
        """Send an order to all ranks, once they have carried out the one before."""
        self.collect()
        self.team.broadcast(NUMBER[name] + place, argument)
        self.began, self.pending = clock.now(), (kind, steps)

    def collect(self) -> None:
        """Wait until all ranks have carried out the last order; keep each rank's time of a step in s."""
        if self.pending is None:
            return
        (kind, steps), self.pending = self.pending, None
        times = self.team.gather((clock.now() - self.began) / 1e9)
        if steps:
            self.times.setdefault(kind, []).append([time / steps for time in times])

    def order(self, name: str, *arguments: int) -> Any:
        """Let all ranks call a method, with an integer or nothing; return the leader's result."""
        self.broadcast(name, arguments[0] if arguments else NO_ARGUMENT)
        result = getattr(self.program, name)(*arguments)
        self.collect()
        return result

    def __getattr__(self, name: str) -> Any:
        return partial(self.order, name) if name in ORDERS else getattr(self.program, name)

    def run(self, steps: int) -> None:
        self.broadcast("run", steps, "step", steps)
        self.program.run(steps)

    def run_phase(self, name: str) -> None:
        self.broadcast("run_phase", [*self.program.phases].index(name))
        self.program.run_phase(name)

    def synchronize(self) -> None:
        self.program.synchronize()
        self.collect()

    def flops(self) -> float | None:
        """Return the operations of a step on all ranks together."""
        own = self.order("flops")
        return None if own is None else self.team.size * own

    def drop_loaded(self) -> None:
        if self.loads_ahead:
            self.order("drop_loaded")

    @property
    def ablations(self) -> Mapping[str, Steps]:
        parts = enumerate(self.program.ablations.items())
        return {name: LedSteps(self, place, name, steps) for place, (name, steps) in parts}

    def rank_times(self) -> Mapping[str, list[list[float]]]:
        times = {kind: [list(of_rank) for of_rank in zip(*blocks, strict=True)] for kind, blocks in self.times.items()}
        self.times = {}
        return times

    def rank_peaks(self) -> list[float]:
        self.collect()
        self.team.broadcast(NUMBER["peak"], NO_ARGUMENT)
        return self.team.gather(float(peak_resident() or 0))

    def end(self) -> None:
        self.collect()
        self.team.broadcast(NUMBER["end"], NO_ARGUMENT)
        self.program.end()
        self.team.leave()


class LedSteps:
    """An ablation of a program: its steps, on every rank."""

    def __init__(self, leader: Leader, place: int, kind: str, steps: Steps) -> None:
        self.leader, self.place, self.kind, self.steps = leader, place, kind, steps

    def run(self, steps: int) -> None:
        self.leader.broadcast("ablations", steps, self.kind, steps, self.place)
        self.steps.run(steps)

    def synchronize(self) -> None:
        self.steps.synchronize()
        self.leader.collect()


def obey(program: Program, team: Team) -> None:
    """Carry out the leader's orders on another rank, until it ends."""
    ablations, phases = [*program.ablations.values()], [*program.phases]
    while True:
        number, argument = team.broadcast(0, NO_ARGUMENT)
        began, waited_for = clock.now(), cast(Steps, program)
        name = ORDERS[min(number, NUMBER["ablations"])]
        if name == "end":
            program.end()
            team.leave()
            return
        if name == "peak":
            team.gather(float(peak_resident() or 0))
            continue
        if name == "ablations":
            waited_for = ablations[number - NUMBER["ablations"]]
            waited_for.run(argument)
        elif name == "run_phase":
            program.run_phase(phases[argument])
        else:
            getattr(program, name)(*(() if argument == NO_ARGUMENT else (argument,)))
        waited_for.synchronize()
        team.gather((clock.now() - began) / 1e9)
