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
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from mldyno import messages, plugins, rendezvous, sources
from mldyno.datasets import prepare
from mldyno.messages import Answer, Command, OpenCase, TrainEndToEnd
from mldyno.worker import examine, session
from mldyno.worker.checks import check_tree, failure, raise_flaw
from mldyno.worker.ranks import obey
from mldyno.worker.session import CaseSession, open_case
from mldyno.worker.start import adopt_orphans, die_with_parent
from mldyno.workloads import user_models

LONGEST_COMMAND = 1 << 20  # B


# The fields of a command are the arguments of the function, or of the open case's method, that carries it out.
_BEFORE_CASES: Mapping[type[Command[Any]], Callable[..., Answer]] = {
    messages.ProbeFrameworks: examine.probe_frameworks,
    messages.TryFeature: examine.try_feature,
    messages.ForecastCase: examine.forecast_case,
    messages.TrySteps: examine.try_steps,
}
_OF_CASES: Mapping[type[Command[Any]], Callable[..., Answer]] = {
    messages.MeasureTurn: CaseSession.turn,
    messages.TimePhases: CaseSession.phases,
    messages.MeasureEnergy: CaseSession.energy,
    messages.CloseCase: CaseSession.close,
}


class Worker:
    """Carry out commands, and keep the open cases."""

    def __init__(self, tell: Callable[[Answer], None]) -> None:
        self.tell, self.opened = tell, dict[int, CaseSession]()

    def answer(self, command: Command[Any]) -> Answer:
        """Carry out a command; an error of the framework becomes an answer, and then a record."""
        try:
            return self._carry_out(command)
        except Exception as error:
            keys = command.keys if isinstance(command, messages.MeasureRounds) else (getattr(command, "key", -1),)
            cases = [self.opened.pop(key).case for key in keys if key in self.opened]
            case = cases[0] if cases else getattr(command, "case", None)
            status, reason = failure(None if case is None else case.framework, error)
            return messages.Failed(status, reason)  # type: ignore[arg-type]

    def _carry_out(self, command: Command[Any]) -> Answer:
        kind, fields = type(command), dict(vars(command))
        source = fields.pop("source", None)
        if source is not None and source.name:
            sources.register(source)
        if kind in _BEFORE_CASES:
            return _BEFORE_CASES[kind](**fields)
        if kind in _OF_CASES:
            key = fields.pop("key")
            self.opened[key].enter()
            answer = _OF_CASES[kind](self.opened[key], **fields)
            if kind is messages.CloseCase:
                del self.opened[key]
            return answer
        if isinstance(command, OpenCase):
            progress = lambda step: self.tell(messages.Progress(step))  # noqa: E731
            opened = session.open_case(command.case, command.data, command.command, progress=progress)
            self.opened[command.key] = opened
            return opened.warm_up(command.warmup, command.load)
        if isinstance(command, messages.MeasureRounds):
            cases = [self.opened[key] for key in command.keys]
            return session.measure_rounds(cases, command.seconds, command.fewest, command.seed)
        if isinstance(command, messages.DescribeSource):
            return messages.SourceDescribed(user_models.describe(command.source, plugins.start_framework))
        assert isinstance(command, messages.RunTask)
        return self._run_task(command)

    def _run_task(self, command: messages.RunTask) -> Answer:
        """Pass on the rows of a task; its module may say whether the process is fit for more commands after it."""
        module, fit, status, reason = None, True, None, ""
        try:
            module = import_module(command.module)
            for row in module.TASKS[command.task](command.framework, **command.arguments):
                fit = fit and row.get("status") != "failed"
                self.tell(messages.TaskRow(row))
        except Exception as error:
            traceback.print_exc()  # for who mends it from afar
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


def listen(commands_from: int, answers_to: int) -> NoReturn:
    """Carry out commands until the parent is gone."""
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


def train(training: TrainEndToEnd) -> int:
    """Train a case for some epochs, each of which ends with a test; return the exit code, 1 where nothing was learned.

    The data set is fetched first, where it is missing.
    """
    data, case, framework = training.data, training.case, plugins.framework(training.case.framework)
    try:
        os.environ |= framework.environment(case)
        prepare(data.name, data.source, data.folder, lambda what, done, total: None)
        framework.start()
        team = framework.team() if case.in_ranks else None
        program = open_case(case, data, team=team).program
        first = program.losses()
        for _ in range(training.epochs):
            program.run_phase("epoch")
        last = program.losses()
        raise_flaw(program.rank_flaw(False))
        if not first or not last or not all(0 <= last[name] < value for name, value in first.items()):
            sys.stderr.write(f"nothing was learned: {first} at the start, {last} at the end\n")
            return 1
        program.end()
        if team is not None:
            team.leave()
            _end_at_once(0)
        return 0
    except Exception as error:
        if case.in_ranks:
            _end_with(case.framework, error)
        raise


def _end_with(framework_name: str, error: BaseException) -> None:
    """Write what ended this rank where the parent looks for it, and end."""
    sys.stderr.write(rendezvous.failure_line(os.environ.get("RANK", ""), *failure(framework_name, error)))
    _end_at_once(1)


def _end_at_once(code: int) -> None:
    """End without cleaning up: threads of gloo may outlive their group, and abort an interpreter that cleans up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
