"""A plan is run: in each round every case in a fresh process alone, then comparable cases against each other."""

from __future__ import annotations

import math
import os
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mldyno import machine as machines
from mldyno.errors import StoreError
from mldyno.plan import Plan
from mldyno.records import Case, Machine, Pairing, Record, Run, Warning_
from mldyno.runner import data
from mldyno.runner.case_run import CaseRun, now
from mldyno.runner.events import Listener
from mldyno.runner.groups import groups, pairing_for, pairings, pairs_per_repeat
from mldyno.runner.interrupts import Interrupted, Interrupts
from mldyno.runner.pairing import run_paired
from mldyno.runner.warnings import INTERRUPTED
from mldyno.runner.worker_process import Ended, WorkerProcess, memory_limit
from mldyno.store import Query, Store
from mldyno.timing.stopping import Stopping
from mldyno.units import show_seconds

GRACE = 10.0  # s beyond the limit of a run, for what had begun before it


class Crowded(Exception):
    """Cases ran out of memory beside each other, which says nothing of each alone."""


def no_smaller(case: Case, other: Case) -> bool:
    """Whether a case is of the other's kind and at least as large in batch and sequence."""
    if replace(case, batch=other.batch, seq=other.seq) != other:
        return False
    return (case.batch or 0) >= (other.batch or 0) and (case.seq or 0) >= (other.seq or 0)


def new_run_id() -> str:
    """A run's id: when it began, and enough chance to be alone."""
    return f"{now()[:19].replace(':', '').replace('-', '')}-{uuid.uuid4().hex[:6]}"


def owner() -> str:
    """This process, in words that tell whether it still lives."""
    import psutil

    process = psutil.Process()
    return f"{process.pid} {process.create_time():.2f}"


def busy(owned_by: str) -> bool:
    """Whether another process that began a run still lives."""
    import psutil

    if owned_by == owner():
        return False

    pid, _, created = owned_by.partition(" ")
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" == created
    except (psutil.Error, ValueError):
        return False


