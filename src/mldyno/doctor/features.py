"""Try the features of a device in worker processes: a crash or a hang of the process is a result, too.

One process tries one feature after the other, until one ends it or leaves it unusable. What the framework could leave
to the CPU is tried once more, with the setting that allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


class Examiner:
    """Try features of one framework on one device."""

    def __init__(self, check: Check, framework: str, device: str) -> None:
        self._check = check
        self._name, self._device = framework, device
        self._framework = plugins.framework(framework)
        self._worker: WorkerProcess | None = None

    def examine(self, features: Sequence[str]) -> list[Tried]:
        """Return the outcome of each; if the first, plainest one gives no numbers, the rest is skipped."""
        off: dict[str, str | None] = dict.fromkeys(self._framework.fallback)
        results: list[Tried] = []
        try:
            for feature in features:
                tried = self._try(feature, off)
                if tried.outcome == "unsupported" and any(name in tried.reason for name in off):
                    tried = self._with_fallback(tried)
                results.append(tried)
                if results[0].outcome not in GIVES_NUMBERS:
                    break
        finally:
            self._end()
        return results

    def _with_fallback(self, refused: Tried) -> Tried:
        """Try the feature once more in a process that allows the fallback to the CPU."""
        self._end()
        again = self._try(refused.feature, self._framework.fallback)
        self._end()
        if again.outcome not in ("works", "fallback"):
            return refused
        settings = ", ".join(f"{name}={value}" for name, value in self._framework.fallback.items())
        named = ", ".join(filter(None, [again.reason, f"only with {settings}"]))
        return replace(again, outcome="fallback", reason=named)

    def _try(self, feature: str, settings: Mapping[str, str | None]) -> Tried:
        limit = self._framework.features[feature]
        try:
            if self._worker is None:
                self._worker = WorkerProcess(self._check, settings)
                self._worker.start()
            tried = self._worker.request(TryFeature(self._name, self._device, feature), limit)
        except Ended as end:
            self._end()
            outcome = OUTCOME_OF_END.get(end.status, "crashed")
            return Tried(self._name, self._device, feature, outcome, end.reason)
        if not tried.fit:
            self._end()
        return Tried(self._name, self._device, feature, tried.result, tried.reason, tried.error, tried.tolerance)

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
