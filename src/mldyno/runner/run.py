"""Run a plan: in each repeat every case in a fresh process alone, then comparable cases head-to-head."""

from __future__ import annotations

import math
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mldyno import datasets, keys, machine_lock, plugins
from mldyno import machine as machines
from mldyno.analysis.estimates import Process, processes_of
from mldyno.analysis.outcomes import TARGET_NOT_REACHED
from mldyno.errors import StoreError
from mldyno.files import expanded
from mldyno.masking import masked_line
from mldyno.messages import DataSource
from mldyno.plan import Plan
from mldyno.records import Case, Fact, Machine, Pairing, Record, Run, Warning_
from mldyno.runner.events import Interrupted, Interrupts, Listener, awake
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.pairing import (
    budget_of_process,
    by_turns,
    energy_turns,
    groups,
    in_rounds,
    load_before,
    longest_warm_up,
    paired_budget,
    pairing_for,
    pairings,
    pairs_per_repeat,
    run_paired,
    wants_another,
)
from mldyno.runner.recording import Observed, now, processes_before, record_of, rescue
from mldyno.runner.remote_case import SHORTEST_TIMEOUT_S, RemoteCase
from mldyno.runner.warnings import ENERGY_LOST, INTERRUPTED, memory_taken
from mldyno.store import Query, Store
from mldyno.store.codec import BadRecord
from mldyno.temporary import is_alive, own_name, remove_leftovers
from mldyno.timing.stopping import Stopping
from mldyno.units import parse_price, show_seconds
from mldyno.worker.client import Ended, WorkerProcess, memory_limit
from mldyno.worker.process_tree import Patience, end_leftovers

GRACE_S = 10.0  # beyond the limit of a run, for a case that began before it
# What answers of the right types may cause.
BAD_ANSWER_ERRORS = (BadRecord, ArithmeticError, LookupError, TypeError, ValueError)
PLAN = "plan"  # begins the code that authenticates a plan
TIMEOUT_FACTOR = 5.0  # times the forecast of a case, where that is longer than the shortest timeout
Outcome = tuple[str, str, list[Warning_]]  # status, reason and warnings


class Crowded(Exception):
    """Cases ran out of memory side by side, which says nothing about each of them alone."""


def at_least_as_large(case: Case, other: Case) -> bool:
    """Return whether a case is like another one, and at least as large in batch and sequence."""
    if replace(case, batch=other.batch, seq=other.seq) != other:
        return False
    return (case.batch or 0) >= (other.batch or 0) and (case.seq or 0) >= (other.seq or 0)


def busy(owned_by: str) -> bool:
    """Return whether another process that began a run is known to be alive; one on another host is not."""
    return owned_by != own_name() and is_alive(owned_by)


