"""A case that a worker runs: opened, measured in turns, its phases timed, closed; and what was observed so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mldyno import messages, sources
from mldyno.messages import A, CaseClosed, CaseOpened, Command, DataSource, Measured
from mldyno.records import Case, Series
from mldyno.runner.recording import NoStepTime, Observed
from mldyno.stats.intervals import median
from mldyno.units import show_seconds
from mldyno.worker.client import Ended, WorkerProcess

PHASES_SHARE = 0.25  # of the budget
REST_S = 2.0  # before and after energy is measured
CLOSING_S, CLOSING_SHARE = 3.0, 0.2  # reserved for closing a case without its steps; at most that share of the timeout
SHORTEST_TIMEOUT_S = 900.0  # of a case, where the user names none
CHECK_STEPS = {"train": 4.0, "infer": 1.5}  # steps that the checks take
NEXT_BLOCK_FACTOR = 1.2  # times the longest block, that must be left for the next one
SILENT_BLOCKS, SHORTEST_SILENCE_S = 5.0, 5.0  # of silence, after which a worker hangs: blocks, and s
OnProgress = Callable[[Case, float, float | None, float], None]
CaseAnswer = TypeVar("CaseAnswer", CaseOpened, Measured, CaseClosed)


def check_steps(case: Case) -> float:
    """Return the steps that the checks of a case take; a command proves by its exit code that it did its work."""
    return 0.0 if case.framework == "command" else CHECK_STEPS.get(str(case.mode), 0.0)


@dataclass(kw_only=True, eq=False)
class RemoteCase(Observed):
    """A case that a worker runs, or ran."""

    worker: WorkerProcess
    timeout: float  # time in s that may be spent waiting for the worker, in all
    on_progress: OnProgress
    key: int = 0  # identifies the case within its worker
    sharing: int = 1  # how many cases the worker works for
    data: DataSource | None = None
    command: tuple[str, ...] = ()  # the words of the user's command, where it is one
    prove: bool = False  # whether numbers are to show what it computes
    unchecked: tuple[str, ...] = ()  # checks that the user turned off
    at_energy: bool = False  # whether its time is known, and its energy is being measured

    def report(self, step: float) -> None:
        self.on_progress(self.case, step, self.half_width, self.elapsed)

    def request(self, command: Command[A]) -> A:
        """Return the worker's answer, within what is left of the case's time."""
        try:
            return self.worker.request(command, self.timeout - self.worker.spent, self.report)
        except Ended as end:
            if end.status == "timeout":
                end.reason = f"no end after {show_seconds(self.timeout)}; give it more with --timeout"
            raise

    def take(self, series: Series) -> None:
        try:
            super().take(series)
        except NoStepTime as error:
            raise Ended("failed", f"the worker's answer can't be used: {error}") from None

    def _take(self, answer: CaseAnswer) -> CaseAnswer:
        self.facts |= answer.facts
        self.series += answer.series
        return answer

    def open(self, start: bool = True) -> None:
        """Build the case, take its first step, warm it up; `start` starts its worker first."""
        if start:
            self.worker.start()
        stopping = self.stopping
        command = messages.OpenCase(
            self.key, self.case, stopping.warm_up, self.data, self.command, stopping.load,
            source=sources.known(self.case.workload),
        )  # fmt: skip
        opened = self._take(self.request(command))
        self.software, self.devices, self.unsteady = opened.software, opened.devices, opened.unsteady

    def measure(self, seconds: float) -> None:
        """Measure a turn of about that many s, or the steps that are still to do in that time."""
        left = None if self.stopping.steps is None else self.stopping.steps - self.steps
        if left is not None:
            due, block = round(seconds * self.steps / self.elapsed) if self.steps else 1, self.facts.get("block_steps")
            left = min(left, max(due, block if isinstance(block, int) else 1))
        answer = self.request(messages.MeasureTurn(self.key, seconds, left))
        self.facts |= answer.facts
        if not any(series.metric == "step_time" and series.values for series in answer.series):
            raise Ended("failed", "the worker's answer can't be used: a turn without a step")
        self.take_turn(answer.series)
        self.report(self.elapsed / self.steps)

    def time_phases(self) -> None:
        """Time the phases or ablations of the step, for a share of the budget."""
        if self.facts.get("phases") or self.facts.get("beside"):
            self._take(self.request(messages.TimePhases(self.key, PHASES_SHARE * self.stopping.budget)))

    def measure_energy(self, seconds: float) -> None:
        """Measure the energy of a step to the target or for that many s, and the machine's idle power."""
        self._take(self._ask_energy(messages.MeasureEnergy(self.key, seconds, self.stopping.target, REST_S)))

    def _ask_energy(self, command: messages.MeasureEnergy) -> Measured:
        self.at_energy = True  # and stays so where the worker does not survive it
        answer = self.request(command)
        self.at_energy = False
        return answer

    def take_energy_turn(self, turn: int, seconds: float) -> None:
        """Measure a turn of that many s of a paired comparison: the median of its windows."""
        answer = self._ask_energy(messages.MeasureEnergy(self.key, seconds))
        values = [value for series in answer.series if (series.metric, series.stage) == ("energy", "steady")
                  for value in series.values]  # fmt: skip
        if values:
            self.series.append(Series("energy", "J", (median(values),), stage="paired", turn=turn))

    def close(self) -> None:
        """Check the work, and read the meters."""
        self.checks = self._take(self.request(messages.CloseCase(self.key, self.prove, self.unchecked))).checks

    @property
    def wall_time(self) -> float:
        """Its share of the time in s that was spent waiting for its worker."""
        return self.worker.spent / self.sharing

    @property
    def enough(self) -> bool:
        """True if the target is met, the budget is spent, or only the time to close the case is left."""
        return self.settled or self.out_of_time

    @property
    def next_turn(self) -> float:
        return min(self.stopping.next_turn(self.elapsed), max(0.0, self._time_for_turns))

    @property
    def out_of_time(self) -> bool:
        """True if one more block, and closing the case after it, would exceed the timeout; never at first."""
        return bool(self.values) and self._time_for_turns < NEXT_BLOCK_FACTOR * self.longest_block

    @property
    def _time_for_turns(self) -> float:
        """Time in s until the case must be closed; fake time costs none."""
        if self.facts.get("fake_time") or not self.values:
            return math.inf
        closing = min(CLOSING_S, CLOSING_SHARE * self.timeout) + check_steps(self.case) * self.elapsed / self.steps
        return self.timeout - self.worker.spent - closing

    def counts_after(self, end: Ended) -> bool:
        """Return whether what was measured before a timeout counts: the worker was still at work.

        One that was silent for far longer than a block takes has hung, and so has one in fake time, which is short.
        """
        if end.status != "timeout" or not self.values or self.facts.get("fake_time"):
            return False
        return end.silence <= max(SHORTEST_SILENCE_S, SILENT_BLOCKS * self.longest_block)


def measure_rounds(cases: Sequence[RemoteCase], seconds: float, fewest: int, seed: float) -> None:
    """Measure rounds with one block of each case, in the worker that they share."""
    answer = cases[0].request(messages.MeasureRounds(tuple(case.key for case in cases), seconds, fewest, seed))
    metrics = [series.metric for series in answer.series]
    times, delays = (len(cases) * [metric] for metric in ("step_time", "run_delay"))
    lengths = {len(series.values) for series in answer.series}
    if metrics not in (times, times + delays) or len(lengths) != 1 or 0 in lengths:
        raise Ended("failed", "the worker's answer can't be used: rounds without a block of each case")
    for place, series in enumerate(answer.series):
        cases[place % len(cases)].take(series)
