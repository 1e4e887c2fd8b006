"""The three kinds of worker processes: one that carries out commands, a rank that follows, a training from end to end.

A worker reads commands, carries them out and answers; it dies with its parent. `messages` has all commands and answers.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mldyno import messages, plugins, rendezvous, sources
from mldyno.datasets import prepare
from mldyno.messages import Answer, Command, OpenCase, TrainEndToEnd
from mldyno.sources import Source
from mldyno.worker import examine, session
from mldyno.worker.checks import check_ranks, check_tree, failure
from mldyno.worker.launch import adopt_orphans, die_with_parent
from mldyno.worker.ranks import obey
from mldyno.worker.session import open_case
from mldyno.workloads import user_models

LONGEST_COMMAND = 1 << 20  # B
Tell = Callable[[Answer], None]


class Worker:
    """Carry out commands, each by the method with its name, and keep the open cases."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.opened = tell, dict[int, session.CaseSession]()

    def answer(self, command: Command[Any]) -> Answer:
        """Carry out a command; an error of the framework becomes an answer, and then a record."""
        try:
            if isinstance(source := getattr(command, "source", None), Source) and source.name:
                sources.register(source)
            carried_out: Answer = getattr(self, f"_{messages.wire_name(type(command))}")(command)
            return carried_out
        except Exception as error:
            keys = command.keys if isinstance(command, messages.MeasureRounds) else (getattr(command, "key", -1),)
            cases = [self.opened.pop(key).case for key in keys if key in self.opened]
            case = cases[0] if cases else getattr(command, "case", None)
            status, reason = failure(None if case is None else case.framework, error)
            return messages.Failed(status, reason)  # type: ignore[arg-type]

    def _progress(self, step: float) -> None:
        self.tell(messages.Progress(step))

    def _probe_frameworks(self, command: messages.ProbeFrameworks) -> Answer:
        return examine.probe(command.frameworks)

    def _try_feature(self, command: messages.TryFeature) -> Answer:
        return examine.examine(command.framework, command.device, command.feature)

    def _forecast_case(self, command: messages.ForecastCase) -> Answer:
        return examine.forecast_case(command.case)

    def _try_steps(self, command: messages.TrySteps) -> Answer:
        return examine.try_steps(command.case, command.steps, command.limit)

    def _entered(self, key: int) -> session.CaseSession:
        """Return an open case, and let its code import."""
        self.opened[key].enter()
        return self.opened[key]

    def _open_case(self, command: messages.OpenCase) -> Answer:
        self.opened[command.key] = opened = session.open_case(command.case, command.data, command.command)
        return opened.warm_up(command.warmup, self._progress, command.load)

    def _measure_turn(self, command: messages.MeasureTurn) -> Answer:
        return self._entered(command.key).turn(command.seconds, command.steps, self._progress)

    def _time_phases(self, command: messages.TimePhases) -> Answer:
        return self._entered(command.key).phases(command.seconds, self._progress)

    def _measure_energy(self, command: messages.MeasureEnergy) -> Answer:
        meter = self._entered(command.key).energy_meter
        return meter.measure(command.seconds, command.target, command.rest, self._progress)

    def _measure_rounds(self, command: messages.MeasureRounds) -> Answer:
        cases = [self.opened[key] for key in command.keys]
        return session.measure_rounds(cases, command.seconds, command.fewest, command.seed, self._progress)

    def _close_case(self, command: messages.CloseCase) -> Answer:
        case = self._entered(command.key)
        del self.opened[command.key]
        return case.close(command.prove, command.unchecked)

    def _describe_source(self, command: messages.DescribeSource) -> Answer:
        return messages.SourceDescribed(user_models.describe(command.source, plugins.start_framework))

    def _run_task(self, command: messages.RunTask) -> Answer:
        """Pass on the rows of a task; its module may say whether the process is fit for more commands after it."""
        module, fit, status, reason = None, True, None, ""
        try:
            module = import_module(command.module)
            for row in module.TASKS[command.task](command.framework, **command.arguments):
                fit = fit and row.get("status") != "failed"
                self.tell(messages.TaskRow(row))
        except Exception as error:
            fit, (status, reason) = False, failure(command.framework, error)
        still_fit = getattr(module, "still_fit", None)
        if not fit:
            fit = still_fit is None or still_fit(command.framework, **command.arguments)
        if status is None:
            return messages.TaskDone(fit)
        return messages.Failed(status, reason, fit)  # type: ignore[arg-type]


def _read_commands(descriptor: int, lines: queue.SimpleQueue[str]) -> None:
    """Sleep in a read. When the parent is gone, end this process and all that it started."""
    with os.fdopen(descriptor, encoding="utf-8", newline="\n") as pipe:
        for line in iter(lambda: pipe.readline(LONGEST_COMMAND), ""):
            lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def listen(commands_from: int, answers_to: int) -> None:
    """Carry out commands until one ends the worker."""
    die_with_parent()
    adopt_orphans()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands_from, lines), daemon=True).start()
    number = 0

    def tell(message: Answer) -> None:
        data = messages.encode(message, number)
        while data:
            data = data[os.write(answers_to, data) :]

    worker = Worker(tell)
    while True:
        command, number = messages.decode_command(lines.get())
        if isinstance(command, messages.EndWorker):
            return
        tell(worker.answer(command))


# -- other roles -----------------------------------------------------------------------------------


def follow(framework_name: str) -> None:
    """Carry out the leader's orders until it ends. An error is written to standard error, and ends this process."""
    framework = plugins.framework(framework_name)
    try:
        framework.start()
        team = framework.team()
        command, _ = messages.decode_command(team.share(""))
        assert isinstance(command, OpenCase)
        if command.source is not None:
            sources.register(command.source)
        obey(open_case(command.case, command.data, team=team).program, team)
        check_tree(command.case)
        sys.stderr.write(f"\n{rendezvous.RANK_DONE}\n")
        _end_at_once(0)
    except BaseException as error:
        _end_with(framework_name, error)


def train(wish: TrainEndToEnd) -> int:
    """Train a case for some epochs, each of which ends with a test; return the exit code, 1 where nothing was learned.

    The data set is fetched first, where it is missing.
    """
    try:
        return _train(wish)
    except Exception as error:
        if wish.case.in_ranks:
            _end_with(wish.case.framework, error)
        raise


def _train(wish: TrainEndToEnd) -> int:
    data, case, framework = wish.data, wish.case, plugins.framework(wish.case.framework)
    os.environ |= framework.environment(case)
    prepare(data.name, data.source, data.folder, lambda what, done, total: None)
    framework.start()
    team = framework.team() if case.in_ranks else None
    program = open_case(case, data, team=team).program
    first = program.losses()
    for _ in range(wish.epochs):
        program.run_phase("epoch")
    last = program.losses()
    check_ranks(program, thorough=False)
    if not first or not last or not all(0 <= last[name] < value for name, value in first.items()):
        sys.stderr.write(f"nothing was learned: {first} at the start, {last} at the end\n")
        return 1
    program.end()
    if team is not None:
        team.leave()
        _end_at_once(0)
    return 0


def _end_with(framework_name: str, error: BaseException) -> None:
    """Write what ended this rank where the parent looks for it, and end."""
    sys.stderr.write(rendezvous.failure_line(os.environ.get("RANK", ""), *failure(framework_name, error)))
    _end_at_once(1)


def _end_at_once(code: int) -> None:
    """End without cleaning up: threads of gloo may outlive their group, and abort an interpreter that cleans up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
