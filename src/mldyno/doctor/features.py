"""Try the features of a device in worker processes: a crash or a hang of the process is a result, too.

One process tries one feature after the other, until one ends it or leaves it unusable. What the framework could leave
to the CPU is tried once more, with the setting that allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mldyno import plugins
from mldyno.doctor.findings import GIVES_NUMBERS
from mldyno.doctor.symptoms import Outcome, Tried
from mldyno.messages import TryFeature
from mldyno.records import Device
from mldyno.worker.client import Ended, WorkerProcess

OUTCOME_OF_END: dict[str, Outcome] = {"timeout": "timeout", "oom": "failed"}
QUICK_LIMIT_S = 60.0  # features that may take longer are skipped in a quick look
Check = Callable[[], None]


def names(framework: str, quick: bool) -> list[str]:
    """Return the features of a framework to try."""
    limits = plugins.framework(framework).features
    return [name for name, limit in limits.items() if limit <= QUICK_LIMIT_S or not quick]


def kinds(devices: Sequence[Device]) -> list[Device]:
    """Return one device of each kind: two cards with one name behave alike."""
    first: dict[tuple[str, str], Device] = {}
    for device in devices:
        first.setdefault((device.name.partition(":")[0], device.title), device)
    return list(first.values())


def examine(check: Check, framework: str, device: str, wanted: Sequence[str]) -> list[Tried]:
    """Return the outcome of each feature on a device; the rest is skipped if the first gives no numbers."""
    fallback = plugins.framework(framework).fallback
    results: list[Tried] = []
    worker, with_fallback = WorkerProcess(check, dict.fromkeys(fallback)), WorkerProcess(check, fallback)
    try:
        for feature in wanted:
            tried = _try(worker, framework, device, feature)
            if tried.outcome == "unsupported" and any(name in tried.reason for name in fallback):
                worker.kill()
                again = _try(with_fallback, framework, device, feature)
                with_fallback.kill()
                if again.outcome in ("works", "fallback"):
                    settings = ", ".join(f"{name}={value}" for name, value in fallback.items())
                    reason = ", ".join(filter(None, [again.reason, f"only with {settings}"]))
                    tried = replace(again, outcome="fallback", reason=reason)
            results.append(tried)
            if results[0].outcome not in GIVES_NUMBERS:
                break
    finally:
        worker.kill()
        with_fallback.kill()
    return results


def _try(worker: WorkerProcess, framework: str, device: str, feature: str) -> Tried:
    """Try a feature in a worker, which is started where it does not run, and killed where it is not fit any more."""
    try:
        if not worker.running:
            worker.start()
        limit = plugins.framework(framework).features[feature]
        tried = worker.request(TryFeature(framework, device, feature), limit)
    except Ended as end:
        worker.kill()
        return Tried(framework, device, feature, OUTCOME_OF_END.get(end.status, "crashed"), end.reason)
    if not tried.fit:
        worker.kill()
    return Tried(framework, device, feature, tried.result, tried.reason, tried.error, tried.tolerance)