class Runner:
    """Runs what is missing of a plan, and stores each record when its case has ended."""

    def __init__(
        self, plan: Plan, store: Store, run: str, forecasts: Sequence[Forecast] | None = None,
        new_worker: Callable[[], WorkerProcess] | None = None,
    ) -> None:  # fmt: skip
        """`forecasts` limit how long a case may take where the plan does not; they are made where there are none.

        `new_worker` makes a worker of another kind than a process for each case.
        """
        self.plan, self.store, self.run, self.new_worker = plan, store, run, new_worker
        self.listener = Listener()
        self.before: list[Process] = []
        self.settled: set[str] = set()
        self.random = random.Random(run)
        self.interrupts = Interrupts()
        self.machine: Machine = machines.describe()
        self.facts: dict[str, Fact] = {}
        self.vendors = machines.Vendors()
        self.records: list[Record] = []
        self.known: dict[tuple[str, int], Record] = {}
        self.paired: Counter[tuple[str, int, Pairing]] = Counter()
        self.unsaved: list[Record] = []
        self.processes = self.groups = 0
        self.sources: dict[str, DataSource] = {}
        self.patience = Patience()
        self.tried_again: dict[tuple[str, int], list[Warning_]] = {}
        self.forecasts = forecasts
        self.timeouts: dict[str, float] = {}
        self.began = time.monotonic()

    @property
    def left_out(self) -> list[Case]:
        """Cases that have fewer processes than was asked for, since the limit of the run was reached."""
        fewest = self.plan.repeats or 1
        return [case for case in self.plan.cases
                if case.id not in self.settled and len(self._records_of(case)) < fewest]  # fmt: skip

    def _records_of(self, case: Case) -> list[Record]:
        """Return its processes so far, in this run, in which it was alone."""
        name = case.id
        known = (self.known.get((name, repeat)) for repeat in range(self.plan.most_repeats))
        return [record for record in known if record is not None]

    def execute(self, listener: Listener) -> list[Record]:
        """Run all that has no outcome yet; raise Interrupted when the user ends it."""
        self.listener = listener
        try:
            with machine_lock.held(listener.say, needed=self.plan.real):
                self._begin()
                with awake(), self.interrupts:
                    together = groups(self.plan.cases, self.plan.by)
                    for repeat in range(self.plan.most_repeats):
                        for group in together:
                            self._group(repeat, group)
            if not self.left_out:
                self.store.finish_run(self.run)
        except StoreError as error:
            raise StoreError(f"{error} {rescue(self.unsaved, self.store.path)}".strip()) from error
        finally:
            listener.end()
        return self.records

    def _begin(self) -> None:
        """Check that everything is there before anything is written; a resumed run continues where it ended."""
        memory_limit()  # a setting that makes no sense is reported now
        end_leftovers()
        remove_leftovers(tempfile.gettempdir())
        self.facts = {"load_before": load} if (load := machines.load()) is not None else {}
        if self.plan.price is not None:
            cost = parse_price(self.plan.price)
            self.facts |= {"price_per_hour": cost.per_hour, "currency": cost.currency}
        self.sources = data_sources(self.plan, self.listener.fetching)
        forecasts = forecast(self.plan, self.store) if self.forecasts is None else self.forecasts
        self.store.prepare()  # after reading it, so that a damaged store stays as it is
        for record in self.store.stream(Query({"run": self.run, "imported_from": ""})):
            self._note(record)
        if self.plan.timeout is None:
            self.timeouts = usual_timeouts(self.plan, forecasts)
        self.before = processes_before(self.store, self.machine)
        todo = [(c, r) for r in range(self.plan.most_repeats) for c in self.plan.cases if (c.id, r) not in self.known]
        text = self.plan.text()
        self.store.begin_run(self.run, now(), own_name(), text, keys.authenticate(PLAN, self.run, text))
        self.began = time.monotonic()
        self.listener.begin(self.plan, todo, forecasts)

    def _note(self, record: Record) -> None:
        """Remember a record of this run."""
        self.processes = max(self.processes, record.run.process)
        self.groups = max(self.groups, record.run.group)
        if not record.interrupted:
            if record.alone:
                self.known[record.case.id, record.run.repeat] = record
                if record.crowded_out or not wants_another(self.plan, self._records_of(record.case)):
                    self.settled.add(record.case.id)
            else:
                self.paired[record.case.id, record.run.repeat, record.run.pairing] += 1

    def _group(self, repeat: int, cases: Sequence[Case]) -> None:
        """Measure each case alone, in a fresh process; then those that succeeded head-to-head."""
        if len(self.plan.commands) > 1:
            due = [case for case in cases if (case.id, repeat) not in self.known and case.id not in self.settled]
            for members in pairings(due) or [due]:
                self._by_turns(repeat, members)
            return
        for case in cases:
            before = self._records_of(case)
            usual = (before[-1].fact("wall_time") or 0.0) if before and self.plan.repeats is None else 0.0
            if (case.id, repeat) not in self.known and case.id not in self.settled and self._time_left > usual:
                self._alone(case, repeat, budget_of_process(self.plan, before))
        if repeat >= self.plan.fewest_repeats:
            return
        known = [(case, self.known.get((case.id, repeat))) for case in cases]
        for members in pairings([case for case, record in known if record is not None and record.status == "ok"]):
            self._pair(repeat, members)

    # -- time --------------------------------------------------------------------------------------
    @property
    def _time_left(self) -> float:
        """Time in s until the limit of the run."""
        return math.inf if self.plan.limit is None else self.plan.limit - (time.monotonic() - self.began)

    def _timeout(self, cases: Sequence[Case]) -> float:
        """Return the time in s that these cases may take in one process."""
        usual = sum(self.plan.timeout or self.timeouts.get(case.id, SHORTEST_TIMEOUT_S) for case in cases)
        return min(usual, max(0.0, self._time_left) + GRACE_S)

    def _outcome(self, cases: Sequence[RemoteCase], end: Ended) -> Outcome:
        """Return status, reason and warnings of cases whose worker has ended.

        What was measured before a timeout counts, if each case has some, and its worker was still at work. So does a
        time whose worker ended while energy was measured. A case that ran into the run's limit was not too slow itself.
        """
        if any(case.at_energy for case in cases) and all(case.values for case in cases):
            message = f"its worker ended while energy was measured ({end.reason}), and its work was not checked"
            return "ok", "", [Warning_(ENERGY_LOST, message, "look at its sensors with `mldyno doctor`")]
        if all(case.counts_after(end) for case in cases):
            return "ok", "", [self._time_was_over(cases[0].timeout, ", and its work was not checked")]
        if end.held is not None:
            return end.status, end.reason, [memory_taken(end.held)]
        if end.status != "timeout" or self._time_left > 0:
            return end.status, end.reason, []
        limit = show_seconds(self.plan.limit or 0)
        return "timeout", f"not done when the run's limit of {limit} was over; give it more with --limit", []

    def _time_was_over(self, timeout: float, more: str = "") -> Warning_:
        """Return the warning of a case that had no time to reach its target or its number of steps."""
        what, option = f"its timeout of {show_seconds(timeout)}", "--timeout"
        if self._time_left <= 0:
            what, option = f"the run's limit of {show_seconds(self.plan.limit or 0)}", "--limit"
        return Warning_(TARGET_NOT_REACHED, f"measured until {what} was over{more}", f"give it more with {option}")

    # -- cases -------------------------------------------------------------------------------------
    def _remote(
        self, case: Case, repeat: int, worker: WorkerProcess, pairing: Pairing, budget: float, key: int = 0
    ) -> RemoteCase:
        data_set, command, alone = data_set_of(case), self.plan.command_of(case), pairing == "alone"
        # Each run of a command is a process, and the first one has cached what can be.
        warm_up = longest_warm_up(self.plan) if len(self.plan.commands) < 2 else 0.0
        return RemoteCase(
            case,
            Run(self.run, self.plan.suite, repeat, self.processes, self.groups, pairing),
            Stopping(self.plan.target, budget, self.plan.steps if alone else None, warm_up,
                     load_before(self.plan, case) if alone else 0.0),
            worker=worker, timeout=self._timeout([case]), on_progress=self.listener.progress, key=key,
            data=None if data_set is None else self.sources[data_set], command=command,
            facts={**self.facts, **({"command": masked_line(command)} if command else {})},
            prove=alone and repeat == 0 and len({case.framework for case in self.plan.cases}) > 1,
            unchecked=self.plan.unchecked,
        )  # fmt: skip

    def _worker(self, case: Case) -> WorkerProcess:
        self.processes += 1
        if self.new_worker is not None:
            return self.new_worker()
        return WorkerProcess(self.interrupts.check, case=case)

    def _alone(self, case: Case, repeat: int, budget: float) -> None:
        """Measure one case for `budget` s, from its first step to its record."""
        self.interrupts.check()
        self.listener.case_started(case, repeat)
        remote = self._remote(case, repeat, self._worker(case), "alone", budget)
        if reason := self._too_large(case):
            self._save([self._record(remote, "oom", reason)])
            return
        with self._ending_workers([remote]):
            status, reason, warnings = self._tried(remote, self._measure)
        if status == "ok":
            warnings += self.tried_again.get((case.id, repeat), [])
        record = self._record(remote, status, reason, warnings)
        if record.crowded_out and self._memory_is_back(record, warnings):
            self._alone(case, repeat, budget)
        else:
            self._save([record])

    def _memory_is_back(self, record: Record, warnings: list[Warning_]) -> bool:
        """Wait for memory that other programs have taken, once for each process; return whether to try again."""
        key = record.case.id, record.run.repeat
        if key in self.tried_again or self.patience.left <= 0:
            return False
        self.tried_again[key] = warnings
        self.listener.waiting(record.case, f"{record.reason}; waiting {show_seconds(self.patience.left)} at most")
        return self.patience.wait(0, self.interrupts.check)

    def _tried(self, remote: RemoteCase, act: Callable[[RemoteCase], list[Warning_]]) -> Outcome:
        """Return the outcome of a case after an act, which returns warnings, or after the end of its worker."""
        try:
            return "ok", "", act(remote)
        except Ended as end:
            return self._outcome([remote], end)

    def _measure(self, remote: RemoteCase) -> list[Warning_]:
        """Measure a case from its first step to its checks."""
        remote.open()
        while not remote.enough:
            remote.measure(remote.next_turn)
        return self._finish(remote)

    def _finish(self, remote: RemoteCase) -> list[Warning_]:
        """Time the phases, measure the energy and check the work of a case whose steps are measured."""
        warnings = []
        if not remote.settled and (remote.out_of_time or self._time_left <= 0):
            warnings.append(self._time_was_over(remote.timeout))
        else:
            remote.time_phases()
            if self.plan.energy and remote.run.repeat < self.plan.fewest_repeats:
                remote.measure_energy(self.plan.budget / self.plan.fewest_repeats)
        remote.close()
        return warnings

    def _too_large(self, case: Case) -> str:
        """Return why a case is not tried: it, or a smaller case of its kind, ran out of memory in this run."""
        for record in self.known.values():
            if record.status == "oom" and at_least_as_large(case, record.case):
                which = "it" if record.case == case else record.case.id
                return f"not run: {which} ran out of memory before ({record.reason.removeprefix('not run: ')})"
        return ""

    def _pair(self, repeat: int, cases: Sequence[Case]) -> None:
        """Measure cases head-to-head; those that run out of memory side by side alternate."""
        pairing = pairing_for([self.known[case.id, repeat] for case in cases])
        if all(self.paired[case.id, repeat, "alternating-processes"] for case in cases):
            pairing = "alternating-processes"  # known from the run that is resumed
        try:
            self._pair_by(pairing, repeat, cases)
        except Crowded:
            self._pair_by("alternating-processes", repeat, cases)

    def _pair_by(self, pairing: Pairing, repeat: int, cases: Sequence[Case]) -> None:
        times = pairs_per_repeat(pairing, self.plan.fewest_repeats)
        done = min(self.paired[case.id, repeat, pairing] for case in cases)  # before a resumed run was ended
        for _ in range(times - done):
            self.interrupts.check()
            if self._time_left <= 0:
                return
            self.listener.pairing_started(cases, repeat, pairing)
            self.groups += 1
            self._pair_once(pairing, repeat, cases, paired_budget(self.plan, times))

    def _pair_once(self, pairing: Pairing, repeat: int, cases: Sequence[Case], budget: float) -> None:
        if pairing == "interleaved":
            worker = self._worker(cases[0])
            members = [self._remote(case, repeat, worker, pairing, budget, key) for key, case in enumerate(cases)]
            for remote in members:
                remote.sharing, remote.timeout = len(members), self._timeout(cases)
        else:
            members = [self._remote(case, repeat, self._worker(case), pairing, budget) for case in cases]
        status, reason, warnings = "ok", "", list[Warning_]()
        with self._ending_workers(members):
            try:
                run_paired(pairing, members, self.random, self.plan.energy)
            except Ended as end:
                if (end.status == "oom" or end.held is not None) and pairing != "alternating-processes":
                    raise Crowded from end
                status, reason, warnings = self._outcome(members, end)
        self._save([self._record(remote, status, reason, warnings) for remote in members])

    def _by_turns(self, repeat: int, cases: Sequence[Case]) -> None:
        """Interleave commands from their first run on; make a record of each alone, and of their comparison."""
        self.interrupts.check()
        if not cases or (repeat and self._time_left <= 0):
            return
        self.listener.pairing_started(cases, repeat, "interleaved")
        self.groups += 1
        budget = paired_budget(self.plan)
        members = [self._remote(case, repeat, self._worker(case), "alone", budget) for case in cases]
        with self._ending_workers(members):
            running, failures = by_turns(members, self.random, lambda: self._time_left)
            if self.plan.energy:
                with suppress(Ended):  # the record of the case says so
                    energy_turns(running, self.random)
            paired = [in_rounds(remote) for remote in running] if len(running) > 1 else []
            outcomes = [(remote, self._outcome([remote], end)) for remote, end in failures]
            outcomes += [(remote, self._tried(remote, self._finish)) for remote in running]
            outcomes.sort(key=lambda each: members.index(each[0]))
            outcomes += [(remote, ("ok", "", [])) for remote in paired]
        self._save([self._record(remote, *outcome) for remote, outcome in outcomes])

    # -- records -----------------------------------------------------------------------------------
    @contextmanager
    def _ending_workers(self, members: Sequence[RemoteCase]) -> Iterator[None]:
        """End the workers of these cases in any case; keep what they measured where the user ends the run."""
        try:
            yield
        except Interrupted as end:
            interrupted = [remote for remote in members if remote.values]
            self._store([self._record(remote, "failed", str(end), [INTERRUPTED]) for remote in interrupted])
            raise
        finally:
            for remote in members:
                remote.worker.kill()

    def _record(self, remote: RemoteCase, status: str, reason: str, warnings: Sequence[Warning_] = ()) -> Record:
        """Make the record of a case. Nothing is being measured, so vendors may be asked about its devices."""
        machine = replace(self.machine, devices=self.vendors.describe(remote.devices))
        try:
            record = record_of(remote, machine, remote.wall_time, status, reason, warnings, self.before)
        except BAD_ANSWER_ERRORS as error:
            reason = f"the worker's answers make no record: {type(error).__name__}: {error}"
            bare = Observed(remote.case, remote.run, remote.stopping, facts={**self.facts})
            return record_of(bare, machine, remote.wall_time, "failed", reason)
        self.before += processes_of(record)
        return record

    def _store(self, records: Sequence[Record]) -> None:
        """Store records, and those before that the store did not take."""
        self.unsaved += records
        self.store.append(self.unsaved)
        self.unsaved.clear()

    def _save(self, records: Sequence[Record]) -> None:
        self._store(records)
        self.records += records
        for record in records:
            self._note(record)
        for record in records:
            if record.case.id in self.settled:
                self.listener.case_settled(record.case)
        for record in records:
            self.listener.case_ended(record)


