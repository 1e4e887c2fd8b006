"""What each framework is and sees here, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mldyno.runner.worker_process import Ended, WorkerProcess

PATIENCE = 120.0  # s


def probe(python: str, frameworks: Sequence[str], check_interrupt: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Versions, threads, devices and support of each framework by name; or its `error`, whatever it was."""
    worker = WorkerProcess(python, check_interrupt)
    try:
        worker.start()
        return worker.ask({"do": "probe", "frameworks": list(frameworks)}, PATIENCE, lambda step: None)
    except Ended as end:
        return {"frameworks": {name: {"error": end.reason} for name in frameworks}}
    finally:
        worker.kill()
