"""What each framework is and sees here, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from mldyno.client.worker_process import Ended, WorkerProcess
from mldyno.machine import Vendors
from mldyno.messages import FrameworkFacts, FrameworksProbed, ProbeFrameworks
from mldyno.records import Device

PROBE_TIMEOUT_S = 120.0


def frameworks_seen(frameworks: Sequence[str], check_interrupt: Callable[[], None] = lambda: None) -> FrameworksProbed:
    """What each framework says of itself; nobody else is asked."""
    try:
        with WorkerProcess(check_interrupt) as worker:
            return worker.ask(ProbeFrameworks(tuple(frameworks)), PROBE_TIMEOUT_S)
    except Ended as end:
        return FrameworksProbed("unknown", {name: FrameworkFacts(end.reason) for name in frameworks})


def with_vendors(facts: FrameworkFacts, vendors: Vendors) -> FrameworkFacts:
    """The same, with what vendors say of the devices."""
    return replace(facts, devices=tuple(vendors.describe(facts.devices)))


def probe(frameworks: Sequence[str]) -> dict[str, Any]:
    """Versions, threads, devices and support of each framework by name, with what vendors say; or its `error`."""
    vendors, answer = Vendors(), seen(frameworks)
    for framework in answer["frameworks"].values():
        if "devices" in framework:
            described = vendors.describe(Device(**device) for device in framework["devices"])
            framework["devices"] = [asdict(device) for device in described]
    return answer


def seen(frameworks: Sequence[str]) -> dict[str, Any]:
    """What each framework says of itself, as plain data."""
    answer = frameworks_seen(frameworks)
    return {
        "python": answer.python,
        "frameworks": {
            name: {"error": facts.error}
            if facts.error
            else {key: value for key, value in asdict(facts).items() if key != "error"}
            for name, facts in answer.frameworks.items()
        },
    }
