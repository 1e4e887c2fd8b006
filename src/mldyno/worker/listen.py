"""Reads commands, carries them out, answers; dies with its parent. The commands and answers are in `messages`."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mldyno import messages
from mldyno.messages import (
    Answer,
    CaseClosed,
    CaseOpened,
    CloseCase,
    Command,
    EndWorker,
    Failed,
    ForecastCase,
    MeasureRounds,
    MeasureTurn,
    OpenCase,
    PhasesTimed,
    ProbeFrameworks,
    Progress,
    RoundsMeasured,
    RunTask,
    TaskDone,
    TaskRow,
    TimePhases,
    TryFeature,
    TrySteps,
    TurnMeasured,
)
from mldyno.worker.checks import failure
from mldyno.worker.examine import examine
from mldyno.worker.forecasts import forecast_case, try_steps
from mldyno.worker.probe import probe
from mldyno.worker.session import CaseSession, measure_rounds, open_case

LONGEST_COMMAND = 1 << 20  # B
Tell = Callable[[Answer], None]


class Worker:
    """Carries out commands, and keeps the cases that are open."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.opened = tell, dict[int, CaseSession]()

    def answer(self, command: Command[Any]) -> Answer:
        """What came of a command; an error of the framework becomes an answer, and then a record."""
        try:
            return _ANSWERS[type(command)](self, command)
        except Exception as error:
            keys = command.keys if isinstance(command, MeasureRounds) else (getattr(command, "key", -1),)
            cases = [self.opened.pop(key).case for key in keys if key in self.opened]
            case = cases[0] if cases else getattr(command, "case", None)
            status, reason = failure(None if case is None else case.framework, error)
            return Failed(status, reason)  # type: ignore[arg-type]

    def _progress(self, step: float) -> None:
        self.tell(Progress(step))

    def open_case(self, command: OpenCase) -> CaseOpened:
        """Build a case and warm it up."""
        self.opened[command.key] = session = open_case(command.case, command.data, command.command)
        return session.warm_up(command.warmup, self._progress)

    def measure_turn(self, command: MeasureTurn) -> TurnMeasured:
        """Measure an open case."""
        return self.opened[command.key].turn(command.seconds, command.steps, self._progress)

    def time_phases(self, command: TimePhases) -> PhasesTimed:
        """Time the phases of an open case."""
        return self.opened[command.key].phases(command.seconds, self._progress)

    def measure_rounds(self, command: MeasureRounds) -> RoundsMeasured:
        """Measure open cases in rounds."""
        sessions = [self.opened[key] for key in command.keys]
        return measure_rounds(sessions, command.seconds, command.fewest, command.seed, self._progress)

    def close_case(self, command: CloseCase) -> CaseClosed:
        """Check an open case, and forget it."""
        return self.opened.pop(command.key).close()

    def run_task(self, command: RunTask) -> TaskDone | Failed:
        """Pass on what a task finds, row by row; its module may say whether the process is fit for others after it."""
        module, fit, status, reason = None, True, None, ""
        try:
            module = import_module(command.module)
            for row in module.TASKS[command.task](command.framework, **command.arguments):
                fit = fit and row.get("status") != "failed"
                self.tell(TaskRow(row))
        except Exception as error:
            fit, (status, reason) = False, failure(command.framework, error)
        still_fit = getattr(module, "still_fit", None)
        if not fit:
            fit = still_fit is None or still_fit(command.framework, **command.arguments)
        if status is None:
            return TaskDone(fit)
        return Failed(status, reason, fit)  # type: ignore[arg-type]


_ANSWERS: Mapping[type[Command[Any]], Callable[[Worker, Any], Answer]] = {
    ProbeFrameworks: lambda worker, command: probe(command.frameworks),
    TryFeature: lambda worker, command: examine(command.framework, command.device, command.feature),
    ForecastCase: lambda worker, command: forecast_case(command.case),
    TrySteps: lambda worker, command: try_steps(command.case, command.steps, command.limit),
    OpenCase: Worker.open_case,
    MeasureTurn: Worker.measure_turn,
    TimePhases: Worker.time_phases,
    MeasureRounds: Worker.measure_rounds,
    CloseCase: Worker.close_case,
    RunTask: Worker.run_task,
}


def _read_commands(descriptor: int, lines: queue.SimpleQueue[str]) -> None:
    """Sleep in a read; when the parent is gone, end this process and all that it started."""
    with os.fdopen(descriptor, encoding="utf-8", newline="\n") as pipe:
        for line in iter(lambda: pipe.readline(LONGEST_COMMAND), ""):
            lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_with_parent() -> None:
    """Linux: be killed with the parent even if a library holds the interpreter's lock for ever."""
    if sys.platform == "linux":
        with contextlib.suppress(Exception):
            import ctypes

            parent = os.getppid()
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)


def listen(commands_from: int, answers_to: int) -> None:
    """Carry out commands until told to end."""
    _die_with_parent()
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
        if isinstance(command, EndWorker):
            return
        tell(worker.answer(command))
