"""What each framework is and sees here, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mldyno.machine import Vendors
from mldyno.records import Device
from mldyno.runner.worker_process import Ended, WorkerProcess

PATIENCE = 120.0  # s


def probe(
    python: str,
    frameworks: Sequence[str],
    check_interrupt: Callable[[], None] = lambda: None,
    vendors: Vendors | None = None,
) -> dict[str, Any]:
    """Versions, threads, devices and support of each framework by name, with what vendors say; or its `error`."""
    answer, vendors = seen(python, frameworks, check_interrupt), vendors or Vendors()
    for found in answer["frameworks"].values():
        if "devices" in found:
            found["devices"] = [asdict(one) for one in vendors.describe(Device(**seen) for seen in found["devices"])]
    return answer


def seen(python: str, frameworks: Sequence[str], check_interrupt: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What each framework says of itself; nobody else is asked."""
    worker = WorkerProcess(python, check_interrupt)
    try:
        worker.start()
        return worker.ask({"do": "probe", "frameworks": list(frameworks)}, PATIENCE, lambda step: None)
    except Ended as end:
        return {"frameworks": {name: {"error": end.reason} for name in frameworks}}
    finally:
        worker.kill()
