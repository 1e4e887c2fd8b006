"""What each framework is and sees here, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mldyno import interpreters
from mldyno.client.worker_process import Ended, WorkerProcess
from mldyno.machine import Vendors
from mldyno.messages import FrameworkFacts, FrameworksProbed, ProbeFrameworks

PROBE_TIMEOUT_S = 120.0


def frameworks_seen(
    frameworks: Sequence[str], check_interrupt: Callable[[], None] = lambda: None, python: str | None = None
) -> FrameworksProbed:
    """What each framework says of itself, in an interpreter of that name; nobody else is asked.

    Each has a process of its own: some can't be loaded beside others.
    """
    version, facts = "unknown", dict[str, FrameworkFacts]()
    for name in frameworks:
        try:
            with WorkerProcess(check_interrupt, python=python and interpreters.path_of(python)) as worker:
                probed = worker.ask(ProbeFrameworks((name,)), PROBE_TIMEOUT_S)
            version, facts[name] = probed.python, probed.frameworks[name]
        except Ended as end:
            facts[name] = FrameworkFacts(end.reason)
    return FrameworksProbed(version, facts)


def with_vendors(probed: FrameworksProbed, vendors: Vendors) -> FrameworksProbed:
    """The same, with what vendors say of the devices."""
    facts = {name: replace(each, devices=vendors.describe(each.devices)) for name, each in probed.frameworks.items()}
    return replace(probed, frameworks=facts)