def usual_timeouts(plan: Plan, forecasts: Sequence[Forecast]) -> dict[str, float]:
    """Return the time in s that each case may take in one process, by its id, from its forecast."""
    return {each.case.id: max(SHORTEST_TIMEOUT_S, TIMEOUT_FACTOR * each.seconds / each.processes) for each in forecasts}


# -- data sets -------------------------------------------------------------------------------------
def data_folder() -> Path:
    """Return where data sets are kept: MLDYNO_DATA, or the user's cache folder."""
    named = os.environ.get("MLDYNO_DATA")
    if named:
        return expanded(named)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("mldyno")) / "data"


def data_set_of(case: Case) -> str | None:
    """Return the data set that a case reads; None where it reads none."""
    if case.placement != "loader" or case.framework not in plugins.names("frameworks"):
        return None
    if plugins.framework(case.framework).clock is not None:  # the fake framework reads nothing
        return None
    return plugins.workload(case.workload).data


def data_sources(plan: Plan, progress: Callable[[str, int, int | None], None]) -> dict[str, DataSource]:
    """Fetch or make what the plan needs; return for each data set where it is."""
    names = dict.fromkeys(name for case in plan.cases if (name := data_set_of(case)) is not None)
    folder = data_folder() if names else Path()
    return {name: DataSource(name, datasets.prepare(name, plan.data, folder, progress), str(folder)) for name in names}