class Runner:
    """Runs what is missing of a plan, and saves each record as its case ends."""

    def __init__(self, plan: Plan, store: Store, run: str, python: str = sys.executable) -> None:
        self.plan, self.store, self.run, self.python = plan, store, run, python
        self.listener = Listener()
        self.stopping = Stopping(target=plan.target, budget=plan.budget, steps=plan.steps)
        self.random = random.Random(run)
        self.interrupts = Interrupts()
        self.machine: Machine = machines.describe()
        self.vendors = machines.Vendors()
        self.records: list[Record] = []
        self.known: dict[tuple[str, int], Record] = {}
        self.met: Counter[tuple[str, int, Pairing]] = Counter()
        self.unsaved: list[Record] = []
        self.processes = self.groups = 0
        self.sources: dict[str, dict[str, str]] = {}
        self.began = time.monotonic()

    @property
    def left_out(self) -> list[Case]:
        """Cases that were not begun in every round, since the limit of the run was reached."""
        rounds = range(self.plan.repeats)
        return [case for case in self.plan.cases if any((case.id, number) not in self.known for number in rounds)]

    def execute(self, listener: Listener) -> list[Record]:
        """Run all that has no outcome yet; raises Interrupted when the user ends it."""
        self.listener = listener
        try:
            self._begin()
            with self.interrupts:
                together = groups(self.plan.cases, self.plan.by)
                for number in range(self.plan.repeats):
                    for group in together:
                        self._group(number, group)
            if not self.left_out:
                self.store.finish_run(self.run)
        except StoreError as error:
            raise StoreError(f"{error} {self._rescue()}".strip()) from error
        finally:
            listener.end()
        return self.records

    def _begin(self) -> None:
        """See that all is there before anything is written; a resumed run counts on from where it ended."""
        memory_limit()  # a setting that makes no sense is told now
        self.sources = data.prepare(self.plan, self.listener.fetching)
        self.store.prepare()
        for record in self.store.stream(Query({"run": self.run})):
            self._note(record)
        todo = [(c, r) for r in range(self.plan.repeats) for c in self.plan.cases if (c.id, r) not in self.known]
        self.store.begin_run(self.run, now(), owner(), self.plan.text())
        self.began = time.monotonic()
        self.listener.begin(self.plan, todo)

    def _note(self, record: Record) -> None:
        """Remember what there is of this run."""
        self.processes = max(self.processes, record.run.process)
        self.groups = max(self.groups, record.run.group)
        if not record.interrupted:
            if record.alone:
                self.known[record.case.id, record.run.repeat] = record
            else:
                self.met[record.case.id, record.run.repeat, record.run.pairing] += 1

    def _group(self, number: int, cases: Sequence[Case]) -> None:
        """Measure each case alone, in a fresh process; then those that came out well against each other."""
        for case in cases:
            if (case.id, number) not in self.known and self._time_left > 0:
                self._alone(case, number)
        known = [(case, self.known.get((case.id, number))) for case in cases]
        for pairing in pairings([case for case, record in known if record is not None and record.status == "ok"]):
            self._pair(number, pairing)

    @property
    def _time_left(self) -> float:
        """Time in s until the limit of the run."""
        return math.inf if self.plan.limit is None else self.plan.limit - (time.monotonic() - self.began)

    def _patience(self, cases: int = 1) -> float:
        """Time in s that so many cases in one process may take in all."""
        return min(cases * self.plan.timeout, max(0.0, self._time_left) + GRACE)

    def _why(self, end: Ended) -> str:
        """Why a case ended; one that ran into the limit of the run was not too slow for itself."""
        if end.status != "timeout" or self._time_left > 0:
            return end.reason
        return (
            f"not done when the run's limit of {show_seconds(self.plan.limit or 0)} was over; give it more with --limit"
        )

    def _case_run(self, case: Case, number: int, worker: WorkerProcess, pairing: Pairing, key: int = 0) -> CaseRun:
        run = Run(self.run, self.plan.suite, number, self.processes, self.groups, pairing)
        rule = self.stopping if pairing == "alone" else replace(self.stopping, steps=None)
        given = {"data": data.of(case, self.sources), "command": self.plan.command}
        return CaseRun(case, run, worker, rule, self._patience(), self.listener.progress, key, given=given)

    def _worker(self) -> WorkerProcess:
        self.processes += 1
        return WorkerProcess(self.python, self.interrupts.check)

    def _alone(self, case: Case, number: int) -> None:
        """One case from its first step to its record."""
        self.interrupts.check()
        self.listener.case_started(case, number)
        one = self._case_run(case, number, self._worker(), "alone")
        if reason := self._too_large(case):
            self._save([self._record(one, "oom", reason)])
            return
        status, reason = "ok", ""
        try:
            one.open()
            while not one.enough:
                one.turn(self.stopping.next_turn(one.elapsed))
            one.time_phases()
            one.close()
        except Ended as end:
            status, reason = end.status, self._why(end)
        except Interrupted as end:
            self._keep([one], end)
            raise
        finally:
            one.worker.kill()
        self._save([self._record(one, status, reason)])

    def _too_large(self, case: Case) -> str:
        """Why a case is not even tried: this run has seen it, or a smaller one of its kind, run out of memory."""
        for record in self.known.values():
            if record.status == "oom" and no_smaller(case, record.case):
                which = "it" if record.case == case else record.case.id
                return f"not run: {which} ran out of memory before ({record.reason.removeprefix('not run: ')})"
        return ""

    def _pair(self, number: int, cases: Sequence[Case]) -> None:
        """Cases against each other, as near as they get; those that run out of memory side by side alternate."""
        pairing = pairing_for([self.known[case.id, number] for case in cases])
        if all(
            self.met[case.id, number, "alternating-processes"] for case in cases
        ):  # what a resumed run had found out
            pairing = "alternating-processes"
        try:
            self._pairings(number, cases, pairing)
        except Crowded:
            self._pairings(number, cases, "alternating-processes")

    def _pairings(self, number: int, cases: Sequence[Case], pairing: Pairing) -> None:
        times = pairs_per_repeat(pairing, self.plan.repeats)
        held = min(self.met[case.id, number, pairing] for case in cases)  # before a resumed run was ended
        for _ in range(times - held):
            self.interrupts.check()
            if self._time_left <= 0:
                return
            self.listener.pairing_started(cases, number, pairing)
            self.groups += 1
            self._run_pairing(number, cases, pairing, times)

    def _run_pairing(self, number: int, cases: Sequence[Case], pairing: Pairing, times: int) -> None:
        if pairing == "interleaved":
            worker = self._worker()
            members = [self._case_run(case, number, worker, pairing, key) for key, case in enumerate(cases)]
            for one in members:
                one.sharing, one.timeout = len(members), self._patience(len(members))
        else:
            members = [self._case_run(case, number, self._worker(), pairing) for case in cases]
        status, reason = "ok", ""
        try:
            run_paired(pairing, members, self.stopping, self.random, times)
        except Ended as end:
            if end.status == "oom" and pairing != "alternating-processes":
                raise Crowded from end
            status, reason = end.status, self._why(end)
        except Interrupted as end:
            self._keep(members, end)
            raise
        finally:
            for one in members:
                one.worker.kill()
        self._save([self._record(one, status, reason) for one in members])

    def _keep(self, members: Sequence[CaseRun], end: Interrupted) -> None:
        """What an interrupted case or paired comparison has measured so far is kept too."""
        found = [self._record(one, "failed", str(end), (INTERRUPTED,)) for one in members if one.values]
        self.unsaved += found
        self.store.append(self.unsaved)
        self.unsaved.clear()

    def _record(self, one: CaseRun, status: str, reason: str, warnings: tuple[Warning_, ...] = ()) -> Record:
        """What became of a case; nothing is measured now, so that vendors may be asked what its devices are."""
        return one.record(replace(self.machine, devices=self.vendors.describe(one.devices)), status, reason, warnings)

    def _save(self, records: Sequence[Record]) -> None:
        self.unsaved += records
        self.store.append(self.unsaved)
        self.unsaved.clear()
        for record in records:
            self._note(record)
            self.records.append(record)
            self.listener.case_ended(record)

    def _rescue(self) -> str:
        """Put what the store would not take into a file elsewhere; gives the words that say where."""
        if not self.unsaved:
            return ""
        text = "".join(record.text + "\n" for record in self.unsaved)
        for folder in (Path(tempfile.gettempdir()), Path.cwd(), Path.home()):
            target = folder / f"mldyno-rescued-{self.run}.jsonl"
            try:
                with target.open("a", encoding="utf-8") as out:
                    out.write(text)
                    out.flush()
                    os.fsync(out.fileno())
            except OSError:
                continue
            return f"What was measured last is in {target}; bring it back with: mldyno import {target}"
        sys.stderr.write(text)
        return "What was measured last stands above; save it to a file and bring it back with: mldyno import FILE"
