"""Ranks that train together, started by a launcher: rank 0 is the worker, and the others do what it passes on to them.

Rank 0 alone speaks with the parent, and times blocks as in any case: what all have to do is told to the others first,
and a wait ends when the last of them is done. So a block takes as long as its slowest rank. Telling and waiting cost
some hundred microseconds, which blocks hide as they hide any other latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mldyno import messages
from mldyno.frameworks import Framework, Program, Steps, Team, Unsupported, in_ranks
from mldyno.messages import DataSource, OpenCase
from mldyno.meters.memory import peak_resident
from mldyno.records import Case
from mldyno.timing import clock
from mldyno.workloads._portable import Portable

ORDERS = (
    "run", "check_step", "losses", "precision_flaw", "prepare_phases", "run_phase", "settle", "rank_flaw", "peak",
    "end", "beside",
)  # fmt: skip
RUN, CHECK_STEP, LOSSES, PRECISION_FLAW, PREPARE_PHASES, RUN_PHASE, SETTLE, RANK_FLAW, PEAK, END, BESIDE = range(
    len(ORDERS)
)


def own_share(case: Case, rank: int) -> Case:
    """The case as one of its ranks does it: with its part of the batch, and on its own device."""
    ranks, batch = case.ranks or 1, case.batch or 1
    if case.scaling == "strong":
        if batch % ranks:
            raise Unsupported(f"a batch of {batch} can't be shared by {ranks} ranks; take a multiple of {ranks}")
        batch //= ranks
    kind, _, first = case.device.partition(":")
    device = case.device if kind == "cpu" else f"{kind}:{int(first or 0) + rank}"
    return replace(case, batch=batch, device=device)


def gather_team(framework: Framework, case: Case, data: DataSource | None) -> Team | None:
    """Rank 0: those that train together, who now know the case; None where it is a process by itself."""
    if not in_ranks(case) or not framework.parallel:  # others say why not, or have ranks of their own
        return None
    team = framework.team()
    team.share(messages.encode(OpenCase(0, case, 0.0, data), 0).decode())
    return team


class Leader(Program):
    """Rank 0's program: what all ranks have to do is passed on to the others, and then done here too."""

    def __init__(self, program: Program, team: Team) -> None:
        self.program, self.team, self.params = program, team, program.params
        self.times: dict[str, list[list[float]]] = {}
        self.began, self.waiting = 0, list[tuple[str, int]]()

    def _pass_on(self, order: int, argument: int = 0, name: str = "", steps: int = 0) -> None:
        self._collect()
        self.team.pass_on(order, argument)
        self.began = clock.now()
        self.waiting.append((name, steps))

    def _collect(self) -> None:
        """Wait until all have done what was passed on; blocks of steps leave each rank's time in s."""
        for name, steps in self.waiting:
            times = self.team.gather((clock.now() - self.began) / 1e9)
            if steps:
                self.times.setdefault(name, []).append([time / steps for time in times])
        self.waiting.clear()

    # -- what all do together ----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps on every rank."""
        self._pass_on(RUN, steps, "step", steps)
        self.program.run(steps)

    def synchronize(self) -> None:
        """Until every rank's device is done."""
        self.program.synchronize()
        self._collect()

    def check_step(self) -> None:
        """One training step on the fixed batches."""
        self._pass_on(CHECK_STEP)
        self.program.check_step()
        self._collect()

    def losses(self) -> Mapping[str, float] | None:
        """On rank 0's fixed batch; a model of which each has a part needs all of them for it."""
        self._pass_on(LOSSES)
        losses = self.program.losses()
        self._collect()
        return losses

    def precision_flaw(self) -> str | None:
        """Of rank 0's forward pass."""
        self._pass_on(PRECISION_FLAW)
        flaw = self.program.precision_flaw()
        self._collect()
        return flaw

    def counts(self) -> dict[str, int]:
        """Of rank 0's step."""
        self._pass_on(RUN, 1)
        counts = self.program.counts()
        if not counts:
            self.program.run(1)
        self._collect()
        return counts

    def device_time(self, steps: int) -> float | None:
        """Of rank 0's device."""
        self._pass_on(RUN, steps)
        time = self.program.device_time(steps)
        if time is None:
            self.program.run(steps)
        self._collect()
        return time

    def prepare_phases(self) -> None:
        """On every rank."""
        self._pass_on(PREPARE_PHASES)
        self.program.prepare_phases()
        self._collect()

    def run_phase(self, name: str) -> None:
        """One of the phases on every rank."""
        self._pass_on(RUN_PHASE, [*self.program.phases].index(name))
        self.program.run_phase(name)

    @property
    def beside(self) -> Mapping[str, Steps]:
        """Each on every rank that has a part in it."""
        return {
            name: LedSteps(self, BESIDE + place, name, steps)
            for place, (name, steps) in enumerate(self.program.beside.items())
        }

    def settle(self) -> None:
        """After steps beside its own: all ranks are alike again."""
        self._pass_on(SETTLE)
        self.program.settle()
        self._collect()

    def rank_flaw(self) -> str:
        """Why the ranks did not train together."""
        self._pass_on(RANK_FLAW)
        flaw = self.program.rank_flaw()
        self._collect()
        return flaw

    def rank_times(self) -> Mapping[str, list[list[float]]]:
        """Times of a step in s, for each kind of steps one list a rank, since they were last asked for."""
        times = {name: [list(of_rank) for of_rank in zip(*blocks, strict=True)] for name, blocks in self.times.items()}
        self.times = {}
        return times

    def rank_peaks(self) -> list[float]:
        """Peak memory of each rank's process in B."""
        self._collect()
        self.team.pass_on(PEAK, 0)
        return self.team.gather(float(peak_resident() or 0))

    def end(self) -> None:
        """Let the others go, and leave."""
        self._collect()
        self.team.pass_on(END, 0)
        self.program.end()
        self.team.leave()

    # -- what rank 0 does by itself ----------------------------------------------------------------

    def disagreement(self) -> tuple[float, float] | None:
        """Of rank 0's share against the CPU."""
        return self.program.disagreement()

    def proof(self, portable: Portable) -> list[float] | None:
        """What rank 0 computes by itself."""
        return self.program.proof(portable)

    def actual_device(self) -> str | None:
        """Of rank 0."""
        return self.program.actual_device()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of rank 0."""
        return self.program.facts

    @property
    def phases(self) -> Mapping[str, int]:
        """The same on every rank."""
        return self.program.phases

    def steady_counters(self) -> tuple[int, ...]:
        """Of rank 0."""
        return self.program.steady_counters()

    def device_peak(self) -> int | None:
        """Of rank 0's device."""
        return self.program.device_peak()


class LedSteps:
    """Steps beside a program's own, on every rank."""

    def __init__(self, leader: Leader, order: int, name: str, steps: Steps) -> None:
        self.leader, self.order, self.name, self.steps = leader, order, name, steps

    def run(self, steps: int) -> None:
        """Issue them."""
        self.leader._pass_on(self.order, steps, self.name, steps)
        self.steps.run(steps)

    def synchronize(self) -> None:
        """Until every rank is done."""
        self.steps.synchronize()
        self.leader._collect()
