"""Reads commands, carries them out, answers; dies with its parent.

Commands: probe {frameworks}; examine {framework, device, feature}; foresee {case}; attempt {case, steps, limit};
open {key, case, warmup, data, command}; turn {key, seconds | steps}; phases {key, seconds};
rounds {keys, seconds, least, seed}; close {key}.
Answers: {"is": "ready" | "progress" | "blocks" | "phases" | "rounds" | "closed" | "probed" | "examined" | "foreseen"
| "attempted" | "failed", "key", ...}.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from mldyno.worker.examine import examine
from mldyno.worker.forecasts import attempt, forecast_case
from mldyno.worker.probe import probe
from mldyno.worker.session import CaseSession, failure, interleaved, open_case

COMMAND_LIMIT = 1 << 20


def _read_commands(descriptor: int, commands: queue.SimpleQueue[str]) -> None:
    """Sleep in a read; when the parent is gone, end this process and all that it started."""
    with os.fdopen(descriptor, encoding="utf-8", newline="\n") as lines:
        for line in iter(lambda: lines.readline(COMMAND_LIMIT), ""):
            commands.put(line)
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
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands_from, commands), daemon=True).start()
    opened: dict[int, CaseSession] = {}

    def answer(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(answers_to, data) :]

    while True:
        command = json.loads(commands.get())
        if command["do"] == "end":
            return
        key = command.get("key", 0)
        try:
            _obey(command, key, opened, answer)
        except Exception as error:  # an error of the framework becomes an answer, and then a record
            name = opened[key].case.framework if key in opened else command.get("case", {}).get("framework")
            opened.pop(key, None)
            status, reason = failure(name, error)
            answer({"is": "failed", "key": key, "status": status, "reason": reason})


def _obey(
    command: dict[str, Any], key: int, opened: dict[int, CaseSession], answer: Callable[[dict[str, Any]], None]
) -> None:
    def progress(step: float) -> None:
        answer({"is": "progress", "key": key, "step": step})

    if command["do"] == "probe":
        answer({"is": "probed", "key": key, **probe(command["frameworks"])})
    elif command["do"] == "examine":
        found = examine(command["framework"], command["device"], command["feature"])
        answer({"is": "examined", "key": key, **found})
    elif command["do"] == "foresee":
        answer({"is": "foreseen", "key": key, **forecast_case(command["case"])})
    elif command["do"] == "attempt":
        answer({"is": "attempted", "key": key, **attempt(command["case"], command["steps"], command["limit"])})
    elif command["do"] == "open":
        opened[key] = case = open_case(command["case"], command.get("data"), command.get("command", ()))
        answer({"is": "ready", "key": key, **case.warm_up(command["warmup"], progress)})
    elif command["do"] == "turn":
        answer({"is": "blocks", "key": key, **opened[key].turn(command["seconds"], command["steps"], progress)})
    elif command["do"] == "phases":
        answer({"is": "phases", "key": key, **opened[key].phases(command["seconds"], progress)})
    elif command["do"] == "rounds":
        among = [opened[one] for one in command["keys"]]
        answer({"is": "rounds", "key": key, "series": interleaved(among, command, progress)})
    elif command["do"] == "close":
        answer({"is": "closed", "key": key, **opened.pop(key).close()})
    else:
        raise ValueError(f"unknown command {command['do']!r}")
