"""A plan is run: rounds of fresh processes, in which groups of cases take turns at measuring."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mldyno import machine as machines
from mldyno.errors import StoreError
from mldyno.measure.stopping import Stopping
from mldyno.plan import Plan
from mldyno.records import Case, Machine, Record, Run
from mldyno.runner.case_run import CaseRun, now
from mldyno.runner.events import Listener
from mldyno.runner.groups import next_group, room_for_another
from mldyno.runner.interrupts import Interrupted, Interrupts
from mldyno.runner.warnings import INTERRUPTED
from mldyno.runner.worker_process import Ended, WorkerProcess, memory_limit
from mldyno.store import Query, Store
from mldyno.store.codec import encode

SHORT_TURN = 0.05  # s: cases that take turns hand over this often at first, then every tenth of what they have
FEWEST_TURNS = 12  # a comparison needs as many pairs


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
        self.records: list[Record] = []
        self.unsaved: list[Record] = []
        self.processes = self.groups = 0

    def execute(self, listener: Listener) -> list[Record]:
        """Run all that has no outcome yet; raises Interrupted when the user ends it."""
        self.listener = listener
        memory_limit()  # a setting that makes no sense is told before anything is written
        self.store.prepare()
        done = self.store.done(self.run)
        for record in self.store.stream(Query({"run": self.run})):  # a resumed run counts on from where it ended
            self.processes = max(self.processes, record.run.process)
            self.groups = max(self.groups, record.run.group)
        todo = [(c, r) for r in range(self.plan.repeats) for c in self.plan.cases if (c.id, r) not in done]
        self.store.begin_run(self.run, self.plan.key, now(), owner(), self.plan.text())
        listener.begin(self.plan, todo)
        try:
            with self.interrupts:
                for number in range(self.plan.repeats):
                    self._round(number, [case for case, r in todo if r == number])
            self.store.finish_run(self.run)
        except StoreError as error:
            raise StoreError(f"{error} {self._rescue()}".strip()) from error
        finally:
            listener.end()
        return self.records

    def _round(self, number: int, cases: Sequence[Case]) -> None:
        pending = list(cases)
        while pending:
            group = next_group(pending)
            left = self._group(number, group)
            pending = left + [case for case in pending if case not in group]
            if len(left) == len(group):  # what did not fit in company goes alone
                self._group(number, left[:1], alone=True)
                pending = pending[1:]

    def _group(self, number: int, cases: Sequence[Case], alone: bool = False) -> list[Case]:
        """Measure cases that take turns; gives back those that found no room in company."""
        opened: list[CaseRun] = []
        left: list[Case] = []
        self.groups += 1
        try:
            for case in cases:
                self.interrupts.check()
                if opened and not room_for_another([one.worker.resident for one in opened]):
                    left.append(case)
                    continue
                self.listener.case_started(case, number)
                started = self._open(case, number, retry=bool(opened) and not alone)
                if started is None:
                    left.append(case)
                elif started.software:
                    opened.append(started)
            left += self._take_turns(opened)
            while opened:
                self._close(opened.pop(0))
        except (Interrupted, StoreError) as end:
            for one in opened:
                one.worker.kill()
                if one.values:
                    self.unsaved.append(one.record(self.machine, "failed", str(end), (INTERRUPTED,)))
            if isinstance(end, Interrupted):
                self.store.append(self.unsaved)
            raise
        finally:
            for one in opened:
                one.worker.kill()
        return left

    def _open(self, case: Case, number: int, retry: bool) -> CaseRun | None:
        """Set a case up; None where it ran out of memory beside others and should be tried alone."""
        self.processes += 1
        run = Run(self.run, self.plan.suite, number, self.processes, self.groups)
        worker = WorkerProcess(self.python, self.interrupts.check)
        one = CaseRun(case, run, worker, self.stopping, self.plan.timeout, self.listener.progress)
        try:
            one.open(asdict(case))
        except Ended as end:
            worker.kill()
            if end.status == "oom" and retry:
                return None
            self._save(one.record(self.machine, end.status, end.reason))
        except BaseException:
            worker.kill()
            raise
        return one

    def _take_turns(self, opened: list[CaseRun]) -> list[Case]:
        """Rounds in random order until every case has enough; gives back those to be tried alone."""
        active, crowded = list(opened), []
        company = len(active) > 1
        while active:
            for one in self.random.sample(active, len(active)):
                seconds = max(SHORT_TURN, one.elapsed / 10) if company else self.stopping.next_turn(one.elapsed)
                try:
                    one.turn(seconds)
                except Ended as end:
                    one.worker.kill()
                    opened.remove(one)
                    active.remove(one)
                    if end.status == "oom" and company:
                        crowded.append(one.case)
                    else:
                        self._save(one.record(self.machine, end.status, end.reason))
                    continue
                out_of_time = one.elapsed >= self.stopping.budget
                if one.enough and (not company or one.turns >= FEWEST_TURNS or out_of_time):
                    active.remove(one)
        return crowded

    def _close(self, one: CaseRun) -> None:
        """Let the case prove its work, and save its record."""
        try:
            one.close()
            status, reason = "ok", ""
        except Ended as end:
            status, reason = end.status, end.reason
        except Interrupted as interruption:
            self.unsaved.append(one.record(self.machine, "failed", str(interruption), (INTERRUPTED,)))
            raise
        finally:
            one.worker.kill()
        self._save(one.record(self.machine, status, reason))

    def _save(self, record: Record) -> None:
        self.unsaved.append(record)
        self.store.append(self.unsaved)
        self.unsaved.clear()
        self.records.append(record)
        self.listener.case_ended(record)

    def _rescue(self) -> str:
        """Put what the store would not take into a file elsewhere; gives the words that say where."""
        if not self.unsaved:
            return ""
        text = "".join(encode(record) + "\n" for record in self.unsaved)
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
