"""Ranks that train together, started by a launcher: one of them, the leader, is the worker; the others follow it.

The leader alone speaks with the parent, and times blocks as in any case: what all have to do is passed on to the others
first, and a wait ends when the last of them is done. So a block takes as long as its slowest rank. Passing on and
waiting cost some hundred microseconds, which blocks hide as they hide any other latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mldyno import messages, sources
from mldyno.axes import AXIS
from mldyno.datasets import Opened
from mldyno.frameworks import Framework, Program, Steps, Team, Unsupported
from mldyno.messages import DataSource, OpenCase
from mldyno.meters.memory import peak_resident
from mldyno.records import Case
from mldyno.timing import clock
from mldyno.workloads._portable import Portable

ORDERS = (
    "run", "check_step", "losses", "precision_flaw", "prepare_phases", "run_phase", "hold_state", "restore_state",
    "rank_flaw", "peak", "end", "load_first", "drop_loaded", "first_losses", "ablations",
)  # fmt: skip
(RUN, CHECK_STEP, LOSSES, PRECISION_FLAW, PREPARE_PHASES, RUN_PHASE, HOLD_STATE, RESTORE_STATE, RANK_FLAW, PEAK, END,
 LOAD_FIRST, DROP_LOADED, FIRST_LOSSES, ABLATIONS) = range(len(ORDERS))  # fmt: skip


def own_share(case: Case, local_rank: int) -> Case:
    """The case as one of its ranks does it: with its part of the batch, and on its own device."""
    ranks, batch = case.ranks or 1, case.batch or 1
    if case.scaling == "strong":
        if batch % ranks:
            raise Unsupported(f"a batch of {batch} can't be shared by {ranks} ranks; take a multiple of {ranks}")
        batch //= ranks
    kind, _, first = case.device.partition(":")
    device = case.device if kind == "cpu" else AXIS["device"].parse(f"{kind}:{int(first or 0) + local_rank}")
    return replace(case, batch=batch, device=device)


def gather_team(
    framework: Framework, case: Case, build: Any, opened: Opened | None, data: DataSource | None
) -> Team | None:
    """The leader: those that train together, who now know the case; None where it is a process by itself.

    What can't be is said before the others are asked.
    """
    if not case.in_ranks or not framework.parallel:  # others say why not, or have ranks of their own
        return None
    framework.check(own_share(case, 0), build, opened)
    team = framework.team()
    team.share(messages.encode(OpenCase(0, case, 0.0, data, source=sources.known(case.workload)), 0).decode())
    return team


class Leader(Program):
    """The leader's program: what all ranks have to do is passed on to the others, and then done here too."""

    def __init__(self, program: Program, team: Team) -> None:
        self.program, self.team, self.params = program, team, program.params
        self.loads_ahead, self.steps_in_cycle = program.loads_ahead, program.steps_in_cycle
        self.times: dict[str, list[list[float]]] = {}
        self.began = 0
        self.passed_on: tuple[str, int] | None = None
        """Of what was passed on and not waited for: the kind of steps, and how many."""

    def broadcast(self, order: int, argument: int = 0, kind: str = "", steps: int = 0) -> None:
        """Tell all what to do, when all have done what they were told before."""
        self.collect()
        self.team.broadcast(order, argument)
        self.began, self.passed_on = clock.now(), (kind, steps)

    def collect(self) -> None:
        """Wait until all have done what was passed on; blocks of steps leave each rank's time in s."""
        if self.passed_on is None:
            return
        (kind, steps), self.passed_on = self.passed_on, None
        times = self.team.gather((clock.now() - self.began) / 1e9)
        if steps:
            self.times.setdefault(kind, []).append([time / steps for time in times])

    # -- what all do together ----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Issue steps on every rank."""
        self.broadcast(RUN, steps, "step", steps)
        self.program.run(steps)

    def synchronize(self) -> None:
        """Until every rank's device is done."""
        self.program.synchronize()
        self.collect()

    def check_step(self) -> None:
        """One training step on the fixed batches."""
        self.broadcast(CHECK_STEP)
        self.program.check_step()
        self.collect()

    def first_losses(self) -> Mapping[str, float] | None:
        """Those of the leader's first step: right after it, a large model may have learned a small batch already."""
        self.broadcast(FIRST_LOSSES)
        losses = self.program.first_losses()
        self.collect()
        return losses

    def losses(self) -> Mapping[str, float] | None:
        """On the leader's fixed batch; a model of which each has a part needs all of them for it."""
        self.broadcast(LOSSES)
        losses = self.program.losses()
        self.collect()
        return losses

    def precision_flaw(self) -> str | None:
        """Of the leader's forward pass."""
        self.broadcast(PRECISION_FLAW)
        flaw = self.program.precision_flaw()
        self.collect()
        return flaw

    def counts(self) -> dict[str, int]:
        """Of the leader's step."""
        self.broadcast(RUN, 1)
        counts = self.program.counts()
        if not counts:  # nothing was run: the others wait for it
            self.program.run(1)
        self.collect()
        return counts

    def load_first(self) -> bool:
        """On every rank."""
        self.broadcast(LOAD_FIRST)
        loaded = self.program.load_first()
        self.collect()
        return loaded

    def drop_loaded(self) -> None:
        """On every rank."""
        if self.loads_ahead:
            self.broadcast(DROP_LOADED)
            self.program.drop_loaded()
            self.collect()

    def prepare_phases(self) -> None:
        """On every rank."""
        self.broadcast(PREPARE_PHASES)
        self.program.prepare_phases()
        self.collect()

    def run_phase(self, name: str) -> None:
        """One of the phases on every rank."""
        self.broadcast(RUN_PHASE, [*self.program.phases].index(name))
        self.program.run_phase(name)

    @property
    def ablations(self) -> Mapping[str, Steps]:
        """Each on every rank that has a part in it."""
        parts = enumerate(self.program.ablations.items())
        return {name: LedSteps(self, ABLATIONS + place, name, steps) for place, (name, steps) in parts}

    def hold_state(self) -> None:
        """On every rank."""
        self.broadcast(HOLD_STATE)
        self.program.hold_state()
        self.collect()

    def restore_state(self) -> None:
        """On every rank."""
        self.broadcast(RESTORE_STATE)
        self.program.restore_state()
        self.collect()

    def rank_flaw(self, thorough: bool) -> str:
        """Why the ranks did not train together."""
        self.broadcast(RANK_FLAW, int(thorough))
        flaw = self.program.rank_flaw(thorough)
        self.collect()
        return flaw

    def rank_times(self) -> Mapping[str, list[list[float]]]:
        """Times of a step in s, for each kind of steps one list a rank, since they were last asked for."""
        times = {kind: [list(of_rank) for of_rank in zip(*blocks, strict=True)] for kind, blocks in self.times.items()}
        self.times = {}
        return times

    def rank_peaks(self) -> list[float]:
        """Peak memory of each rank's process in B."""
        self.collect()
        self.team.broadcast(PEAK, 0)
        return self.team.gather(float(peak_resident() or 0))

    def end(self) -> None:
        """Let the others go, and leave."""
        self.collect()
        self.team.broadcast(END, 0)
        self.program.end()
        self.team.leave()

    # -- what the leader does by itself ------------------------------------------------------------

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Of the leader's share against the CPU."""
        return self.program.error_vs_reference()

    def proof(self, portable: Portable) -> list[float] | None:
        """What the leader computes by itself."""
        return self.program.proof(portable)

    def actual_device(self) -> str | None:
        """Of the leader."""
        return self.program.actual_device()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the leader."""
        return self.program.facts

    @property
    def phases(self) -> Mapping[str, int]:
        """The same on every rank."""
        return self.program.phases

    def steady_counters(self) -> tuple[int, ...]:
        """Of the leader."""
        return self.program.steady_counters()

    def device_peak(self) -> int | None:
        """Of the leader's device."""
        return self.program.device_peak()


class LedSteps:
    """Steps beside a program's own, on every rank."""

    def __init__(self, leader: Leader, order: int, kind: str, steps: Steps) -> None:
        self.leader, self.order, self.kind, self.steps = leader, order, kind, steps

    def run(self, steps: int) -> None:
        """Issue them."""
        self.leader.broadcast(self.order, steps, self.kind, steps)
        self.steps.run(steps)

    def synchronize(self) -> None:
        """Until every rank is done."""
        self.steps.synchronize()
        self.leader.collect()
